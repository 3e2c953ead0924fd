"""What a batch and a shard of one do: a few lines each around leap_core.batch. See ``tasks``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from leap_core.batch.answering import Runner, answering
from leap_core.batch.checking import CheckedBatch, check_batch
from leap_core.batch.input.line_index import LineIndex
from leap_core.batch.journal.line_result import LineResult
from leap_core.batch.run import BatchProgress, result_of
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.options import ModelLoadingOptions
from leap_core.conversation.runner import ModelRunner
from leap_core.conversation.wrapping import wrapped
from leap_core.errors import LeapError, LeapJobError
from leap_core.system.addresses import shown

from ..table.batch_rows import BatchLine, BatchRows, StoredResult
from ..table.job import ClaimLostError, Ending, State, error_of
from ..table.requests import BatchRequest, ShardRequest
from .attempt import Attempt
from .tasks import PROGRESS_SECONDS, Load, OpenModel


def batch(attempt: Attempt, asked: BatchRequest, open_model: OpenModel) -> Ending:
    """Answer the lines of a file; those that an earlier attempt answered are not asked again."""
    settings, variables = asked.settings, asked.environment()
    with check_batch(settings, default_model=None, variables=variables, cwd=asked.cwd) as checked:
        load = partial(_opened, attempt, checked, settings, variables, open_model)
        return _run_batch(attempt, asked, checked, load)


class _AttemptStoppedError(Exception):
    """The attempt was to stop while it waited."""


def _run_batch(attempt: Attempt, asked: BatchRequest, checked: CheckedBatch, load: Callable[[], Runner]) -> Ending:
    settings = asked.settings
    for problem in checked.problems:
        attempt.note(f"{problem}; left out")
    last = 0.0
    waits = False

    def wait() -> None:
        nonlocal waits
        if not waits:
            attempt.note(f"waiting for another batch that writes to {shown(settings.output.path)}")
        waits = True
        if attempt.stop.is_set():
            raise _AttemptStoppedError

    def take(progress: BatchProgress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS or progress.finished == progress.total:
            last = now
            attempt.progress(_of_batch(progress))

    journal = None
    try:
        journal = settings.open_journal(wait)
        prepared = checked.open(journal, print, take, run_id=attempt.job.id, while_waiting=wait)
        ended = prepared.run(load, attempt.stop)
    except _AttemptStoppedError:
        return Ending(State.CANCELLED)
    except OSError as error:
        message = f"cannot write {error.filename or shown(settings.output.path)}: {error.strerror or error}"
        raise LeapError(message, hint=f"free disk space, then run: leap jobs retry {attempt.job.id}") from None
    finally:
        if journal is not None:
            journal.close()
    kept = asked.kept_output is not None
    result = {"output": None if kept else settings.output.path, **_of_batch(ended), "skipped": checked.problem_count}
    attempt.progress(_of_batch(ended))
    place = (
        f"leap jobs output {attempt.job.id} prints the results"
        if kept
        else f"the results are in {shown(settings.output.path)}"
    )
    attempt.note(
        f"{ended.succeeded} of {ended.total} lines answered ({ended.reused} of them before), {ended.failed} failed; "
        f"{place}"
    )
    if ended.remark:
        attempt.note(ended.remark)
    if ended.stopped:
        return Ending(State.CANCELLED, result)
    if ended.failed:
        again = f"leap jobs retry {attempt.job.id} tries them again"
        failure = LeapJobError(f"{ended.failed} of {ended.total} lines failed", hint=again)
        return Ending(State.FAILED, result, error_of(failure))
    return Ending(State.SUCCEEDED, result)


def _opened(
    attempt: Attempt,
    checked: CheckedBatch,
    settings: BatchSettings,
    variables: Mapping[str, str],
    open_model: OpenModel,
) -> Runner:
    if settings.escalation.escalate_to is not None:
        from leap_core.batch.escalation import EscalatingRunner, escalation_of

        near = open_model(checked.model, settings.loading_options())
        far = open_model(settings.escalation.escalate_to, ModelLoadingOptions())
        assert isinstance(near, ModelRunner) and isinstance(far, ModelRunner)
        name = settings.escalation.escalate_to

        def on_end(ended: EscalatingRunner) -> None:
            attempt.note(ended.summary(name))

        return wrapped(near, escalate=escalation_of(settings.escalation, far, on_end))
    if settings.cluster.on is None:
        return open_model(checked.model, settings.loading_options())
    from leap_core.batch.checking import open_on_cluster

    cluster: Runner = open_on_cluster(checked, settings.cluster, variables=variables)
    return cluster


def _of_batch(progress: BatchProgress) -> Mapping[str, object]:
    return {
        "done": progress.finished,
        "total": progress.total,
        "unit": "lines",
        "succeeded": progress.succeeded,
        "failed": progress.failed,
        "reused": progress.reused,
        "lines_per_second": round(progress.lines_per_second, 2),
        "tokens_per_second": round(progress.tokens_per_second, 1),
        "eta": progress.eta,
    }


WRITE_SECONDS = 0.25
"""How long a result may wait for others before it is stored."""


class StoredLines(LineIndex):
    """Lines that came from rows, as the threads that answer them read lines."""

    def __init__(self, lines: list[BatchLine], rows: BatchRows, batch: str) -> None:
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

    def __init__(self, attempt: Attempt, rows: BatchRows, batch: str, total: int, answered: int) -> None:
        self._attempt, self._rows, self._batch = attempt, rows, batch
        self._progress = {"done": answered, "total": total, "unit": "lines"}
        self._held: list[StoredResult] = []
        self._written = time.monotonic()

    def add(self, line: BatchLine, result: LineResult) -> None:
        """Store a result a moment later. Raises ClaimLostError."""
        tokens = result.completion_tokens
        self._held.append(StoredResult(line.number, line.key, result.succeeded, tokens, result.to_json()))
        self._progress["done"] = int(str(self._progress["done"])) + 1
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Store what is held back. Raises ClaimLostError."""
        if not self._held:
            return
        try:
            cancelled = self._rows.write(self._attempt.claim, self._batch, self._held, dict(self._progress))
        except ClaimLostError:
            self._attempt.end(lost=True)
            raise
        self._held = []
        self._written = time.monotonic()
        if cancelled:
            self._attempt.end(cancelled=True)


def shard(attempt: Attempt, asked: ShardRequest, rows: BatchRows, load: Load) -> Ending:
    """Answer the lines of the shard that have no result yet."""
    batch, settings = str(attempt.job.parent), asked.settings
    lines = rows.missing(batch, asked.first, asked.last)
    if not lines:
        return Ending(State.SUCCEEDED)
    stored = StoredLines(lines, rows, batch)
    results = ShardResults(attempt, rows, batch, asked.count, asked.count - len(lines))
    with load(asked.model, settings.loading_options()) as runner:
        work = ((n, stored) for n in range(len(lines)))
        answered = 0
        with answering(runner, settings.reader(), settings.limits.concurrency, attempt.stop) as answers:
            for n, custom_id, outcome in answers.answers(work, len(lines)):
                results.add(lines[n], result_of(outcome, lines[n].key, custom_id, runner.model_id))
                answered += 1
        results.flush()
    return Ending(State.SUCCEEDED if answered == len(lines) else State.CANCELLED)
