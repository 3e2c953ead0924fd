"""From a reference to a runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Generic, TypeVar

from .errors import LeapError
from .options import ModelLoadingOptions
from .runner.contract import ModelRunner

if TYPE_CHECKING:
    from .models.references.resolving import LocalModel

Value = TypeVar("Value")


@dataclass(frozen=True)
class Result(Generic[Value]):
    """Either a value or the LeapError that came instead of it."""

    value: Value | None = None
    error: LeapError | None = None

    @property
    def is_success(self) -> bool:
        return self.error is None

    def get(self) -> Value:
        """The value; raises the error when there is none."""
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


class Leap:
    """The entry point: ``Leap.load("builtin")``, ``Leap.load("model.gguf")``, ``Leap.load("LFM2.5-1.2B-Instruct")``."""

    @staticmethod
    def load(reference: str | PathLike[str], options: ModelLoadingOptions | None = None) -> ModelRunner:
        """Load a model that is on this machine: a file, a manifest, a directory, a name, or ``builtin``.

        Raises LeapModelNotFoundError when nothing on disk answers to the reference (its hint says how to download it)
        and LeapModelLoadingError when the file is damaged or not runnable.
        """
        from .models.references.resolving import resolve_local

        return load_local(resolve_local(fspath(reference)), options or ModelLoadingOptions())

    @staticmethod
    async def load_async(reference: str | PathLike[str], options: ModelLoadingOptions | None = None) -> ModelRunner:
        """``load`` without blocking the event loop."""
        import asyncio  # here, because every start of a command would pay for it

        return await asyncio.to_thread(Leap.load, reference, options)


class LeapClient:
    """The Android SDK's spelling of the same."""

    @staticmethod
    def load_model(path: str | PathLike[str], options: ModelLoadingOptions | None = None) -> ModelRunner:
        """See ``Leap.load``."""
        return Leap.load(path, options)

    @staticmethod
    def load_model_as_result(
        path: str | PathLike[str], options: ModelLoadingOptions | None = None
    ) -> Result[ModelRunner]:
        """See ``Leap.load``; a LeapError is returned instead of raised."""
        return _as_result(lambda: Leap.load(path, options))

    @staticmethod
    async def load_model_async(path: str | PathLike[str], options: ModelLoadingOptions | None = None) -> ModelRunner:
        """See ``Leap.load_async``."""
        return await Leap.load_async(path, options)


def load_local(model: LocalModel, options: ModelLoadingOptions) -> ModelRunner:
    """Load files that were found; a GGUF that is new here is tried in a child process before. Raises
    LeapModelLoadingError."""
    from .in_process.runner import InProcessRunner
    from .models.trial.subject import Subject
    from .models.trial.trying import require_sound

    replaced = options.chat_template or model.chat_template
    require_sound(Subject(model.path), own_template=replaced is not None)
    if options.chat_template is None and model.chat_template is not None:
        options = replace(options, chat_template=model.chat_template)
    return InProcessRunner(model.path, model.model_id, options, defaults=model.sampling, parser_name=model.parser_name)


def _as_result(action: Callable[[], Value]) -> Result[Value]:
    try:
        return Result(value=action())
    except LeapError as error:
        return Result(error=error)
