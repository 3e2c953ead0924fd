"""What a job of ``leap models quantize`` does: leap_core.conversion, followed in the table."""

from __future__ import annotations

from leap_core.conversion.child import Stopped
from leap_core.conversion.quantize_work import QuantizeWork
from leap_core.conversion.quantizing import Making, Quantized

from ..submission.variables import variables_of
from ..table.job import State
from ..table.job import Ending
from .attempt import Attempt


def quantize(attempt: Attempt) -> Ending:
    """Make all types. An attempt begins anew what another one left, but for types that are whole."""

    def on_step(what: str, unit: str, done: int, total: int) -> None:
        attempt.progress({"done": done, "total": total, "unit": f"{unit} ({what})"})

    def on_made(made: Quantized) -> None:
        attempt.note(f"{made.name}: {made.before} bytes -> {made.after} bytes")
        if made.problem:
            attempt.note(made.problem)

    parameters = attempt.job.parameters
    work = QuantizeWork.from_json(parameters["quantize"])
    making = Making(stop=attempt.stop, variables=variables_of(parameters))
    try:
        records = work.run(making, on_step, on_made, again=attempt.job.attempt > 1)
    except Stopped:
        return Ending(State.CANCELLED)
    return Ending(State.SUCCEEDED, {"models": records, "path": records[-1]["path"]})
