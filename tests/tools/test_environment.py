"""What a tool's process gets of this one, and what is said of how it ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.errors import LeapToolError
from leap_core.tools.execution import Command, run_call
from leap_core.tools.policy import ToolPolicy
from leap_core.tools.sources import CommandRegistry


def run(function: LeapFunction) -> str:
    result = run_call(function, LeapFunctionCall(function.name, {}), ToolPolicy(timeout=100, output_limit=2000))
    return result.text if result.error is None else result.error


def test_a_command_gets_no_secrets_of_this_process(monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "LEAP_API_KEY", "PGPASSWORD", "MY_KEY"):
        monkeypatch.setenv(name, "planted")
    registry = CommandRegistry(tmp_path / "tools.json")
    registry.add("all", "env", "", {"type": "object"})
    registry.add("named", "env", "", {"type": "object"}, passes=["MY_KEY"])
    every, named = (run(function) for function in registry.functions())
    assert "planted" not in every and "PATH=" in every and "HOME=" in every
    assert [line for line in named.splitlines() if "planted" in line] == ["MY_KEY=planted"]
    assert "planted" not in (tmp_path / "tools.json").read_text()
    with pytest.raises(LeapToolError, match="no name of a variable"):
        registry.add("x", "env", "", {"type": "object"}, passes=["A=b"])


def test_how_a_command_failed_is_said_beside_what_it_printed():
    """A long output left of standard error's last lines nothing but the word Traceback."""
    script = "import sys; print('x' * 1900); raise ValueError('no such city')"
    failing = LeapFunction("f", "", call=Command((sys.executable, "-c", script)))
    failed = run(failing)
    assert "ValueError: no such city" in failed and len(failed) < 2200


@pytest.mark.slow
def test_a_function_of_the_current_directory_is_found_from_a_session_of_python(tmp_path, monkeypatch):
    (tmp_path / "skies.py").write_text("def sky() -> str:\n    return 'blue'\n")
    program = (
        "import sys; from skies import sky\n"
        "from leap_core.tools.execution import run_call\n"
        "from leap_core import LeapFunction, LeapFunctionCall, ToolPolicy\n"
        "print(run_call(LeapFunction.from_callable(sky), LeapFunctionCall('sky', {}), ToolPolicy('allow')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert "text='blue', error=None" in done.stdout, done.stdout + done.stderr
