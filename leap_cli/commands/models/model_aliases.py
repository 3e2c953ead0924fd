"""``leap models alias``: names of the user's own for models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ...completion.value_types import ModelName
from ...config.writing import set_value, unset_value
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_flag

if TYPE_CHECKING:
    from leap_core.models.installed.model_store import InstalledModel

TABLE = "aliases"


@leap_command("alias", short_help="List, give and take away names of models.")
@click.argument("name", required=False)
@click.argument("model", required=False, type=ModelName())
@click.option("--remove", is_flag=True, help="Take NAME away; the model stays.")
@format_flag
@click.pass_obj
def alias(env: Environment, /, name: str | None, model: str | None, remove: bool, format: str) -> ExitCode:
    """Let NAME stand for MODEL wherever a model is named. Without MODEL print what NAME stands for, without NAME list
    all aliases.

    MODEL is any reference: an installed model, one of the catalogue with a quantization, a repository, or a file. An
    alias overrides an installed model of the same name.
    """
    from leap_core.models.references.alias_file import check_alias

    output = Output(env, format)
    names = _written(env)
    if name is None:
        if remove:
            raise click.UsageError("--remove needs the NAME that is to go")
        rows = [{"name": each, "model": target} for each, target in sorted(names.items())]
        output.records(rows, ["name", "model"], name="name")
        if not rows and output.format is Format.TEXT:
            output.note("there are no aliases; leap models alias NAME MODEL makes one")
        return ExitCode.DONE
    written = next((each for each in names if each.lower() == name.lower()), None)
    if remove or model is None:
        if remove and model is not None:
            raise click.UsageError("--remove takes a NAME alone")
        if written is None:
            raise click.UsageError(f"there is no alias {name!r}; leap models alias lists those there are")
        if remove:
            unset_value(env.directories.config_file, f"{TABLE}.{written}")
            output.note(f"{written} stands for nothing from now on")
        else:
            output.record({"model": names[written], "name": written}, name="model")
        return ExitCode.DONE
    check_alias(name, model)
    if any(each.lower() == model.lower() for each in names):
        raise click.UsageError(f"{model!r} is an alias itself: name the model that it stands for")
    target = str((env.cwd / model).absolute()) if os.path.exists(env.cwd / model) else model
    _tell(env, output, name, target)
    set_value(env.directories.config_file, f"{TABLE}.{written or name}", target)
    return ExitCode.DONE


def _written(env: Environment) -> dict[str, str]:
    """The aliases as they are spelled in config.toml."""
    from leap_core.configuration import read_table

    table = read_table(env.directories.config_file).get(TABLE, {})
    if not isinstance(table, dict):
        raise click.UsageError(f"{env.directories.config_file}: {TABLE} must be a table")
    return {name: str(model) for name, model in table.items()}


def refuse_aliases(env: Environment, names: Sequence[str]) -> None:
    """Raises UsageError where a name of a model to remove is an alias: an alias is not its model."""
    aliases = _written(env)
    for name in names:
        written = next((each for each in aliases if each.lower() == name.lower()), None)
        if written is not None:
            model = aliases[written]
            raise click.UsageError(
                f"{written} is an alias of {model}: `leap models alias --remove {written}` takes the name away, "
                f"`leap models remove {model}` removes the model"
            )


def note_aliases_of(env: Environment, model: InstalledModel, output: Output) -> None:
    """Say which aliases stand for a removed model."""
    names = {model.name.lower(), model.model.lower(), f"{model.model}:{model.quantization}".lower()}
    paths = {str(path) for path in (model.directory, *model.all_files)}
    for alias, target in sorted(_written(env).items()):
        if target.lower() in names or target in paths:
            output.note(f"the alias {alias} stands for {target}; `leap models alias --remove {alias}` takes it away")


def _tell(env: Environment, output: Output, name: str, model: str) -> None:
    """Say what an alias leads to. Raises LeapModelNotFoundError for a model that nothing is known of."""
    from leap_core.models.installed.model_store import Store
    from leap_core.models.references.presence import is_here

    hidden = Store.of(env.directories).find(name)
    if hidden is not None:
        output.warning(f"the installed model {hidden.name} is hidden by this alias of the same name")
    here = is_here(model, variables=env.variables, cwd=env.cwd)
    what = "" if here else f", which is not on this machine: leap download {name} fetches it"
    output.note(f"{name} stands for {model} from now on{what}")
