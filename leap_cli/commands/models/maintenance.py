"""``leap models verify``, ``check``, ``remove``, ``gc`` and ``import``: looking after the models on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...completion.value_types import InstalledModelName, ModelName
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.options import option
from ...framework.output import Format, Output
from ...framework.output_format import format_option
from ...framework.sizes import in_bytes
from .model_aliases import note_aliases_of, refuse_aliases

if TYPE_CHECKING:
    from leap_core.load_check.verdict import Verdict
    from leap_core.models.installed.model_store import InstalledModel, Store

FORMAT = format_option("names")


@leap_command("verify", short_help="Check files against their sizes and SHA-256.")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=InstalledModelName())
@FORMAT
@click.pass_obj
def verify(env: Environment, /, names: tuple[str, ...], format: str) -> ExitCode:
    """Check the files of installed models against the sizes and SHA-256 that were announced for them.

    Without a NAME all are checked. Exit code 4 when a file is not what it should be.
    """
    from leap_core.models.maintenance.checks_and_cleaning import verify as checks_of

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
            f"leap download --force {damaged[0]['name']} fetches them again",
        )
    return ExitCode.DOWNLOAD if damaged else ExitCode.DONE


@leap_command("check", short_help="Try whether llama.cpp runs a model.")
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=ModelName())
@FORMAT
@click.pass_obj
def check_models(env: Environment, /, models: tuple[str, ...], format: str) -> ExitCode:
    """Try in a process of its own whether llama.cpp runs MODEL: load it, read its vocabulary, cut text into tokens,
    compute two tokens, and render its chat template, all within limits of time and memory.

    leap does this by itself before it loads a file that is new to it, and remembers what came of it; this command tries
    the file anew. Without a MODEL all installed ones are tried. Exit code 3 when one cannot be loaded.
    """
    from leap_core.load_check.subject import Subject
    from leap_core.load_check.trying import new_verdict_on
    from leap_core.models.references.resolving import resolve_local

    output = Output(env, format)
    records = []
    for name in models or tuple(model.name for model in _store(env).installed() if model.state == "ready"):
        local = resolve_local(name, variables=env.variables, cwd=env.cwd)
        output.progress(f"trying {local.model_id}")
        verdict = new_verdict_on(Subject(local.path), variables=env.variables)
        records.append(_tried(local.model_id, local.path, verdict))
    output.records(records, ["name", "verdict", "stage", "problem", "seconds", "memory"], name="name")
    bad = [record for record in records if record["verdict"] != "sound"]
    if bad:
        output.error(f"{len(bad)} of {len(records)} models cannot be loaded", bad[0]["problem"])
    elif not records and output.format is Format.TEXT:
        output.note("no model is installed")
    return ExitCode.MODEL if bad else ExitCode.DONE


@leap_command("remove", short_help="Remove installed models.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=InstalledModelName())
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.pass_obj
def remove(env: Environment, /, names: tuple[str, ...], dry_run: bool) -> None:
    """Remove installed models with all their files. One that a running job, host or session uses is left alone."""
    from leap_core.models.installed.model_store import freed_by

    output = Output(env)
    store = _store(env)
    refuse_aliases(env, names)
    for model in _named(env, names):
        freed = freed_by(model) if dry_run else store.remove(model)
        output.text(f"{model.name}\n")
        output.note(f"{'would free' if dry_run else 'freed'} {in_bytes(freed)}")
        note_aliases_of(env, model, output)


@leap_command("gc", short_help="Remove what unfinished downloads left behind.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@FORMAT
@click.pass_obj
def gc(env: Environment, /, dry_run: bool, format: str) -> None:
    """Remove what unfinished downloads left behind. Finished models, and downloads that run now, are not touched."""
    from leap_core.models.maintenance.checks_and_cleaning import collect, rubbish_in

    output = Output(env, format)
    items = list(rubbish_in(_store(env))) if dry_run else collect(_store(env))
    records = [{"path": str(item.path), "bytes": item.bytes, "reason": item.reason} for item in items]
    output.records(records, ["path", "bytes", "reason"], name="path")
    if output.format is Format.TEXT:
        output.note(f"{'would free' if dry_run else 'freed'} {in_bytes(sum(item.bytes for item in items))}")


@leap_command("import", short_help="Take a model of this machine into the store.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="Give the model this name; the file's without its quantization by default.")
@click.option("--quant", metavar="QUANT", help="Say that this is its quantization; what the file says by default.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "hard link", "reflink", "copy"]),
    default="auto",
    show_default=True,
    help="Bring the file into the store this way; auto takes the first of the others that the disk can do.",
)
@option("--replace", "force", formerly=("--force",), is_flag=True, help="Replace an installed model of that name.")
@click.pass_obj
def import_file(env: Environment, /, file: Path, name: str | None, quant: str | None, mode: str, force: bool) -> None:
    """Take a model into the store: a GGUF FILE with the companions beside it, a manifest, or a directory.

    Hard links and reflinks need no space. The file that is imported stays where it is.
    """
    from leap_core.models.maintenance.importing import import_model

    output = Output(env)
    installed, how = import_model(
        env.cwd / os.path.expanduser(file),
        _store(env),
        name=name,
        quantization=quant,
        mode=mode,
        force=force,
        variables=env.variables,
        on_notice=output.warning,
    )
    output.text(f"{installed.path}\n")
    output.note(f"{installed.name} is installed ({how})")


def _store(env: Environment) -> Store:
    from leap_core.models.installed.model_store import Store

    return Store.of(env.directories)


def _named(env: Environment, names: tuple[str, ...]) -> list[InstalledModel]:
    """The installed models of these names; all when there are none. A name may be any reference to one of them."""
    from leap_core.models.maintenance.inspection import installed_model

    store = _store(env)
    if not names:
        return store.installed()
    return [installed_model(name, store, variables=env.variables, cwd=env.cwd) for name in names]


def _tried(name: str, path: Path, verdict: Verdict) -> dict[str, Any]:
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
