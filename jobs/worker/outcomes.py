"""What follows from how an attempt ended: the end of the job, or another attempt a little later."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from leap_core import errors
from leap_core.schemas.json_values import JsonObject

from ..table.claims import LONGEST_BACK_OFF_SECONDS
from ..table.job import Claim, ClaimLostError, Ending, Job, State, error_of
from ..table.table import Table
from ..worker_log import log_traceback
from .attempt import Attempt
from .model_pool import ProcessEnd

FIRST_BACK_OFF_SECONDS = 1.0
MOST_INTERRUPTIONS = 100
"""Times that a job may be ended from outside before it is taken for the cause."""
MOST_DEATHS = 3
"""Times in a row that its process may be killed, or hang, before it puts anything out."""
OUT_OF_MEMORY_HINT = (
    "was it out of memory? A smaller model or context, or fewer jobs at once (jobs.generate, …), needs less"
)

WORTH_ANOTHER_TRY = (errors.LeapUnavailableError, errors.LeapModelDownloadError, errors.LeapGenerationError)
NEVER_BETTER = (
    errors.LeapConstraintError,
    errors.LeapGenerationPromptExceedContextLengthError,
    errors.LeapUnsupportedMediaError,
)
FROM_OUTSIDE: set[int] = set()
if sys.platform != "win32":
    FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def run_attempt(attempt: Attempt, table: Table, task: Callable[[Attempt], Ending]) -> None:
    """Run a task to its end, and settle what follows. Nothing is raised: what went wrong is the job's error."""
    try:
        try:
            try:
                ending = task(attempt)
            finally:
                attempt.flush()
        except ClaimLostError:
            return
        except errors.LeapError as error:
            if attempt.cancelled:
                ending = Ending(State.CANCELLED, attempt.result)
            elif attempt.stop.is_set():
                ending = Ending(State.CANCELLED)  # the process ends: see below
            else:
                _failed(table, attempt.job, attempt.claim, error, attempt.result)
                return
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            value = {"type": "OSError", "message": f"{where}{error.strerror or error}"}
            ending = Ending(State.FAILED, attempt.result, value)
        if ending.state is State.CANCELLED and attempt.stop.is_set() and not attempt.cancelled:
            interrupted(table, attempt.job, attempt.claim, "the worker was stopped")
            return
        if ending.state is State.QUEUED:
            table.requeue(attempt.claim, delay=ending.delay, error=ending.error, failed=True)
        else:
            table.finish(attempt.claim, ending)
    except ClaimLostError:
        return
    except Exception as error:
        log_traceback()
        value = {"type": "unexpected", "message": f"{type(error).__name__}: {error}", "hint": "see worker.log"}
        with suppress(Exception):  # the table itself may be what is broken: then the worker finds the row later
            table.finish(attempt.claim, Ending(State.FAILED, attempt.result, value))


def died(table: Table, job: Job, claim: Claim, end: ProcessEnd) -> None:
    """The process that worked on this attempt has ended without saying how the attempt ended."""
    if not end.hung and not (end.code < 0 and -end.code in FROM_OUTSIDE):
        how = f"was ended by {_signal_name(-end.code)}" if end.code < 0 else f"ended with code {end.code}"
        _failed(table, job, claim, errors.LeapGenerationError(f"the process that ran the model {how}"))
        return
    how = "gave no sign of life" if end.hung else f"was ended by {_signal_name(-end.code)}"
    current = table.get(job.id)
    silent = current is not None and current.progress is None
    with suppress(ClaimLostError):
        if current is not None and current.cancel_requested:
            table.finish(claim, Ending(State.CANCELLED))
        elif silent and job.deaths + 1 >= MOST_DEATHS:
            message = f"the process that ran the model {how} before it put anything out, {MOST_DEATHS} times in a row"
            error = {"type": "LeapJobError", "message": message, "hint": OUT_OF_MEMORY_HINT}
            table.finish(claim, Ending(State.FAILED, error=error))
        elif job.interruptions >= MOST_INTERRUPTIONS:
            _give_up(table, claim, f"the process that ran the model {how}", job.interruptions)
        else:
            delay = back_off(job.deaths if silent else job.interruptions)
            error = {"type": "LeapJobError", "message": f"the process that ran the model {how}"}
            table.requeue(claim, delay=delay, error=error, interrupted=True, died=silent)


def interrupted(table: Table, job: Job, claim: Claim, reason: str) -> None:
    """Not the job's fault: another attempt at once, unless this happens all the time."""
    current = table.get(job.id)
    with suppress(ClaimLostError):
        if current is not None and current.cancel_requested:
            table.finish(claim, Ending(State.CANCELLED))
        elif job.interruptions >= MOST_INTERRUPTIONS:
            _give_up(table, claim, reason, job.interruptions)
        else:
            table.requeue(claim, interrupted=True)


def _give_up(table: Table, claim: Claim, reason: str, interruptions: int) -> None:
    message = f"{reason}, and so {interruptions + 1} times"
    table.finish(claim, Ending(State.FAILED, error={"type": "LeapJobError", "message": message}))


def _failed(table: Table, job: Job, claim: Claim, error: errors.LeapError, result: JsonObject | None = None) -> None:
    value: JsonObject = error_of(error)
    current = table.get(job.id)
    progress = (current.progress if current else None) or {}
    with suppress(ClaimLostError):
        if current is not None and current.cancel_requested:
            table.finish(claim, Ending(State.CANCELLED, result))
            return
        progressed = job.kind == "batch" and progress.get("done", 0) > progress.get("reused", 0)
        failures = 0 if progressed else job.failures
        may_help = isinstance(error, WORTH_ANOTHER_TRY) and not isinstance(error, NEVER_BETTER)
        if may_help and failures < job.retries:
            table.requeue(claim, delay=back_off(failures), error=value, failed=True, progressed=progressed)
        else:
            table.finish(claim, Ending(State.FAILED, result, value))


def back_off(failures: int) -> float:
    """Seconds to wait after so many earlier failures: 1, 2, 4 and so on to a minute."""
    return float(min(LONGEST_BACK_OFF_SECONDS, FIRST_BACK_OFF_SECONDS * 2 ** min(failures, 10)))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
