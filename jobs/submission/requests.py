"""What a program asks of the job queue, as values: an answer, a transcript, a download, the lines of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.addresses import shown
from leap_core.messages import ChatMessage
from leap_core.options import GenerationOptions

from ..configuration import JobsConfiguration

if TYPE_CHECKING:
    from leap_core.batch.batch_settings import BatchSettings
    from leap_core.functions import LeapFunction

BUILTIN = "builtin"


@dataclass(frozen=True)
class Submitter:
    """Who asks: the data directory's settings, and the environment in which references are read."""

    configuration: JobsConfiguration
    variables: Mapping[str, str]


@dataclass(frozen=True)
class AnswerRequest:
    """An answer to a prompt, or to a conversation. ``loading``: fields of ModelLoadingOptions. ``host``: use the warm
    model where there is one. ``speech``: the file for what the model says aloud, relative to ``cwd``; it is written
    whole or not at all."""

    prompt: str | Sequence[ChatMessage]
    model: str = BUILTIN
    system: str | None = None
    options: GenerationOptions | None = None
    functions: Sequence[LeapFunction] = ()
    loading: Mapping[str, Any] | None = None
    host: bool = True
    cwd: Path = field(default_factory=Path.cwd)
    speech: Path | None = None


@dataclass(frozen=True)
class TranscriptRequest:
    """What is said in a sound of any format, which is kept until the job is removed. ``name``: what messages call it.
    ``output``: the file for the transcript; it is in the job's result in any case. ``longest``: seconds of a piece.
    ``format``: of the transcript, see ``leap_core.transcription``."""

    data: bytes
    name: str
    prompt: str
    longest: float
    max_tokens: int
    format: str
    model: str = BUILTIN
    output: str | None = None
    loading: Mapping[str, Any] | None = None
    host: bool = True
    cwd: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class DownloadRequest:
    """A model for this machine. ``options``: fields of DownloadOptions."""

    model: str
    quantization: str | None = None
    revision: str | None = None
    options: Mapping[str, Any] | None = None
    cwd: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class BatchRequest:
    """Answers to the lines of a file, or to ``rows``, which are kept until the job is removed. ``host``: use the warm
    model where there is one. ``max_workers``: how many workers of a server may share the lines. ``label``: what lists
    of jobs say of it."""

    settings: BatchSettings
    rows: Iterable[bytes] | None = None
    default_model: str | None = None
    host: bool = True
    cwd: Path = field(default_factory=Path.cwd)
    max_workers: int | None = None
    label: str | None = None

    @property
    def source_name(self) -> str:
        """The input, as messages call it."""
        return Path(shown(self.settings.source)).name if self.rows is None else "standard input"
