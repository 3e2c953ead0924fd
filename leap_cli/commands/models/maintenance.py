"""``leap models verify``, ``check``, ``remove``, ``gc``, ``import``, ``alias`` and ``add-endpoint``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError

from ...completion.value_types import InstalledModelName, ModelName
from ...config.settings import set_value, unset_value
from ...exit_codes import ExitCode
from ...framework.arguments import FileName
from ...framework.click_classes import format_flag, format_option, leap_command
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import in_bytes, option
from ...framework.output import Format, Output, confirm_meant, confirm_removal, removal_flags
from ...options.loading import note_default_gone

if TYPE_CHECKING:
    from leap_core.inference.trial.trial_child import TrialVerdict
    from leap_core.models.aliases_and_endpoints import Endpoint
    from leap_core.models.store import InstalledModel, Store

TABLE = "aliases"
_HUB_NAME = re.compile(r"(hf:|https?:|(www\.)?huggingface\.co/|hf\.co/|[\w.-]+/[\w.-]+(:[\w.-]+)?$)", re.IGNORECASE)
"""What names no file of this machine, but a model of the hub."""


@leap_command("alias", short_help="List, add and remove aliases of models.")
@click.argument("name", required=False)
@click.argument("model", required=False, type=ModelName())
@click.option("--remove", is_flag=True, help="Remove the alias NAME; the model stays.")
@format_flag
def alias(env: Environment, /, name: str | None, model: str | None, remove: bool, format: str) -> None:
    """Make NAME an alias of MODEL wherever a model is named. Without MODEL, print the model of NAME; without NAME, list
    all aliases.

    MODEL is any reference: an installed model, one of the catalogue with a quantization, a repository, or a file. An
    alias overrides an installed model of the same name.
    """
    from leap_core.models.aliases_and_endpoints import check_alias

    output = Output(env, format)
    names = _written(env)
    if name is None:
        if remove:
            raise click.UsageError("--remove needs the NAME that is to go")
        rows = [{"name": each, "model": target} for each, target in sorted(names.items())]
        none = "there are no aliases; leap models alias NAME MODEL makes one"
        output.records(rows, ["name", "model"], name="name", none=none)
        return
    written = next((each for each in names if each.lower() == name.lower()), None)
    if remove or model is None:
        if remove and model is not None:
            raise click.UsageError("--remove takes a NAME alone")
        if written is None:
            raise click.UsageError(f"there is no alias {name!r}; leap models alias lists those there are")
        if remove:
            unset_value(env.directories.config_file, f"{TABLE}.{written}")
            output.note(f"{written} is removed")
            note_default_gone(env, [written], output)
        else:
            output.record({"model": names[written], "name": written}, name="model")
        return
    check_alias(name, model)
    if any(each.lower() == model.lower() for each in names):
        raise click.UsageError(f"{model!r} is itself an alias: name its model")
    target = str((env.cwd / model).absolute()) if os.path.exists(env.cwd / model) else model
    before, here = None if written is None else names[written], _is_here(env, target)
    set_value(env.directories.config_file, f"{TABLE}.{written or name}", target)
    _tell(env, output, name, target, before, here)


def _written(env: Environment) -> dict[str, str]:
    """The aliases as they are spelled in config.toml."""
    from leap_core.system.configuration import read_table

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


def _names_of(model: InstalledModel) -> set[str]:
    """The names of an installed model: its names in lower case, and its paths."""
    paths = {str(path) for path in (model.directory, *model.all_files)}
    return paths | {model.name.lower(), model.model.lower(), f"{model.model}:{model.quantization}".lower()}


def note_aliases_of(env: Environment, model: InstalledModel, output: Output) -> None:
    """Say which aliases name a removed model."""
    names = _names_of(model)
    for alias, target in sorted(_written(env).items()):
        if target.lower() in names or target in names:
            output.note(f"the alias {alias} still means {target}; `leap models alias --remove {alias}` removes it")


def _is_here(env: Environment, model: str) -> bool:
    """Whether a model can answer now. Raises LeapModelNotFoundError for one that nothing is known of."""
    from leap_core.models.resolving import Registry

    return Registry(env.variables, env.cwd).can_answer(model)


def _tell(env: Environment, output: Output, name: str, model: str, before: str | None, here: bool) -> None:
    """Say what an alias leads to."""
    from leap_core.models.store import Store

    hidden = Store.of(env.directories).find(name)
    if hidden is not None:
        output.warning(f"the installed model {hidden.name} is hidden by this alias of the same name")
    what = "" if here else f", which is not on this machine: leap download {name} fetches it"
    instead = "" if before in (None, model) else f", no longer for {before}"
    output.note(f"{name} is now an alias of {model}{instead}{what}")


FORMAT = format_option("names")


@leap_command("verify", short_help="Check files against their sizes and SHA-256.")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=InstalledModelName())
@FORMAT
def verify(env: Environment, /, names: tuple[str, ...], format: str) -> ExitCode:
    """Check the files of installed models against their published sizes and SHA-256 hashes.

    Without a NAME, all are checked. Exit code 4 if a file differs.
    """
    from leap_core.models.model_files import verify as checks_of

    output = Output(env, format)
    records = []
    for model in _named(env, names):
        for check in checks_of(model, on_file=lambda path: output.progress(f"checking {path.name}")):
            state = "damaged" if check.problem else "ok" if check.hashed else "ok (no SHA-256 known)"
            row = {"name": model.name, "file": check.path.name, "state": state, "problem": check.problem}
            records.append(row | {"path": str(check.path)})
    output.records(records, ["name", "file", "state", "problem"], name="path")
    damaged = [record for record in records if record["problem"]]
    if damaged:
        output.error(
            f"{len(damaged)} of {len(records)} files are not what they should be",
            f"leap download --replace {damaged[0]['name']} fetches them again",
        )
    return ExitCode.DOWNLOAD if damaged else ExitCode.DONE


@leap_command("check", short_help="Check whether llama.cpp runs a model.")
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=ModelName())
@FORMAT
def check_models(env: Environment, /, models: tuple[str, ...], format: str) -> ExitCode:
    """Check in a separate process whether llama.cpp runs MODEL: load it, tokenize text, compute two tokens and render
    its chat template, all within limits of time and memory.

    leap does this once for each new file and remembers the result; this command runs the check again. Without a MODEL,
    all installed models are checked. Exit code 3 if one cannot be loaded.
    """
    from leap_core.inference.trial.trial_child import Subject
    from leap_core.inference.trial.verdicts import new_verdict_on
    from leap_core.models.resolving import resolve_local

    output = Output(env, format)
    records = []
    for name in models or tuple(model.name for model in store_of(env).installed() if model.state == "ready"):
        local = resolve_local(name, variables=env.variables, cwd=env.cwd)
        output.progress(f"trying {local.model_id}")
        verdict = new_verdict_on(Subject(local.path), variables=env.variables)
        records.append(_tried(local.model_id, local.path, verdict))
    columns = ["name", "verdict", "stage", "problem", "seconds", "memory"]
    output.records(records, columns, name="name", none="no model is installed")
    bad = [record for record in records if record["verdict"] != "sound"]
    if bad:
        output.error(f"{len(bad)} of {len(records)} models cannot be loaded", bad[0]["problem"])
    return ExitCode.MODEL if bad else ExitCode.DONE


@leap_command("remove", short_help="Remove installed models.")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=InstalledModelName())
@click.option("--all", "everything", is_flag=True, help="Remove all installed models.")
@removal_flags
def remove(env: Environment, /, names: tuple[str, ...], everything: bool, yes: bool, dry_run: bool) -> None:
    """Remove installed models with all their files. A model that a running job, server or session uses is kept.

    A NAME is the full name of leap models list; for a prefix, you are asked. Models of other programs are never
    removed. See leap help uninstall for all that leap keeps.
    """
    from leap_core.models.store import freed_by

    output = Output(env)
    store = store_of(env)
    if everything is bool(names):
        raise click.UsageError("give either NAMEs or --all")
    if everything:
        names = tuple(model.name for model in store.installed())
        if not names:
            output.note("no model is installed")
        elif not dry_run and not confirm_removal(env, f"all {len(names)} models", yes=yes, dry_run=False):
            return
    else:
        refuse_aliases(env, names)
    models = dict(zip(names, _named(env, names), strict=True)) if names else {}
    meant = {name: model.name for name, model in models.items() if not _is_whole(name, model, store)}
    if not dry_run and not confirm_meant(env, meant, yes=yes):
        return
    kept: list[LeapError] = []
    for model in models.values():
        freed = freed_by(model) if dry_run else outcome_of(partial(store.remove, model))
        if isinstance(freed, LeapError):
            kept.append(freed)
            continue
        output.text(f"{model.name}\n")
        output.note(f"{'would free' if dry_run else 'freed'} {in_bytes(freed)}")
        note_aliases_of(env, model, output)
        if not dry_run:
            note_default_gone(env, _names_of(model), output)
    if kept:
        raise kept[0]


@leap_command("gc", short_help="Remove files of unfinished downloads.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@FORMAT
def gc(env: Environment, /, dry_run: bool, format: str) -> None:
    """Remove the files of unfinished downloads. Installed models and running downloads are not touched."""
    from leap_core.models.model_files import collect, rubbish_in

    output = Output(env, format)
    items = list(rubbish_in(store_of(env))) if dry_run else collect(store_of(env))
    records = [{"path": str(item.path), "bytes": item.bytes, "reason": item.reason} for item in items]
    output.records(records, ["path", "bytes", "reason"], name="path")
    if output.format is Format.TEXT:
        output.note(f"{'would free' if dry_run else 'freed'} {in_bytes(sum(item.bytes for item in items))}")


@leap_command("import", short_help="Add a local model file to the store.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the model; by default the file's without its quantization.")
@click.option("--quant", metavar="QUANT", help="Quantization of the model; by default as the file says.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "hard link", "reflink", "copy"]),
    default="auto",
    show_default=True,
    help="Way to add the file to the store; auto uses the first of the others that the disk supports.",
)
@option("--replace", "force", is_flag=True, help="Replace an installed model of that name.")
def import_file(env: Environment, /, file: Path, name: str | None, quant: str | None, mode: str, force: bool) -> None:
    """Add a model to the store: a GGUF FILE with the companion files next to it, a manifest, or a directory.

    Hard links and reflinks use no extra space. The imported file stays in place.
    """
    from leap_core.models.importing import import_model

    output = Output(env)
    if not os.path.exists(env.cwd / os.path.expanduser(file)) and _HUB_NAME.match(str(file)):
        raise click.UsageError(f"there is no file {file}; leap download NAME fetches a model from the hub")
    installed, how = import_model(
        env.cwd / os.path.expanduser(file),
        store_of(env),
        name=name,
        quantization=quant,
        mode=mode,
        force=force,
        variables=env.variables,
        on_notice=output.warning,
    )
    output.text(f"{installed.path}\n")
    output.note(f"{installed.name} is installed ({how})")


def store_of(env: Environment) -> Store:
    """The installed models."""
    from leap_core.models.store import Store

    return Store.of(env.directories)


def _is_whole(name: str, model: InstalledModel, store: Store) -> bool:
    """Whether a name says which model is meant: its own, model and quantization, or of a single one the model's."""
    if name.lower() == model.model.lower():
        others = [each.name for each in store.installed() if each.model.lower() == name.lower()]
        if len(others) > 1:
            raise click.UsageError(f"{name} is {' and '.join(others)}: give one whole name")
        return True
    return name.lower() in (model.name.lower(), f"{model.model}:{model.quantization}".lower()) or os.path.exists(name)


