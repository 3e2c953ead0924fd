"""Answering the lines of a batch: what it consists of, the order of its results, and its parts merged."""

from __future__ import annotations

import json
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from ..conversation.generator import require_voice
from ..errors import LeapError
from ..protocols.openai.replies import error_record
from ..system.dataclass import dataclass
from .answering import Answer, Pace, Runner, answering
from .input.line_index import LineIndex, LineProblem
from .input.lines import RequestReader, key_of, parse_line
from .input.rows import DELIMITERS
from .journal.journal import NOWHERE, Journal, JournalView
from .journal.line_result import NPY, OPENAI, PLAIN, TEXT, Embedded, LineResult, Row, table_header
from .output.file_formats import SpokenLines
from .output.output_file import Sink
from .settings import Part


@dataclass(frozen=True)
class BatchProgress:
    """How far a batch is; times in seconds. ``reused`` results are from earlier runs, and among the ``succeeded``;
    ``dropped`` ones are from earlier runs of lines that are there no more, and ``outdated`` ones of lines or options
    that have changed since; they count nowhere else."""

    total: int
    succeeded: int = 0
    failed: int = 0
    reused: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    stopped: bool = False
    dropped: int = 0
    outdated: int = 0
    other_engine: int = 0

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed

    @property
    def remark(self) -> str | None:
        """What else there is to say."""
        remarks = []
        if self.outdated:
            results = "1 earlier result was" if self.outdated == 1 else f"{self.outdated} earlier results were"
            remarks.append(f"{results} made with other options, model or lines: answered anew, and kept in the journal")
        if self.dropped:
            results = "1 earlier result belongs" if self.dropped == 1 else f"{self.dropped} earlier results belong"
            remarks.append(f"{results} to no line any more: left out of the output, and kept in the journal")
        if self.other_engine:
            results = "1 earlier result is" if self.other_engine == 1 else f"{self.other_engine} earlier results are"
            remarks.append(f"{results} of another engine, which leap.stats.engine of the line names")
        return "; ".join(remarks) or None

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

    ``fingerprint`` names model and loading options; results of another one are not taken over. ``on_result`` is called
    with every new result, and may raise to end the batch. ``overwrite``: earlier results are given up as soon as the
    model is loaded, unless they are of an earlier attempt of the run ``run_id``. ``failures`` takes the failed lines,
    which are then left out of ``sink``. ``header`` is the first line of the output. ``problems`` of lines that are left
    out are written to ``failures``.
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
    on_result: Callable[[BatchProgress], object] = lambda _progress: None
    failures: Sink | None = None
    spoken: SpokenLines = SpokenLines()
    header: str | None = None
    problems: Sequence[LineProblem] = ()
    pace: Pace | None = None

    def key(self, n: int) -> str:
        """The name of what a line asks of this model."""
        return key_of(self.lines.digest(n), self.fingerprint)


