"""The warm model that a reference means, if the host holds it as it is wanted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...conversation.options import ModelLoadingOptions
from ...errors import LeapError, LeapModelLoadingError, LeapUnavailableError
from ...system.configuration import read_engine
from ...system.dataclass import dataclass
from ...system.directories import Directories
from .host_runner import HeldModel
from .model_host import GONE_SECONDS, ModelHost

if TYPE_CHECKING:
    from .host_runner import RemoteEmbeddingRunner, RemoteModelRunner

ATTEMPTS = 3
"""Hosts that may end just when they are asked, before that is an error."""
LIFE_SECONDS, STAY_SECONDS = 1.0, 60.0
"""Between two looks whether the host lives, and between two calls that keep a model warm."""


def warm_runner(
    reference: str,
    options: ModelLoadingOptions,
    *,
    embeds: bool = False,
    demanded: bool = False,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> RemoteModelRunner | RemoteEmbeddingRunner | None:
    """The host's runner of this model, with ``embeds`` the one that makes vectors. None when no host runs, when it does
    not hold the model for that, or holds it otherwise than the options say (those left at their defaults say nothing);
    where it is ``demanded``, LeapUnavailableError says which. Raises that also when there is a host that cannot be
    used.
    """
    try:
        host, model = _held(reference, options, variables, cwd)
        if _embeds(model) and not embeds:
            raise _NotHeldError(f"{model['model']} makes embeddings and cannot answer a prompt")
        if embeds and not _embeds(model):
            raise _NotHeldError(f"the model host holds {reference} to answer prompts, not for embeddings")
    except _NotHeldError:
        if demanded:
            raise
        return None
    if embeds:
        from .host_runner import RemoteEmbeddingRunner

        return RemoteEmbeddingRunner(HeldModel(host, model, _load_again))
    runner = runner_of(host, model)
    if options.adapters:  # answers of one warm model may each have adapters of their own
        runner.set_adapters(options.adapters)
    return runner


class _NotHeldError(LeapUnavailableError):
    """There is no host, or it does not hold the model as it is wanted."""


def _held(
    reference: str, options: ModelLoadingOptions, variables: Mapping[str, str] | None, cwd: Path | None
) -> tuple[ModelHost, dict[str, Any]]:
    """The host, and its description of a model that it holds as the options say."""
    host = ModelHost.running(variables)
    if host is None:
        from .served_models import running_servers

        served = ", ".join(
            f"port {each.port}" for each in running_servers(Directories.from_environment(variables).run_path)
        )
        beside = f" beside leap serve ({served}), which answers other programs" if served else ""
        raise _NotHeldError("no model host is running", hint=f"`leap load {reference}` starts one{beside}")
    try:
        state = _find(host, reference, options, cwd)
    except LeapUnavailableError as error:
        if not host.wait_for_end(GONE_SECONDS):
            raise
        raise _NotHeldError(error.message, hint=error.hint) from None  # it ended just when it was asked
    if state is None:
        raise _NotHeldError(f"the model host does not hold {reference}", hint=f"`leap load {reference}` loads it there")
    directories = Directories.from_environment(variables)
    variables = os.environ if variables is None else variables
    engine = options.engine or variables.get("LEAP_ENGINE") or read_engine(directories.config_file)
    if engine and os.sep in engine:
        from ...inference.llama.engines import find_engine

        engine = find_engine(engine, variables).name
    if engine and engine != state["model"].get("engine", "default"):
        raise _NotHeldError(f"the model host holds {reference} with another engine than {engine}")
    if state["differs"]:
        raise _NotHeldError(
            f"the model host holds {reference} with {state['differs']}",
            hint=f"`leap unload {reference}`, then `leap load` it so",
        )
    return host, state["model"]


def keep_warm(
    reference: str,
    *,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_progress: Callable[[float], object] | None = None,
    engine: str | None = None,
    **loading: object,
) -> tuple[ModelHost, dict[str, Any]]:
    """Have the host hold this model, starting a host where none runs; the host, and its description of the model.

    ``loading``: ``context_size``, ``cpu_threads``, ``n_gpu_layers``, ``slots``, ``queue``, ``keep_alive`` (seconds
    without use, 0 until unloaded), ``chat_template``, ``details``, ``prompt_cache``; see ``LoadRequest``.
    ``engine``: the one that the host must run, None for any. Loading a loaded model restarts its keep-alive timer.
    Raises LeapModelLoadingError, or LeapUnavailableError when there can be no host. Where loading fails, a host that
    holds nothing else is ended.
    """
    if engine is not None:
        variables = {**(os.environ if variables is None else variables), "LEAP_ENGINE": engine}
    for attempt in range(ATTEMPTS):
        host = running_or_new_host(variables)
        try:
            if engine is not None and (runs := host.status().get("engine", engine)) != engine:
                raise LeapModelLoadingError(
                    f"the model host runs the engine {runs}, and {reference} is to run with {engine}",
                    hint="`leap unload --all`, then load it so",
                )
            return host, host.load(reference, on_progress, str(cwd or Path.cwd()), **loading)
        except LeapUnavailableError:  # it was just ending
            if attempt == ATTEMPTS - 1 or not host.wait_for_end(1.0):
                raise
        except LeapError:
            with suppress(LeapUnavailableError):
                host.end_if_empty()
            raise
    raise AssertionError("unreachable")


@contextmanager
def staying_warm(
    reference: str, loading: Mapping[str, Any], *, variables: Mapping[str, str], cwd: Path
) -> Iterator[None]:
    """Keep a model warm, as ``keep_warm`` takes ``loading``, for as long as the block runs; a host that ended meanwhile
    is started again. Errors are left to the program that asks the model."""
    every = min(STAY_SECONDS, loading["keep_alive"] / 2 or STAY_SECONDS)
    ended = threading.Event()

    def stay() -> None:
        due = time.monotonic() + every
        while not ended.wait(LIFE_SECONDS):
            with suppress(LeapError):
                if time.monotonic() > due or ModelHost.running(variables) is None:
                    due = time.monotonic() + every
                    keep_warm(reference, variables=variables, cwd=cwd, **loading)

    threading.Thread(target=stay, name="leap-warm", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@dataclass(frozen=True)
class HostEnding:
    """What ended with a host: the names of its ``models``. ``forced_because``: what was wrong with a host whose process
    had to be ended by signals."""

    models: Sequence[str] = ()
    forced_because: str | None = None


def end_host(variables: Mapping[str, str] | None = None) -> HostEnding:
    """Unload every model and end the host; one that cannot be reached is ended by force. Raises LeapUnavailableError
    when that fails too."""
    try:
        host = ModelHost.running(variables)
        return HostEnding() if host is None else HostEnding(host.unload(None))
    except LeapUnavailableError as error:
        return HostEnding(forced_because=error.message if ModelHost.end_by_force(variables) else None)


def running_or_new_host(variables: Mapping[str, str] | None = None) -> ModelHost:
    """The running host, or a new one. Raises LeapUnavailableError when none can be started."""
    host = ModelHost.running(variables)
    if host is not None:
        return host
    from .model_host import start_host

    return start_host(os.environ if variables is None else variables)


def runner_of(host: ModelHost, model: dict[str, Any]) -> RemoteModelRunner:
    """The runner of a model that the host's ``load`` or ``find`` described."""
    from .host_runner import RemoteModelRunner

    return RemoteModelRunner(HeldModel(host, model, _load_again))


def _embeds(model: Mapping[str, Any]) -> bool:
    """Whether a model makes vectors."""
    return bool(model.get("embedding"))


def _load_again(host: ModelHost, model: dict[str, Any]) -> tuple[ModelHost, dict[str, Any]]:
    loading = dict(model["wish"])
    reference, cwd = loading.pop("reference"), loading.pop("cwd")
    return keep_warm(reference, variables=host.variables, cwd=Path(cwd), **loading)


def _find(host: ModelHost, reference: str, options: ModelLoadingOptions, cwd: Path | None) -> dict[str, Any] | None:
    return host.find(
        reference,
        cwd=None if cwd is None else str(cwd),
        context_size=options.context_size,
        cpu_threads=options.cpu_threads,
        n_gpu_layers=None if options.n_gpu_layers in (0, "auto") else options.n_gpu_layers,
        chat_template=options.chat_template,
        details={name: value for name, value in options.details().items() if name != "adapters"} or None,
    )
