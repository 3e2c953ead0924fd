"""Opening the model that the options name, and which it is when none is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapModelLoadingError

from ..framework.environment import Environment
from ..framework.output import Output
from .background import Background
from .loading import ModelChoice, note_missing_gpu

if TYPE_CHECKING:
    from leap_core.opening import HostUse
    from leap_core.options import ModelLoadingOptions
    from leap_core.runner.contract import ModelRunner

BUILTIN = "builtin"


def load_model(env: Environment, model: ModelChoice, *, slots: int = 1) -> ModelRunner:
    """Load the model that was named, else the configured default, else the built-in one."""
    reference = model_reference(env, model.name)
    from leap_core.options import ModelLoadingOptions

    options = ModelLoadingOptions(**{"slots": slots, **model.fields})
    with naming_the_default(env, model.name):
        return warm_or_load(env, reference, options, model)


def warm_or_load(env: Environment, reference: str, options: ModelLoadingOptions, model: ModelChoice) -> ModelRunner:
    """The model host's runner of this model if it holds it so and ``model`` allows that, else one in this process.

    Where llama.cpp's log is to be seen here, the host is left aside unless it is demanded.
    """
    from leap_core.opening import open_runner

    if model.verbose:
        from leap_core.llama.library import set_verbose

        set_verbose(True)
    note_missing_gpu(env, options.n_gpu_layers)
    if model.prompt_cache is not None:
        options = replace(options, cache_options=model.prompt_cache)
    runner = open_runner(
        reference,
        options,
        host=host_use(model.host, quiet=model.verbose),
        variables=env.variables,
        cwd=env.cwd,
        directories=env.directories,
        on_warning=Output(env).warning,
        load=env.load_model,
    )
    note_endpoint(env, reference)
    return _logged(env, runner, model.command)


def note_endpoint(env: Environment, reference: str) -> None:
    """Say at a terminal where prompts go, when that server is asked for the first time."""
    from leap_core.models.references.endpoints import find_endpoint

    endpoint = find_endpoint(reference, env.directories) if env.stderr_is_terminal else None
    if endpoint is None:
        return
    from leap_core.storage.atomic_files import changing, replace_text

    noted = env.directories.data / "endpoints-noted"
    noted.parent.mkdir(parents=True, exist_ok=True)
    with changing(noted):
        hosts = noted.read_text("utf-8").splitlines() if noted.exists() else []
        if endpoint.host not in hosts:
            replace_text(noted, "\n".join([*hosts, endpoint.host]) + "\n")
            Output(env).note(f"prompts go to {endpoint.host} and are answered there; `offline = true` forbids that")


def host_use(demand: bool | None, *, quiet: bool = False) -> HostUse:
    """What ``--host`` and ``--no-host`` say; ``quiet`` leaves the host aside unless it is demanded."""
    from leap_core.opening import HostUse

    return HostUse.DEMAND if demand else HostUse.NEVER if quiet or demand is False else HostUse.USE


@contextmanager
def naming_the_default(env: Environment, name: str | None) -> Iterator[None]:
    """Say where the configured default is named, if no other model was named and it cannot be loaded."""
    try:
        yield
    except LeapModelLoadingError as error:
        if name is None and configured_model(env) is not None:
            variable = env.variables.get("LEAP_MODEL")
            where = "$LEAP_MODEL" if variable else f"default_model in {env.directories.config_file}"
            error.hint = "; ".join(filter(None, [error.hint, f"{where} names this model"]))
        raise


def model_reference(env: Environment, name: str | None) -> str:
    """The model that was named, else the configured default, else an installed one, else the built-in one."""
    if name == "":
        raise click.UsageError("-m needs a model's name or file")
    return name or default_model(env) or BUILTIN


def job_request(env: Environment, model: ModelChoice, background: Background) -> dict[str, Any]:
    """What every job of a model is asked with."""
    return {
        "model": model_reference(env, model.name),
        "loading": dict(model.fields),
        "host": model.job_may_use_host,
        "policy": background.policy,
        "cwd": env.cwd,
    }


def note_builtin(env: Environment, name: str | None, output: Output) -> None:
    """Say once which model answers where that was not asked for: the built-in one, or one of several installed."""
    if name is not None or configured_model(env) is not None:
        return
    models = installed_models(env)
    if not models:
        output.note(builtin_note())
    elif len(models) > 1:
        note = f"{models[0]} answers, the last used of {len(models)} models here; `leap models default NAME` settles it"
        output.note(note)


def builtin_note() -> str:
    """What to say where the built-in model answers because none was named and none is installed."""
    return "no model given, so the built-in demo model answers; `leap download LFM2.5-350M` gets a real one"


def default_model(env: Environment) -> str | None:
    """The configured model, else the installed one, of several the one used last; None where there is none."""
    return configured_model(env) or next(iter(installed_models(env)), None)


def installed_models(env: Environment) -> list[str]:
    """The installed models that answer prompts, the one used last first."""
    from leap_core.models.gguf.header import GGUFHeader
    from leap_core.models.installed.model_store import Store
    from leap_core.models.maintenance.inspection import header_or_error

    models = [model for model in Store.of(env.directories).installed() if model.state == "ready"]
    models.sort(key=lambda model: model.used or 0.0, reverse=True)
    headers = {model.name: header_or_error(model.path) for model in models if model.path is not None}
    return [name for name, header in headers.items() if isinstance(header, GGUFHeader) and header.pooling is None]


def configured_model(env: Environment) -> str | None:
    """``$LEAP_MODEL``, else ``default_model`` of the configuration file, else None."""
    from leap_core.configuration import read_configuration

    named = env.variables.get("LEAP_MODEL")
    return named or read_configuration(env.directories.config_file).default_model


def _logged(env: Environment, runner: ModelRunner, command: str) -> ModelRunner:
    """The runner, with what is asked of it in the log where the user wants that."""
    from leap_core.prompt_log.setting import log_is_on, logged

    if not log_is_on(env.directories, env.variables):
        return runner
    return logged(runner, command, env.directories, env.variables, Output(env).warning)
