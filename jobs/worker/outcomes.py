"""What follows from how an attempt ended: the end of the job, or another attempt a little later."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

from leap_core import errors

from ..table.job import Job, JsonObject, State
from ..table.table import Claim, Ending, Fenced, Table
from .attempt import Attempt
from .log import log_traceback
from .tasks import error_of

FIRST_BACK_OFF_SECONDS, LONGEST_BACK_OFF_SECONDS = 1.0, 60.0
MOST_INTERRUPTIONS = 100
"""Times that a job may be killed from outside before it is taken for the cause."""

WORTH_ANOTHER_TRY = (errors.LeapUnavailableError, errors.LeapModelDownloadError, errors.LeapGenerationError)
NEVER_BETTER = (
    errors.LeapConstraintError,
    errors.LeapGenerationPromptExceedContextLengthError,
    errors.LeapUnsupportedMediaError,
)
FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP} if hasattr(signal, "SIGKILL") else set()


def run_attempt(attempt: Attempt, table: Table, task: Callable[[Attempt], Ending]) -> None:
    """Run a task to its end, and settle what follows. Nothing is raised: what went wrong is the job's error."""
    try:
        try:
            try:
                ending = task(attempt)
            finally:
                attempt.flush()
        except Fenced:
            return
        except errors.LeapError as error:
            if attempt.cancelled:
                ending = Ending(State.CANCELLED)
            elif attempt.stop.is_set():
                ending = Ending(State.CANCELLED)  # the process ends: see below
            else:
                _failed(table, attempt.job, attempt.claim, error)
                return
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            ending = Ending(State.FAILED, error={"type": "OSError", "message": f"{where}{error.strerror or error}"})
        if ending.state is State.CANCELLED and attempt.stop.is_set() and not attempt.cancelled:
            interrupted(table, attempt.job, attempt.claim, "the worker was stopped")
            return
        table.finish(attempt.claim, ending)
    except Fenced:
        return
    except Exception as error:
        log_traceback()
        value = {"type": "unexpected", "message": f"{type(error).__name__}: {error}", "hint": "see worker.log"}
        with suppress(Exception):  # the table itself may be what is broken: then the worker finds the row later
            table.finish(attempt.claim, Ending(State.FAILED, error=value))


def died(table: Table, job: Job, claim: Claim, code: int) -> None:
    """The process that worked on this attempt has ended with this code, without saying how the attempt ended."""
    if code < 0 and -code in FROM_OUTSIDE:
        interrupted(table, job, claim, f"its process was ended by {signal.Signals(-code).name}")
        return
    how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
    _failed(table, job, claim, errors.LeapGenerationError(f"the process that ran the model {how}"))


def interrupted(table: Table, job: Job, claim: Claim, reason: str) -> None:
    """Not the job's fault: another attempt at once, unless this happens all the time."""
    current = table.get(job.id)
    with suppress(Fenced):
        if current is not None and current.cancel_requested:
            table.finish(claim, Ending(State.CANCELLED))
        elif job.interruptions >= MOST_INTERRUPTIONS:
            message = f"{reason}, for the {job.interruptions + 1}th time"
            table.finish(claim, Ending(State.FAILED, error={"type": "LeapJobError", "message": message}))
        else:
            table.requeue(claim, run_after=0.0, error=None, failed=False)


def _failed(table: Table, job: Job, claim: Claim, error: errors.LeapError) -> None:
    value: JsonObject = error_of(error)
    current = table.get(job.id)
    progress = (current.progress if current else None) or {}
    with suppress(Fenced):
        if current is not None and current.cancel_requested:
            table.finish(claim, Ending(State.CANCELLED))
            return
        progressed = job.kind == "batch" and progress.get("done", 0) > progress.get("reused", 0)
        failures = 0 if progressed else job.failures
        may_help = isinstance(error, WORTH_ANOTHER_TRY) and not isinstance(error, NEVER_BETTER)
        if may_help and failures < job.retries:
            table.requeue(
                claim, run_after=time.time() + back_off(failures), error=value, failed=True, progressed=progressed
            )
        else:
            table.finish(claim, Ending(State.FAILED, error=value))


def back_off(failures: int) -> float:
    """Seconds to wait after so many earlier failures: 1, 2, 4 and so on to a minute."""
    return float(min(LONGEST_BACK_OFF_SECONDS, FIRST_BACK_OFF_SECONDS * 2 ** min(failures, 10)))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
