"""Functions that run in this process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.conversation.responses import FunctionResult
from leap_core.tools.execution import run_call
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
        released.wait(200)

    threading.Timer(0.1, cancelled.set).start()
    assert run(wait, cancelled=cancelled).error == "it was interrupted"
    late = ToolPolicy("allow", timeout=0.1, isolated=False)
    assert run(wait, late).error == "it took longer than 0.1 s and was given up"
    released.set()


IN_A_CONSOLE = """
from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.tools.execution import run_call
from leap_core.tools.policy import ToolPolicy
from weather_here import get_weather
call = LeapFunctionCall("get_weather", {"city": "Paris"})
result = run_call(LeapFunction.from_callable(get_weather), call, ToolPolicy("allow", isolated=True))
print(result.error or result.text)
"""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("-c", IN_A_CONSOLE), ("-i", "-q")])
def test_a_module_beside_a_console_is_found_in_the_process_of_its_own(tmp_path, arguments):
    (tmp_path / "weather_here.py").write_text("def get_weather(city: str) -> str:\n    return f'sunny in {city}'\n")
    done = subprocess.run(
        [sys.executable, *arguments], input=IN_A_CONSOLE, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert "sunny in Paris" in done.stdout, done.stderr