def _named(env: Environment, names: tuple[str, ...]) -> list[InstalledModel]:
    """The installed models of these names; all when there are none. A name may be any reference to one of them."""
    from leap_core.models.model_files import installed_model

    store = store_of(env)
    if not names:
        return store.installed()
    return [installed_model(name, store, variables=env.variables, cwd=env.cwd) for name in names]


def _tried(name: str, path: Path, verdict: TrialVerdict) -> dict[str, Any]:
    facts = verdict.facts
    memory = facts.get("memory_bytes")
    return {
        "name": name,
        "verdict": verdict.outcome,
        "stage": None if verdict.is_sound else verdict.stage,
        "problem": verdict.message or (f"chat template: {verdict.template}" if verdict.template else None),
        "seconds": facts.get("load_seconds"),
        "memory": in_bytes(memory) if memory else None,
        "memory_bytes": memory,
        "template": verdict.template,
        "facts": dict(facts),
        "path": str(path),
    }


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def _endpoint(arguments: Arguments) -> Endpoint:
    from leap_core.models.aliases_and_endpoints import Endpoint, base_url, check_endpoint_name

    name, variable, file, body = (arguments[each] for each in ("name", "key_variable", "key_file", "body"))
    check_endpoint_name(name)
    if variable is not None and file is not None:
        raise click.UsageError("--key-file cannot be combined with --key-variable")
    if variable is not None and not VARIABLE.fullmatch(variable):
        raise click.UsageError("--key-variable takes the name of a variable, such as FAR_KEY, and not the key")
    url, _, behind = arguments["url"].partition("#")
    return Endpoint(
        base_url(url),
        arguments["model"] or behind or None,
        name,
        variable,
        None if file is None else str((arguments.env.cwd / file).expanduser().absolute()),
        path=arguments["path"],
        headers=dict(_header(each) for each in arguments["headers"]),
        body={} if body is None else _object(body),
    )


