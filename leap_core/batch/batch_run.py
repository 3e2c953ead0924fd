"""Answering the lines of a batch: many at once, each result kept the moment it comes."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace

from ..errors import LeapError
from ..openai.errors import error_record
from ..runner.generator import require_voice
from .answering import Answer, Runner, answering
from .definition import BatchDefinition, Progress
from .journal.journal_index import NOWHERE
from .journal.line_result import Embedded, Result
from .output.spoken_lines import SpokenLines
from .result_writer import ResultWriter


class Batch(BatchDefinition):
    """One batch that can be run."""

    def run(self, load: Callable[[], AbstractContextManager[Runner]], stop: threading.Event) -> Progress:
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
            return Progress(0)
        anew = self.overwrite and self.journal is not None and not self.journal.was_begun_by(self.run_id)
        places, dropped = self._kept(anew)
        kept = total - places.count(NOWHERE)
        progress = Progress(total, succeeded=kept, reused=kept, dropped=dropped)
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

    def _kept(self, anew: bool) -> tuple[array[int], int]:
        """Where the journal has the result of each line (-1: nowhere), and how many of its results are of no line."""
        if self.journal is None or anew or not len(self.journal.index):
            return array("q", [NOWHERE]) * len(self.lines), 0
        keys = b"".join(bytes.fromhex(self.key(n)) for n in range(len(self.lines)))
        return self.journal.index.places_of(keys), self.journal.index.count_without(self.lines.ids)

    def _answer(
        self,
        runner: Runner,
        places: array[int],
        writer: ResultWriter,
        progress: Progress,
        stop: threading.Event,
    ) -> Progress:
        started = time.monotonic()
        missing = places.count(NOWHERE)
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
                self.on_result(progress)
        return replace(progress, stopped=progress.finished < progress.total, seconds=time.monotonic() - started)

    def _result(self, runner: Runner, key: str, custom_id: str, outcome: Answer | LeapError) -> Result:
        speech = None
        if isinstance(outcome, list):
            first, speech = self.spoken.take(outcome[0], custom_id, key)
            others = [SpokenLines().take(answer, custom_id, key)[0] for answer in outcome[1:]]  # the first is heard
            outcome = [first, *others]
        return replace(result_of(outcome, key, custom_id, runner.model_id), speech=speech)


def result_of(outcome: Answer | LeapError, key: str, custom_id: str, model: str) -> Result:
    """What came of a line, as it is kept. ``key``: see ``key_of``; ``model``: the name of what answered."""
    head = (key, custom_id, model, int(time.time()))
    if isinstance(outcome, LeapError):
        return Result(*head, error=error_record(outcome))
    if isinstance(outcome, Embedded):
        return Result(*head, embedding=Result.embedding_of(outcome))
    return Result.of_answers(head, outcome)
