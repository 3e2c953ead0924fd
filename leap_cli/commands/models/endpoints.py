"""``leap models add-endpoint`` and ``leap models endpoints``: models elsewhere under names of the user's own."""

from __future__ import annotations

import re

import click

from ...completion.value_types import ModelName
from ...config.writing import set_value, unset_value
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_flag
from ...framework.text_arguments import FileName

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@leap_command("add-endpoint", short_help="Give a model elsewhere a name.")
@click.argument("name")
@click.argument("url")
@click.option("--model", type=ModelName(), metavar="MODEL", help="Ask for this model; by default the only one there.")
@click.option("--key-variable", metavar="VARIABLE", help="Take the key from this variable, whenever it is needed.")
@click.option("--key-file", type=FileName(), metavar="FILE", help="Take the key from this file, whenever it is needed.")
@click.pass_obj
def add_endpoint(
    env: Environment, /, name: str, url: str, model: str | None, key_variable: str | None, key_file: str | None
) -> ExitCode:
    """Let NAME stand for a model at URL, the base of OpenAI's protocol such as https://host/v1, wherever a model is
    named. Nothing is sent now.

    The key itself is kept nowhere: config.toml names the variable or the file that has it.
    """
    from leap_core.models.references.endpoints import TABLE, base_url, check_endpoint_name

    check_endpoint_name(name)
    if key_variable is not None and key_file is not None:
        raise click.UsageError("--key-file cannot be combined with --key-variable")
    if key_variable is not None and not VARIABLE.fullmatch(key_variable):
        raise click.UsageError("--key-variable takes the name of a variable, such as FAR_KEY, and not the key")
    url, _, behind = url.partition("#")
    base = base_url(url)
    fields = {
        "url": base,
        "model": model or behind or None,
        "key_variable": key_variable,
        "key_file": None if key_file is None else str((env.cwd / key_file).expanduser().absolute()),
    }
    output, file = Output(env), env.directories.config_file
    if name in _names(env):
        unset_value(file, f"{TABLE}.{name}")
    for field, value in fields.items():
        if value is not None:
            set_value(file, f"{TABLE}.{name}.{field}", value)
    if base.startswith("http://") and (key_variable or key_file):
        output.warning("http:// is not encrypted: whoever is on the way can read the key and the prompts")
    output.note(f"{name} stands for {fields['model'] or 'the model'} at {base} from now on: -m {name}")
    return ExitCode.DONE


@leap_command("endpoints", short_help="List and remove names of models elsewhere.")
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="Take NAME away from the list.")
@format_flag
@click.pass_obj
def endpoints(env: Environment, /, name: str | None, remove: bool, format: str) -> ExitCode:
    """List the names that leap models add-endpoint gave, or NAME alone, and where their keys are."""
    from leap_core.models.references.endpoints import TABLE, known_endpoints

    output, file = Output(env, format), env.directories.config_file
    known = known_endpoints(file)
    if remove and name is None:
        raise click.UsageError("--remove needs the NAME that is to go")
    if name is not None and name not in known:
        raise click.UsageError(f"there is no endpoint {name!r}; leap models endpoints lists those there are")
    if remove:
        unset_value(file, f"{TABLE}.{name}")
        output.note(f"{name} stands for nothing from now on")
        return ExitCode.DONE
    rows = [
        {
            "name": own_name,
            "url": each.url,
            "model": each.model,
            "key": f"${each.key_variable}" if each.key_variable else each.key_file,
        }
        for own_name, each in sorted(known.items())
        if name in (None, own_name)
    ]
    output.records(rows, ["name", "url", "model", "key"], name="name")
    if not rows and output.format is Format.TEXT:
        output.note("there are no endpoints; leap models add-endpoint NAME URL adds one")
    return ExitCode.DONE


def _names(env: Environment) -> set[str]:
    from leap_core.models.references.endpoints import known_endpoints

    return set(known_endpoints(env.directories.config_file))
