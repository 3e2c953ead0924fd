"""``leap engine``: the builds of llama.cpp that run models."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import format_choice, format_option, leap_group
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.interrupts import stopping_on_interrupt
from ...framework.options import in_bytes
from ...framework.output import Format, Output

if TYPE_CHECKING:
    from leap_core.inference.llama.engines import Engine

FORMAT = format_option("names")
COLUMNS = ["name", "version", "backends", "devices", "used", "folder"]
BACKENDS = click.Choice(["cpu", "vulkan", "cuda", "metal", "hip"])
NAME_OPTION = click.option("--name", metavar="NAME", help="Name of the engine; by default build and backend.")
ADDED_FORMAT = format_choice("Output format: the engine's name (text and quiet), or a JSON record.")
_STALE = "models that are warm keep the engine that they were loaded with until `leap unload`"


@leap_group("engine", short_help="Choose, add and download builds of llama.cpp.")
def command() -> None:
    """The builds of llama.cpp that run models: the included one, and others, for example for a GPU or for newer models.
    Every command accepts one by LEAP_ENGINE, too."""


@command.command("list", short_help="List the installed engines.")
@FORMAT
def list_(env: Environment, /, format: str) -> None:
    """List the installed engines: version, backends, devices, the selected one, and their paths."""
    from leap_core.inference.llama.engines import chosen_engine, default_engine, installed_engines

    output = Output(env, format)
    chosen = outcome_of(lambda: chosen_engine(env.variables))
    default = default_engine()
    engines = [*([default] if default else []), *installed_engines(env.directories)]
    output.records([_record(each, chosen) for each in engines], COLUMNS, name="name", wraps=True)
    if isinstance(chosen, Exception):
        output.warning(f"none of them runs: {chosen}")


def _record(engine: Engine, chosen: object) -> dict[str, Any]:
    used = getattr(chosen, "name", None) == engine.name
    facts = {key: engine.record.get(key) for key in ("backends", "devices", "gpu_offload", "origin")}
    return {
        "name": engine.name,
        "version": engine.version,
        "used": used,
        **facts,
        "projectors": engine.has_projectors,
        "folder": str(engine.folder),
    }


@command.command("use", short_help="Run models with an engine from now on.")
@click.argument("name", metavar="ENGINE")
def use(env: Environment, /, name: str) -> None:
    """Run models with ENGINE from now on, also in later jobs and servers. `default` is the included build."""
    from leap_core.inference.llama.engines import find_engine

    from ...config.settings import set_value, unset_value

    engine = find_engine(name, env.variables)
    if engine.record:
        set_value(env.directories.config_file, "engine", name)
    elif env.directories.config_file.exists():
        unset_value(env.directories.config_file, "engine")
    output = Output(env)
    output.note(f"{engine.name} ({engine.version}) runs models from now on; {_STALE}")
    if env.variables.get("LEAP_ENGINE"):
        output.warning("$LEAP_ENGINE is set, and overrides it")


@command.command("add", short_help="Add a build from a directory or an archive.")
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@NAME_OPTION
@ADDED_FORMAT
def add(env: Environment, /, source: Path, name: str | None, format: str) -> ExitCode:
    """Add the build of llama.cpp in FILE, a directory or an archive of llama.cpp's releases, and print its name.

    It is tested in a separate process first: its libraries are loaded, and the built-in model answers with it. A build
    that does not run here is refused. `leap engine use` selects it.
    """
    from leap_core.models.engines import add_engine

    stop = threading.Event()
    output = Output(env, format)
    with stopping_on_interrupt(stop.set):
        output.progress(f"trying {source.name} …")
        return _added(
            output, outcome_of(lambda: add_engine(env.cwd / source, name, variables=env.variables, stop=stop))
        )


@command.command("install", short_help="Download a build of llama.cpp's releases.")
@click.argument("tag", metavar="[BUILD]", required=False)
@click.option("--backend", type=BACKENDS, default="cpu", show_default=True, help="Backend of the build to install.")
@NAME_OPTION
@ADDED_FORMAT
def install(env: Environment, /, tag: str | None, backend: str, name: str | None, format: str) -> ExitCode:
    """Download the llama.cpp build BUILD, such as b12359, or the latest, and print its name.

    It comes from llama.cpp's own releases, is checked against their SHA-256, and tested as by `leap engine add`. An
    interrupted download resumes where it stopped.
    """
    from leap_core.models.engine_releases import install_engine

    stop = threading.Event()
    output = Output(env, format)

    def show(file: str, done: int, total: int) -> None:
        output.progress(f"{file} {in_bytes(done)} of {in_bytes(total)}")

    with stopping_on_interrupt(stop.set):
        return _added(
            output,
            outcome_of(
                lambda: install_engine(tag, backend, name, variables=env.variables, stop=stop, on_progress=show)
            ),
        )


def _added(output: Output, engine: Engine | Exception) -> ExitCode:
    from leap_core.models.http import DownloadStopped

    if isinstance(engine, DownloadStopped):
        output.note("stopped; the same command resumes from here")
        return ExitCode.INTERRUPTED
    if isinstance(engine, Exception):
        raise engine
    for backend, missing in engine.record.get("unusable", {}).items():
        lacks = f": it lacks {', '.join(missing)}" if missing else ""
        output.warning(f"{backend} of {engine.name} sees no device here, so models run on the CPU{lacks}")
    if output.format in (Format.TEXT, Format.QUIET):
        output.text(f"{engine.name}\n")
        output.note(f"`leap engine use {engine.name}` runs models with it, `--engine {engine.name}` one command")
    else:
        output.record(_record(engine, None), name="name")
    return ExitCode.DONE


@command.command("remove", short_help="Remove an engine.")
@click.argument("names", metavar="ENGINE...", nargs=-1, required=True)
def remove(env: Environment, /, names: tuple[str, ...]) -> None:
    """Remove each added or installed ENGINE."""
    from leap_core.models.engines import remove_engine

    output = Output(env)
    for name in names:
        remove_engine(name, env.variables)
        output.text(f"{name}\n")