class ResultWriter:
    """Puts the results of a batch into its sinks. ``places``: where the journal has each line's result, -1 nowhere.

    Results whose turn has not come stay in the journal, or in memory where there is none.
    """

    def __init__(self, batch: BatchDefinition, places: array[int]) -> None:
        self._batch, self._places = batch, places
        self._early: dict[int, LineResult] = {}
        self._next = 0

    def open(self) -> None:
        """Write what is known already."""
        self._batch.sink.open(self._known)
        if self._batch.failures is not None:
            self._batch.failures.open(self._problems)

    def write_known(self) -> None:
        """Write what is known in the order of the lines, and pass over the others. ``add`` is not called then."""
        self._batch.sink.open(lambda: chain(self._header(), self._each(self._line)))
        if self._batch.failures is not None:
            self._batch.failures.open(lambda: chain(self._problems(), self._each(self._failure)))

    def write_problems(self) -> None:
        """Write the file of failed lines alone, where no line can be used."""
        if self._batch.failures is not None and self._batch.problems:
            self._batch.failures.open(self._problems)

    def _problems(self) -> Iterator[str]:
        """The lines that are left out, for the file of failed lines."""
        for problem in self._batch.problems:
            line: dict[str, object] = {"custom_id": None}  # it may be what cannot be read
            if self._batch.format == OPENAI:
                line["response"] = None
            line |= {"error": {"code": "invalid_line", "message": problem.message}, "line": problem.number}
            yield json.dumps(line, ensure_ascii=False)

    def _each(self, written: Callable[[int, LineResult], str | None]) -> Iterator[str]:
        assert self._batch.journal is not None
        for n, place in enumerate(self._places):
            if place != NOWHERE and (line := written(n, self._batch.journal.result_at(place))) is not None:
                yield line

    def add(self, n: int, result: LineResult, place: int) -> None:
        """Write the result of a line, or keep it until its turn."""
        if not self._batch.ordered:
            self._write(n, result)
            return
        if place == NOWHERE:
            self._early[n] = result
        else:
            self._places[n] = place
        if n != self._next:
            return
        self._write(n, result)
        self._next += 1
        while (ready := self._ready()) is not None:
            self._write(self._next, ready)
            self._next += 1

    def _known(self) -> Iterator[str]:
        batch = self._batch
        yield from self._header()
        if batch.journal is None:
            return
        if batch.ordered:
            self._next = 0
            while (result := self._ready()) is not None:
                yield self._rendered(self._next, result)
                self._next += 1
            return
        for place, n in sorted((place, n) for n, place in enumerate(self._places) if place != NOWHERE):
            yield self._rendered(n, batch.journal.result_at(place))

    def _header(self) -> Iterator[str]:
        batch = self._batch
        if batch.format in DELIMITERS:
            yield table_header(batch.format, self._columns)
        if batch.header is not None:
            yield batch.header

    def _ready(self) -> LineResult | None:
        """The result of the next line, if there is one yet."""
        if self._next >= len(self._places):
            return None
        place = self._places[self._next]
        if place == NOWHERE or self._batch.journal is None:
            return self._early.pop(self._next, None)
        return self._batch.journal.result_at(place)

    def _write(self, n: int, result: LineResult) -> None:
        self._early.pop(n, None)
        line, failure = self._line(n, result), self._failure(n, result)
        if line is not None:
            self._batch.sink.write(line)
        if failure is not None and self._batch.failures is not None:
            self._batch.failures.write(failure)

    def _line(self, n: int, result: LineResult) -> str | None:
        """What the output gets; None where that is nothing."""
        batch = self._batch
        if result.succeeded or batch.format == NPY:
            return self._rendered(n, result)
        in_output = batch.failures is None and batch.format != TEXT  # there is no text that could say so
        return self._rendered(n, result) if in_output else None

    def _failure(self, n: int, result: LineResult) -> str | None:
        """What the file of failed lines gets; None where that is nothing."""
        batch = self._batch
        if result.succeeded or batch.failures is None:
            return None
        line = json.loads(result.render(OPENAI if batch.format == OPENAI else PLAIN, self._row(n)))
        return json.dumps({**line, "line": batch.lines.number(n)}, ensure_ascii=False)

    def _rendered(self, n: int, result: LineResult) -> str:
        return result.render(self._batch.format, self._row(n))

    def _row(self, n: int) -> Row:
        """What is carried over from a line."""
        batch = self._batch
        if not batch.reader.keep_fields:
            return Row()
        fields = batch.reader.own_fields(parse_line(batch.lines.raw(n)))
        return Row(fields, self._columns)

    @cached_property
    def _columns(self) -> Sequence[str]:
        """Those of a table; of JSON lines whose fields go into one, every field that any line has."""
        batch = self._batch
        columns = batch.lines.rows.columns
        if columns or batch.format not in DELIMITERS or not batch.reader.keep_fields:
            return columns
        names: dict[str, None] = {"custom_id": None}
        for n in range(len(batch.lines)):
            names |= dict.fromkeys(batch.reader.own_fields(parse_line(batch.lines.raw(n))))
        return list(names)


