"""Tools called by the built-in model, as a shell sees it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from .conftest import LEAP, Program

WEATHER = '''
def get_weather(city: str) -> str:
    """Get the current weather in a city.

    Args:
        city: The name of the city
    """
    with open("called.txt", "a") as file:
        file.write(city + "\\n")
    return '{"city": "%s", "temperature": 21, "condition": "sunny"}' % city
'''
PARIS = "What is the weather in Paris?"
GREEDY = ("-m", "builtin", "--temperature", "0", "--tools-file", "weather.py")


@pytest.fixture(autouse=True)
def weather(tmp_path: Path) -> Path:
    (tmp_path / "weather.py").write_text(WEATHER)
    return tmp_path / "called.txt"


def test_a_call_runs_and_its_result_is_answered(program: Program, weather: Path):
    done = program("generate", *GREEDY, "--allow-tool", "get_weather", "--show-calls", PARIS)
    assert done.returncode == 0 and "21" in done.stdout
    assert weather.read_text() == "Paris\n"
    assert done.stderr.splitlines()[0] == 'leap: call get_weather(city="Paris")'


def test_two_parallel_calls(program: Program, weather: Path):
    asked = "What is the weather in Paris and in Rome?"
    done = program("generate", *GREEDY, "--allow-tool", "get_weather", "--format", "jsonl", asked)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    made = next(event for event in events if event["type"] == "function_calls")["function_calls"]
    assert done.returncode == 0 and len(made) == 2
    assert len(weather.read_text().splitlines()) == 2
    assert [event["type"] for event in events].count("function_result") == 2


def test_a_required_call_is_always_made(program: Program, weather: Path):
    done = program(
        "generate", *GREEDY, "--allow-tool", "get_weather", "--tool-choice", "get_weather", "--format", "json", "Hello!"
    )
    document = json.loads(done.stdout)
    assert done.returncode == 0 and document["calls"][0]["name"] == "get_weather"
    assert isinstance(document["calls"][0]["arguments"]["city"], str)


@pytest.mark.parametrize("policy", [None, "ask", "deny"])
def test_a_denied_tool_exits_with_7_and_does_not_run(
    program: Program, weather: Path, leap_home: Path, policy: str | None
):
    if policy is not None:
        leap_home.mkdir(exist_ok=True)
        (leap_home / "config.toml").write_text(f'[tools.get_weather]\npolicy = "{policy}"\n')
    done = program("generate", *GREEDY, PARIS)
    assert (done.returncode, done.stdout) == (7, "") and "was denied" in done.stderr
    assert not weather.exists()


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 7)])
def test_the_user_at_the_terminal_decides(
    variables: dict[str, str], tmp_path: Path, weather: Path, typed: bytes, code: int
):
    leader, follower = pty.openpty()
    os.write(leader, typed)
    done = subprocess.run(
        [*LEAP, "generate", *GREEDY, PARIS],
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=follower,
        cwd=tmp_path,
        env=variables,
        timeout=100,
        check=False,
    )
    shown = os.read(leader, 65536).decode()
    os.close(leader)
    os.close(follower)
    assert done.returncode == code and 'the model calls get_weather(city="Paris")' in shown
    assert weather.exists() is (code == 0)


def test_a_tool_failure_is_reported_to_the_model(program: Program, tmp_path: Path):
    (tmp_path / "weather.py").write_text(
        WEATHER.replace("    with open", "    raise OSError('no network')\n    with open")
    )
    done = program("generate", *GREEDY, "--allow-tool", "get_weather", "--show-calls", PARIS)
    assert done.returncode == 0 and "error OSError: no network" in done.stderr


def test_calls_of_declared_tools_are_returned_to_the_caller(program: Program, tmp_path: Path):
    shown = json.loads(program("tools", "show", "get_weather", "--tools-file", "weather.py").stdout)
    (tmp_path / "tools.json").write_text(json.dumps([shown]))
    done = program("generate", "-m", "builtin", "--temperature", "0", "--tools-file", "tools.json", PARIS)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"name": "get_weather", "arguments": '{"city": "Paris"}'}


def test_tool_choice_none_makes_no_call(program: Program, weather: Path):
    done = program("generate", *GREEDY, "--allow-tool", "get_weather", "--tool-choice", "none", PARIS)
    assert done.returncode == 0 and done.stdout.strip() and not weather.exists()


def test_tools_run_in_a_chat(program: Program, weather: Path):
    done = program("chat", *GREEDY, "--allow-tool", "get_weather", stdin=f"{PARIS}\nHello!\n")
    assert done.returncode == 0 and "21" in done.stdout.splitlines()[0]
    assert weather.read_text() == "Paris\n"


def test_a_registered_command_runs(program: Program):
    added = program("tools", "add", "shout", "--command", "tr a-z A-Z", "--schema", "text")
    assert added.returncode == 0
    assert program("tools", "call", "shout", '{"text": "a"}').returncode == 7
    assert program("tools", "call", "shout", '{"text": "a"}', "--yes").stdout == '{"TEXT": "A"}\n'
