"""What a Python file of tools offers, and the surroundings in which its functions run."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.tools.execution import run_call
from leap_core.tools.policy import ToolPolicy
from leap_core.tools.sources import functions_of_file

DECORATED = """
def _shouting(function):
    def wrapper(text: str) -> str:
        return function(text) + "!"
    return wrapper

@_shouting
def upper(text):
    return text.upper()

@_shouting
def lower(text):
    return text.lower()

key = lambda *words: words
"""

ENVIRONMENT = """
import os, subprocess, sys

def inherited() -> list:
    code = "import os; print(os.environ.get('PYTHONPATH'), os.environ.get('PYTHONSAFEPATH'))"
    here = [os.environ.get("PYTHONPATH"), os.environ.get("PYTHONSAFEPATH")]
    return [*here, subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()]
"""


def offered(path: Path, content: str) -> dict[str, LeapFunction]:
    path.write_text(content, encoding="utf-8")
    return {function.name: function for function in functions_of_file(path)}


def run(function: LeapFunction, **arguments: object) -> str:
    result = run_call(function, LeapFunctionCall(function.name, arguments), ToolPolicy("allow"))
    assert result.error is None
    return result.text


@pytest.mark.slow
def test_decorated_functions_have_their_names_in_the_file(tmp_path: Path):
    tools = offered(tmp_path / "tools.py", DECORATED)
    assert list(tools) == ["upper", "lower"]
    assert run(tools["upper"], text="Ab") == "AB!" and run(tools["lower"], text="Ab") == "ab!"


@pytest.mark.slow
def test_programs_that_a_tool_starts_inherit_the_users_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tools = offered(tmp_path / "tools.py", ENVIRONMENT)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run(tools["inherited"]) == f'["{tmp_path}", null, "{tmp_path} None"]'


def test_a_file_in_the_current_directory_does_not_shadow_the_childs_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "json.py").write_text("raise SystemExit('shadowed')")
    tools = offered(tmp_path / "tools.py", ENVIRONMENT)
    monkeypatch.chdir(elsewhere)
    assert run(tools["inherited"])