class Batch(BatchDefinition):
    """One batch that can be run."""

    def run(self, load: Callable[[], AbstractContextManager[Runner]], stop: threading.Event) -> BatchProgress:
        """Answer what is missing. ``load`` is called only if something is, and left when all is answered.

        Setting ``stop`` ends it early; then the progress says ``stopped``. Raises what ``load`` raises, OSError when a
        result cannot be written, and LeapUnavailableError when the runner is lost or another batch writes to the same
        output. What was finished by then is kept.
        """
        total = len(self.lines)
        if not total:  # perhaps the program that should have written them failed: no reason to lose anything
            self.sink.leave()
            if self.failures is not None:
                with closing(self.failures):
                    ResultWriter(self, array("q")).write_problems()
            return BatchProgress(0)
        anew = self.overwrite and self.journal is not None and not self.journal.was_begun_by(self.run_id)
        places, dropped, outdated = self._kept(anew)
        kept = total - places.count(NOWHERE)
        progress = BatchProgress(total, succeeded=kept, reused=kept, dropped=dropped, outdated=outdated)
        with ExitStack() as resources:
            runner = resources.enter_context(load()) if kept < total else None
            if runner is not None and self.spoken.directory is not None:
                require_voice(runner)
            if anew and self.journal is not None:
                self.journal.begin(self.run_id)
            for sink in filter(None, (self.sink, self.failures)):
                resources.callback(sink.close)
            writer = ResultWriter(self, places)
            writer.open()
            if runner is not None:
                progress = self._answer(runner, places, writer, progress, stop)
            if self.journal is not None:
                self.journal.sync()
        return progress

    def _kept(self, anew: bool) -> tuple[array[int], int, int]:
        """Where the journal has the result of each line (-1: nowhere), how many of its results are of no line, and how
        many of lines or options that have changed."""
        if self.journal is None or anew or not len(self.journal.index):
            return array("q", [NOWHERE]) * len(self.lines), 0, 0
        keys = b"".join(bytes.fromhex(self.key(n)) for n in range(len(self.lines)))
        index, ids = self.journal.index, self.lines.ids
        places = index.places_of(keys)
        return places, index.count_without(ids), index.count_outdated(keys, ids) if NOWHERE in places else 0

    def _answer(
        self, runner: Runner, places: array[int], writer: ResultWriter, progress: BatchProgress, stop: threading.Event
    ) -> BatchProgress:
        started = time.monotonic()
        missing, before = places.count(NOWHERE), places[:]
        work = ((n, self.lines) for n in range(len(places)) if places[n] == NOWHERE)
        with answering(runner, self.reader, self.concurrency, stop, self.pace) as answers:
            for n, custom_id, outcome in answers.answers(work, missing):
                result = self._result(runner, self.key(n), custom_id, outcome)
                place = NOWHERE if self.journal is None else self.journal.append(result)
                writer.add(n, result, place)
                progress = replace(
                    progress,
                    succeeded=progress.succeeded + result.succeeded,
                    failed=progress.failed + (not result.succeeded),
                    completion_tokens=progress.completion_tokens + result.completion_tokens,
                    seconds=time.monotonic() - started,
                )
                if progress.finished == progress.reused + 1 and progress.reused:
                    progress = replace(progress, other_engine=self._of_other_engines(before, result.engine))
                self.on_result(progress)
        return replace(progress, stopped=progress.finished < progress.total, seconds=time.monotonic() - started)

    def _of_other_engines(self, places: array[int], engine: str | None) -> int:
        """How many of the results at these places are not of this engine; none where the newest is."""
        assert self.journal is not None
        newest = self.journal.result_at(max(places))
        if newest.engine == engine or newest.response is None:
            return 0
        return sum(self.journal.result_at(place).engine != engine for place in places if place != NOWHERE)

    def _result(self, runner: Runner, key: str, custom_id: str, outcome: Answer | LeapError) -> LineResult:
        speech = None
        if isinstance(outcome, list):
            first, speech = self.spoken.take(outcome[0], custom_id, key)
            others = [SpokenLines().take(answer, custom_id, key)[0] for answer in outcome[1:]]  # the first is heard
            outcome = [first, *others]
        return replace(result_of(outcome, key, custom_id, runner.model_id), speech=speech)


