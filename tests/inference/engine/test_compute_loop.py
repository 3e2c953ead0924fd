"""The loop's end, which tests/end_to_end/test_exit.py shows over whole programs."""

from __future__ import annotations

from leap_core.errors import LeapGenerationError
from leap_core.inference.engine.compute_loop import ComputeLoop


def test_readers_of_closed_work_get_a_silent_end_only_while_the_program_ends():
    loop = ComputeLoop()
    assert isinstance(loop.closed_error("the model is unloaded"), LeapGenerationError)
    loop._end()
    assert isinstance(loop.closed_error("the model is unloaded"), SystemExit)
