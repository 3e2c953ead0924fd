"""Jobs that call a function: one of a feature of leap, or one of a plugin."""

from __future__ import annotations

from leap_core.errors import LeapUnavailableError
from leap_core.system.features import parts
from leap_core.system.plugins import JOBS

from ..configuration import JobsConfiguration
from ..table.job import Ending, State
from ..table.requests import FunctionRequest
from ..table.table import Table
from .attempt import Attempt

FEATURES = {"quantize": "leap_core.models.conversion.job:quantize"}


class FunctionAttempt:
    """An attempt as the function sees it, see ``FunctionJob``."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        asked: FunctionRequest = attempt.asked
        self.arguments, self.variables = asked.arguments, asked.environment()
        self.stop = attempt.stop
        self.is_again = attempt.job.attempt > 1
        self.note = attempt.note

    def progress(self, done: int, total: int, unit: str) -> None:
        self._attempt.progress({"done": done, "total": total, "unit": unit})


def call(attempt: Attempt, table: Table, configuration: JobsConfiguration) -> Ending:
    """Call the function; its records are the job's output."""
    name = attempt.asked.function
    function = parts(FEATURES, JOBS, configuration.directories).get(name)
    if function is None:
        raise LeapUnavailableError(f"no installed package has the function {name!r} for jobs")
    records = function()(FunctionAttempt(attempt))
    if records is None:
        return Ending(State.CANCELLED)
    path = records[-1].get("path") if records else None
    return Ending(State.SUCCEEDED, {"records": records, **({} if path is None else {"path": path})})
