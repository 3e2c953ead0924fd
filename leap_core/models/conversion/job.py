"""Quantizing in the background: a function of jobs, see ``jobs/worker/functions.py``."""

from __future__ import annotations

from ...schemas.json_values import JsonObject
from ...system.plugins import FunctionJob
from .conversion_child import Stopped
from .quantizing import Making, Quantized, QuantizeWork


def quantize(job: FunctionJob) -> list[JsonObject] | None:
    """Make all types. An attempt begins anew what another one left, but for types that are whole."""

    def on_step(what: str, unit: str, done: int, total: int) -> None:
        job.progress(done, total, f"{unit} ({what})")

    def on_made(made: Quantized) -> None:
        job.note(f"{made.name}: {made.before} bytes -> {made.after} bytes")
        if made.problem:
            job.note(made.problem)

    making = Making(stop=job.stop, variables=job.variables)
    try:
        return QuantizeWork.from_json(job.arguments).run(making, on_step, on_made, again=job.is_again)
    except Stopped:
        return None