_ENDPOINT_OPTIONS = (
    click.argument("name"),
    click.argument("url"),
    click.option("--model", type=ModelName(), help="Model name at the endpoint; by default the only one it has."),
    click.option("--key-variable", metavar="VARIABLE", help="Environment variable that holds the API key."),
    click.option("--key-file", type=FileName(), help="File that holds the API key."),
    click.option("--path", metavar="PATH", help="Path of chat requests after URL, instead of /chat/completions."),
    click.option(
        "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Send this header with every request."
    ),
    click.option("--body", metavar="JSON", help="Add the fields of this JSON object to every request."),
)
ENDPOINT = OptionGroup("endpoint", "", _ENDPOINT_OPTIONS, _endpoint)


@leap_command("add-endpoint", short_help="Register a remote model.")
@ENDPOINT
def add_endpoint(env: Environment, /, endpoint: Endpoint) -> None:
    """Register a remote model: NAME means the model at URL, the base of an OpenAI-compatible API such as
    https://host/v1. Nothing is sent now.

    The key itself is not stored: config.toml names the variable or the file that holds it.
    """
    from leap_core.models.aliases_and_endpoints import TABLE

    output, file, name = Output(env), env.directories.config_file, endpoint.name
    if name in _names(env):
        unset_value(file, f"{TABLE}.{name}")
    for field, value in vars(endpoint).items():
        if field != "name" and value not in (None, {}):
            set_value(file, f"{TABLE}.{name}.{field}", value)
    if endpoint.url.startswith("http://") and (endpoint.key_variable or endpoint.key_file):
        output.warning("http:// is not encrypted: whoever is on the way can read the key and the prompts")
    output.note(f"{name} is now {endpoint.model or 'the model'} at {endpoint.url}; use -m {name}")


