"""Answering the lines of a batch: many at once, each result kept the moment it comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from ..errors import LeapError
from ..openai.errors import error_record
from ..responses import Complete
from ..runner.contract import ModelRunner
from .concurrent_answers import AnsweringThreads
from .journal import Journal
from .lines import Line, RequestReader
from .output_file import Sink
from .results import OPENAI, Result


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
        """Seconds to go, as far as can be told."""
        speed = self.lines_per_second
        return (self.total - self.finished) / speed if speed > 0 else None


@dataclass
class Batch:
    """One batch that can be run: the lines, how to read them, and where the results go.

    ``fingerprint`` names model and loading options; results of other fingerprint are not taken over.
    ``on_result`` hears of every new result, and may raise to end the batch. ``overwrite``: earlier results are given
    up as soon as the model is loaded, unless they are of an earlier attempt of the run ``run_id``.
    """

    lines: Sequence[Line]
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

    def run(self, load: Callable[[], AbstractContextManager[ModelRunner]], stop: threading.Event) -> Progress:
        """Answer what is missing. ``load`` is called only if something is, and left when all is answered.

        Setting ``stop`` ends it early; then the progress says ``stopped``. Raises what ``load`` raises, OSError when a
        result cannot be written, and LeapUnavailableError when the runner is lost or another batch writes to the same
        output. What was finished by then is kept.
        """
        if not self.lines:  # perhaps whoever should have written them failed: no reason to lose anything
            self.sink.leave()
            return Progress(0)
        keys = [line.key(self.fingerprint) for line in self.lines]
        anew = self.overwrite and self.journal is not None and not self.journal.was_begun_by(self.run_id)
        known = {} if self.journal is None or anew else self.journal.results
        kept = {n: known[key] for n, key in enumerate(keys) if key in known and known[key].succeeded}
        named = {line.custom_id for line in self.lines}
        dropped = sum(result.succeeded and result.custom_id not in named for result in known.values())
        progress = Progress(len(keys), succeeded=len(kept), reused=len(kept), dropped=dropped)
        missing = [n for n in range(len(keys)) if n not in kept]
        with ExitStack() as resources:
            runner = resources.enter_context(load()) if missing else None
            if anew and self.journal is not None:
                self.journal.begin(self.run_id)
            writer = _Writer(self.sink, self.format, len(keys), self.ordered)
            resources.callback(self.sink.close)
            writer.open(kept, _order(known, keys, kept))
            if runner is not None:
                progress = self._answer(runner, missing, keys, writer, progress, stop)
            if self.journal is not None:
                self.journal.sync()
        return progress

    def _answer(
        self,
        runner: ModelRunner,
        missing: Sequence[int],
        keys: Sequence[str],
        writer: _Writer,
        progress: Progress,
        stop: threading.Event,
    ) -> Progress:
        threads = AnsweringThreads(runner, self.reader, self.concurrency, stop)
        started = time.monotonic()
        with threads:
            for n, outcome in threads.answers([(n, self.lines[n]) for n in missing]):
                result = self._result(runner, keys[n], self.lines[n].custom_id, outcome)
                if self.journal is not None:
                    self.journal.append(result)
                writer.add(n, result)
                progress = replace(
                    progress,
                    succeeded=progress.succeeded + result.succeeded,
                    failed=progress.failed + (not result.succeeded),
                    completion_tokens=progress.completion_tokens + result.completion_tokens,
                    seconds=time.monotonic() - started,
                )
                self.on_result(progress)
        return replace(progress, stopped=progress.finished < progress.total, seconds=time.monotonic() - started)

    def _result(self, runner: ModelRunner, key: str, custom_id: str, outcome: Complete | LeapError) -> Result:
        created = int(time.time())
        if isinstance(outcome, LeapError):
            return Result(key, custom_id, runner.model_id, created, error=error_record(outcome))
        return Result(key, custom_id, runner.model_id, created, response=outcome.to_json())


def _order(known: dict[str, Result], keys: Sequence[str], kept: dict[int, Result]) -> list[int]:
    """The kept lines in the order in which they were finished."""
    place = {key: n for n, key in enumerate(known)}
    return sorted(kept, key=lambda n: place[keys[n]])


class _Writer:
    """Puts results into the sink: in the lines' order as soon as the ones before are there, or as they come."""

    def __init__(self, sink: Sink, format: str, total: int, ordered: bool) -> None:
        self._sink, self._format, self._total, self._ordered = sink, format, total, ordered
        self._early: dict[int, str] = {}
        self._next = 0

    def open(self, kept: dict[int, Result], finished_order: Sequence[int]) -> None:
        if not self._ordered:
            self._sink.open(kept[n].render(self._format) for n in finished_order)
            return
        self._early = {n: result.render(self._format) for n, result in kept.items()}
        self._sink.open(list(self._ready()))

    def add(self, n: int, result: Result) -> None:
        line = result.render(self._format)
        if not self._ordered:
            self._sink.write(line)
            return
        self._early[n] = line
        for ready in self._ready():
            self._sink.write(ready)

    def _ready(self) -> Iterator[str]:
        while self._next in self._early:
            line = self._early.pop(self._next)
            self._next += 1
            yield line