def result_of(outcome: Answer | LeapError, key: str, custom_id: str, model: str) -> LineResult:
    """What came of a line, as it is kept. ``key``: see ``key_of``; ``model``: the name of what answered."""
    head = (key, custom_id, model, int(time.time()))
    if isinstance(outcome, LeapError):
        return LineResult(*head, error=error_record(outcome))
    if isinstance(outcome, Embedded):
        return LineResult(*head, embedding=LineResult.embedding_of(outcome))
    return LineResult.of_answers(head, outcome)


@dataclass(frozen=True)
class Merged:
    """How many lines have which result. ``missing``: the numbers of the lines that have none, by their part."""

    progress: BatchProgress
    missing: dict[int, list[int]]


def merge(batch: BatchDefinition, journals: Sequence[Path]) -> Merged:
    """Write the output of a batch whose parts have these journals. A part that never began has none, and one that is
    still at work continues. The results go into the batch's own journal: merging again, or running the batch, continues
    from there."""
    if not len(batch.lines):
        batch.sink.leave()
        return Merged(BatchProgress(0), {})
    journal = batch.journal
    assert journal is not None, "only a file can be merged into"
    if batch.overwrite:
        journal.begin()
    lines_of_parts: list[list[int]] = [[] for _ in journals]
    for n in range(len(batch.lines)):
        lines_of_parts[Part.of_line(batch.lines.digest(n), len(journals)) - 1].append(n)
    places = array("q", [NOWHERE]) * len(batch.lines)
    succeeded = 0
    for lines, path in zip(lines_of_parts, journals, strict=True):
        succeeded += _take_over(batch, journal, path, lines, places)
    journal.sync()
    with ExitStack() as resources:
        for sink in filter(None, (batch.sink, batch.failures)):
            resources.callback(sink.close)
        ResultWriter(batch, places).write_known()
    missing = {
        number: numbers
        for number, lines in enumerate(lines_of_parts, start=1)
        if (numbers := [batch.lines.number(n) for n in lines if places[n] == NOWHERE])
    }
    failed = len(places) - places.count(NOWHERE) - succeeded
    return Merged(BatchProgress(len(places), succeeded=succeeded, failed=failed), missing)


def _take_over(batch: BatchDefinition, journal: Journal, path: Path, lines: list[int], places: array[int]) -> int:
    """Note where the results of these lines are, once those of the part's journal are in the batch's own; how many
    of them succeeded."""
    keys = b"".join(bytes.fromhex(batch.key(n)) for n in lines)
    here, here_any = journal.index.places_of(keys), journal.index.places_of(keys, also_failed=True)
    with ExitStack() as resources:
        there = there_any = array("q", [NOWHERE]) * len(lines)
        if path.exists():
            part = resources.enter_context(closing(JournalView(path)))
            there, there_any = part.index.places_of(keys), part.index.places_of(keys, also_failed=True)
        succeeded = 0
        for at, n in enumerate(lines):
            succeeded += here[at] != NOWHERE or there[at] != NOWHERE
            if here[at] != NOWHERE:
                places[n] = here[at]
            elif there[at] != NOWHERE or (here_any[at] == NOWHERE and there_any[at] != NOWHERE):
                places[n] = journal.append(part.result_at(there_any[at] if there[at] == NOWHERE else there[at]))
            else:
                places[n] = here_any[at]
    return succeeded
