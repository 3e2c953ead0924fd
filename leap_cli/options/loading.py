"""The options of loading a model, and which model it is when none is named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leap_core.errors import LeapModelLoadingError, adding_hint

from ..framework.environment import Environment
from ..framework.output import Output
from .background import refuse_typed
from .loading_details import has_prompt_cache, loading_details, loading_fields, prompt_cache
from .value_types import GpuLayers, ModelName

if TYPE_CHECKING:
    from leap_core.opening import HostUse
    from leap_core.options import ModelLoadingOptions
    from leap_core.runner.contract import ModelRunner

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

USE_HOST = "leap.use_host"
BUILTIN = "builtin"


def loading_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives ``model``, ``verbose`` and three fields of ModelLoadingOptions.

    ``--host``, ``--no-host`` and the options of ``loading_details`` are kept in the context, where ``load_model`` and
    ``warm_or_load`` find them.
    """
    function = loading_details(function)
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


host_flag = click.option(
    "--host/--no-host",
    default=None,
    expose_value=False,
    callback=lambda ctx, _option, value: ctx.meta.__setitem__(USE_HOST, value),
    help="Demand the model that `leap load` keeps warm, or load it here; by default it is used where there is one.",
)
_OPTIONS = (
    click.option(
        "-m",
        "--model",
        type=ModelName(),
        metavar="MODEL",
        help="Use this model: a GGUF file, a model's name, or 'builtin'.",
    ),
    click.option(
        "--context-size", type=int, metavar="N", help="Make room for this many tokens of prompt and answer together."
    ),
    click.option("--threads", "cpu_threads", type=int, metavar="N", help="Compute with this many CPU threads."),
    click.option(
        "--gpu-layers",
        "n_gpu_layers",
        type=GpuLayers(),
        default="auto",
        metavar="N",
        help="Compute this many layers on a GPU; -1 is all, auto (default) as many as fit.",
    ),
    host_flag,
    click.option("--verbose", is_flag=True, help="Show llama.cpp's log on stderr."),
)


def load_model(env: Environment, model: str | None, flags: dict[str, Any], *, verbose: bool) -> ModelRunner:
    """Load the model that was named, else the configured default, else the built-in one."""
    reference = model_reference(env, model)
    from leap_core.options import ModelLoadingOptions

    options = ModelLoadingOptions(**{"slots": 1, **flags, **loading_fields(env)})
    if verbose:
        from leap_core.llama.library import set_verbose

        set_verbose(True)
    with telling_the_default(env, model):
        return warm_or_load(env, reference, options, quiet=verbose)


def telling_the_default(env: Environment, model: str | None) -> AbstractContextManager[None]:
    """Say where the configured default is named, if no other ``model`` was named and it cannot be loaded."""
    hint = None
    if model is None and default_model(env) is not None:
        variable = env.variables.get("LEAP_MODEL")
        where = "$LEAP_MODEL" if variable else f"default_model in {env.directories.config_file}"
        hint = f"{where} names this model"
    return adding_hint(LeapModelLoadingError, hint)


def model_reference(env: Environment, model: str | None) -> str:
    """The model that was named, else the configured default, else the built-in one."""
    if model == "":
        raise click.UsageError("-m needs a model's name or file")
    return model or default_model(env) or BUILTIN


def warm_or_load(env: Environment, reference: str, options: ModelLoadingOptions, *, quiet: bool = False) -> ModelRunner:
    """The model host's runner of this model if it holds it so, else one in this process.

    ``--host`` demands the host's and ``--no-host`` forbids it; both are found in click's context. ``quiet`` leaves the
    host aside unless it is demanded: llama.cpp's log is to be seen here.
    """
    from leap_core.opening import open_runner

    note_missing_gpu(env, options.n_gpu_layers)
    runner = open_runner(
        reference,
        options,
        host=host_use(quiet=quiet),
        variables=env.variables,
        cwd=env.cwd,
        on_warning=Output(env).warning,
        load=partial(_load_here, env),
    )
    context = click.get_current_context(silent=True)
    return _logged(env, runner, "leap" if context is None else context.command_path.partition(" ")[2])


def note_missing_gpu(env: Environment, layers: int | str | None) -> None:
    """Say that layers were demanded of a GPU, and this llama.cpp computes on none."""
    if layers in (None, 0, "auto"):
        return
    from leap_core.llama.gpu import has_gpu_support

    if not has_gpu_support():
        Output(env).note(
            f"this llama.cpp is built without a GPU: --gpu-layers {layers} is not heeded (see leap doctor)"
        )


def _logged(env: Environment, runner: ModelRunner, command: str) -> ModelRunner:
    """The runner, with what is asked of it in the log where the user wants that."""
    from leap_core.prompt_log.setting import log_is_on, logged

    if not log_is_on(env.directories, env.variables):
        return runner
    return logged(runner, command, env.variables, Output(env).warning)


def host_use(*, quiet: bool = False) -> HostUse:
    """What ``--host`` and ``--no-host`` say; see ``warm_or_load``."""
    from leap_core.opening import HostUse

    context = click.get_current_context(silent=True)
    use_host = context.meta.get(USE_HOST) if context is not None else None
    return HostUse.DEMAND if use_host else HostUse.NEVER if quiet or use_host is False else HostUse.USE


def host_for_job() -> bool:
    """Whether a job of this command may use the model host. Raises UsageError for what it cannot heed."""
    meta = click.get_current_context().meta
    if meta[USE_HOST]:
        refuse_typed("host", "--host")
    if has_prompt_cache():
        refuse_typed("prompt_cache", "--prompt-cache")
    refuse_typed("verbose", "--verbose")
    return meta[USE_HOST] is not False


def _load_here(env: Environment, reference: str, options: ModelLoadingOptions) -> ModelRunner:
    if has_prompt_cache():
        options = replace(options, cache_options=prompt_cache(env))
    return env.load_model(reference, options)


def note_builtin(env: Environment, model: str | None, output: Output) -> None:
    """Say once that the built-in model answers, unless it was asked for."""
    if model is None and default_model(env) is None:
        output.note(builtin_note(env))


def builtin_note(env: Environment) -> str:
    """What to say where the built-in model answers because none was named: how to get a real one, or to use one that is
    installed."""
    from leap_core.models.store import Store

    names = [model.name for model in Store.of(env.directories).installed() if model.state == "ready"]
    if not names:
        return "no model given, so the built-in demo model answers; `leap download LFM2.5-350M` gets a real one for -m"
    others = f" (of {len(names)} here)" if len(names) > 1 else ""
    return (
        "no model given, so the built-in demo model answers; "
        f"`leap models default {names[0]}`{others} makes that one answer from now on"
    )


def default_model(env: Environment) -> str | None:
    """``$LEAP_MODEL``, else ``default_model`` of the configuration file, else None."""
    from leap_core.configuration import read_configuration

    named = env.variables.get("LEAP_MODEL")
    return named or read_configuration(env.directories.config_file).default_model
