"""Answering a stretch of the lines of a batch whose lines and results are rows, which several workers share."""

from __future__ import annotations

import time

from leap_core.batch.answering import answering
from leap_core.batch.batch_run import result_of
from leap_core.batch.batch_settings import BatchSettings
from leap_core.batch.input.line_index import LineIndex
from leap_core.batch.journal.line_result import Result

from ..table.batch_rows import BatchLine, StoredResult
from ..table.job import Ending, Fenced, State
from .attempt import Attempt
from .tasks import Load
from .work_table import WorkRows

WRITE_SECONDS = 0.25
"""How long a result may wait for others before it is stored."""


class StoredLines(LineIndex):
    """Lines that came from rows, as the threads that answer them read lines."""

    def __init__(self, lines: list[BatchLine], rows: WorkRows, batch: str) -> None:
        self._lines = lines  # there is no file, and so nothing of what the base class holds
        self._rows, self._batch = rows, batch

    def __len__(self) -> int:
        return len(self._lines)

    def raw(self, n: int) -> bytes:
        raw = self._lines[n].raw
        return self._rows.raw(self._batch, self._lines[n].number) if raw is None else raw

    def number(self, n: int) -> int:
        return self._lines[n].number

    def digest(self, n: int) -> str:
        return self._lines[n].digest


class ShardResults:
    """Stores the results of one shard, several in one transaction."""

    def __init__(self, attempt: Attempt, rows: WorkRows, batch: str, total: int, answered: int) -> None:
        self._attempt, self._rows, self._batch = attempt, rows, batch
        self._progress = {"done": answered, "total": total, "unit": "lines"}
        self._held: list[StoredResult] = []
        self._written = time.monotonic()

    def add(self, line: BatchLine, result: Result) -> None:
        """Store a result a moment later. Raises Fenced."""
        tokens = result.completion_tokens
        self._held.append(StoredResult(line.number, line.key, result.succeeded, tokens, result.to_json()))
        self._progress["done"] = int(str(self._progress["done"])) + 1
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Store what is held back. Raises Fenced."""
        if not self._held:
            return
        try:
            cancelled = self._rows.write(self._attempt.claim, self._batch, self._held, dict(self._progress))
        except Fenced:
            self._attempt.end(lost=True)
            raise
        self._held = []
        self._written = time.monotonic()
        if cancelled:
            self._attempt.end(cancelled=True)


def shard(attempt: Attempt, rows: WorkRows, load: Load) -> Ending:
    """Answer the lines of the shard that have no result yet."""
    parameters = attempt.job.parameters
    batch = str(attempt.job.parent)
    first, last = int(parameters["first"]), int(parameters["last"])
    settings = BatchSettings.from_json({**parameters["batch"], "source": "-"})
    lines = rows.missing(batch, first, last)
    if not lines:
        return Ending(State.SUCCEEDED)
    stored = StoredLines(lines, rows, batch)
    results = ShardResults(attempt, rows, batch, int(parameters["count"]), int(parameters["count"]) - len(lines))
    with load(parameters["model"], settings.loading_options()) as runner:
        work = ((n, stored) for n in range(len(lines)))
        answered = 0
        with answering(runner, settings.reader(), settings.concurrency, attempt.stop) as answers:
            for n, custom_id, outcome in answers.answers(work, len(lines)):
                results.add(lines[n], result_of(outcome, lines[n].key, custom_id, runner.model_id))
                answered += 1
        results.flush()
    return Ending(State.SUCCEEDED if answered == len(lines) else State.CANCELLED)