def _header(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise click.UsageError(f"--header takes NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or ": null" in json.dumps(value) or "[null" in json.dumps(value):  # TOML has no null
        raise click.UsageError("--body takes a JSON object, such as '{\"top_a\": 0.5}'")
    return value


@leap_command("endpoints", short_help="List and remove remote models.")
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="Remove NAME from the list.")
@format_flag
def endpoints(env: Environment, /, name: str | None, remove: bool, format: str) -> None:
    """List the remote models that leap models add-endpoint registered, or NAME alone, and where their keys are."""
    from leap_core.models.aliases_and_endpoints import TABLE, known_endpoints

    output, file = Output(env, format), env.directories.config_file
    known = known_endpoints(file)
    if remove and name is None:
        raise click.UsageError("--remove needs the NAME that is to go")
    if name is not None and name not in known:
        raise click.UsageError(f"there is no endpoint {name!r}; leap models endpoints lists those there are")
    if remove:
        unset_value(file, f"{TABLE}.{name}")
        output.note(f"{name} is removed")
        return
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
    none = "there are no endpoints; leap models add-endpoint NAME URL adds one"
    output.records(rows, ["name", "url", "model", "key"], name="name", none=none)


def _names(env: Environment) -> set[str]:
    from leap_core.models.aliases_and_endpoints import known_endpoints

    return set(known_endpoints(env.directories.config_file))
