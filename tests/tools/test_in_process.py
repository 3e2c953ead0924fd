"""Functions that run in this process."""

from __future__ import annotations

import sys
import threading
import time

from leap_core.functions import LeapFunction, LeapFunctionCall
from leap_core.tools.execution import FunctionResult, run_call
from leap_core.tools.policy import ToolPolicy

HERE = ToolPolicy("allow", timeout=5, isolated=False)


def run(function, policy: ToolPolicy = HERE, cancelled: threading.Event | None = None) -> FunctionResult:
    return run_call(LeapFunction.from_callable(function), LeapFunctionCall(function.__name__, {}), policy, cancelled)


def test_an_asynchronous_function_is_run_to_its_result():
    async def later() -> dict[str, int]:
        return {"x": 1}

    assert run(later).text == '{"x": 1}'


def test_a_function_that_ends_the_program_only_fails():
    def leave() -> None:
        sys.exit()

    assert run(leave).error == "it ended the program"


def test_a_function_can_be_interrupted_and_given_up():
    released, cancelled = threading.Event(), threading.Event()

    def wait() -> None:
        released.wait(30)

    threading.Timer(0.1, cancelled.set).start()
    began = time.monotonic()
    assert run(wait, cancelled=cancelled).error == "it was interrupted"
    assert time.monotonic() - began < 4
    late = ToolPolicy("allow", timeout=0.1, isolated=False)
    assert run(wait, late).error == "it took longer than 0.1 s and was given up"
    released.set()
