"""What a batch consists of, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .input.line_digests import key_of
from .input.line_index import LineIndex, Problem
from .input.lines import RequestReader
from .journal.journal import Journal
from .journal.line_result import OPENAI
from .output.output_file import Sink
from .output.spoken_lines import SpokenLines
from .pace import Pace


@dataclass(frozen=True)
class Progress:
    """How far a batch is; times in seconds. ``reused`` results are from earlier runs, and among the ``succeeded``;
    ``dropped`` ones are from earlier runs of lines that are there no more, and count nowhere else."""

    total: int
    succeeded: int = 0
    failed: int = 0
    reused: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    stopped: bool = False
    dropped: int = 0

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed

    @property
    def remark(self) -> str | None:
        """What else there is to say."""
        if not self.dropped:
            return None
        results = "1 earlier result belongs" if self.dropped == 1 else f"{self.dropped} earlier results belong"
        return f"{results} to no line any more: left out of the output, and kept in the journal"

    @property
    def lines_per_second(self) -> float:
        return (self.finished - self.reused) / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.completion_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds to go, as far as that is known."""
        speed = self.lines_per_second
        return (self.total - self.finished) / speed if speed > 0 else None


@dataclass
class BatchDefinition:
    """A batch: the lines, how to read them, and where the results go.

    ``fingerprint`` names model and loading options; results of another one are not taken over. ``on_result`` hears of
    every new result, and may raise to end the batch. ``overwrite``: earlier results are given up as soon as the model
    is loaded, unless they are of an earlier attempt of the run ``run_id``. ``failures`` takes the failed lines, which
    are then left out of ``sink``. ``header`` is the first line of the output. ``problems`` of lines that are left out
    are written to ``failures``.
    """

    lines: LineIndex
    reader: RequestReader
    fingerprint: str
    sink: Sink
    journal: Journal | None = None
    format: str = OPENAI
    ordered: bool = True
    concurrency: int = 16
    overwrite: bool = False
    run_id: str | None = None
    on_result: Callable[[Progress], object] = lambda _progress: None
    failures: Sink | None = None
    spoken: SpokenLines = SpokenLines()
    header: str | None = None
    problems: Sequence[Problem] = ()
    pace: Pace | None = None

    def key(self, n: int) -> str:
        """The name of what a line asks of this model."""
        return key_of(self.lines.digest(n), self.fingerprint)
