"""Functions in child processes: results, failures, limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.conversation.responses import FunctionResult
from leap_core.errors import LeapOptionsError, LeapToolError
from leap_core.testing import ScriptedModelRunner
from leap_core.tools.execution import Command, PythonFunction, run_call
from leap_core.tools.policy import FunctionPolicy, ToolPolicy, policy_from_table
from leap_core.tools.run import run_functions
from leap_core.tools.sources import CommandRegistry, builtin_functions, choose, functions_of_file

TOOLS = '''
"""Tools of a test."""
import os, subprocess, sys, time

def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    print("this is not the result")
    return a + b

def upper(text: str) -> str:
    return text.upper()

def nothing(): ...

def slow(mark: str) -> str:
    subprocess.Popen([sys.executable, "-c", f"import time, pathlib; time.sleep(2); pathlib.Path({mark!r}).touch()"])
    time.sleep(60)

def huge() -> str:
    return "ä" * 1_000_000

def fails():
    raise KeyError("no such thing")

def dies():
    os._exit(3)

def lists() -> list:
    return [1, {"a": None}]

async def later(x: str) -> dict:
    return {"x": x}

def _private(): ...
'''


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LeapFunction]:
    file = tmp_path_factory.mktemp("tools") / "tools.py"
    file.write_text(TOOLS, encoding="utf-8")
    return {function.name: function for function in functions_of_file(file)}


def run(function: LeapFunction, policy: ToolPolicy | None = None, **arguments: object) -> FunctionResult:
    return run_call(function, LeapFunctionCall(function.name, arguments), policy or ToolPolicy("allow"))


def test_a_python_file_offers_its_public_functions(tools: dict[str, LeapFunction]):
    assert list(tools) == ["add", "upper", "nothing", "slow", "huge", "fails", "dies", "lists", "later"]
    assert tools["add"].description == "Add two numbers."


@pytest.mark.slow
def test_results_of_every_kind(tools: dict[str, LeapFunction]):
    assert run(tools["add"], a=1).text == "3"
    assert run(tools["upper"], text="grüße 😀").text == "GRÜSSE 😀"
    assert run(tools["nothing"]).text == "null"
    assert run(tools["lists"]).text == '[1, {"a": null}]'
    assert run(tools["later"], x="y").text == '{"x": "y"}'


def test_failures_become_the_results_error(tools: dict[str, LeapFunction]):
    assert run(tools["fails"]).error == "KeyError: 'no such thing'"
    assert "ended with code 3" in str(run(tools["dies"]).error)
    assert "/a" in str(run(tools["add"], a="x").error)
    assert "'a' is a required property" in str(run(tools["add"]).error)
    assert "no argument 'c'" in str(run(tools["add"], a=1, c=2).error)


@pytest.mark.slow
def test_the_time_limit_ends_all_child_processes(tools: dict[str, LeapFunction], tmp_path: Path):
    mark = tmp_path / "grandchild-lives"
    result = run(tools["slow"], ToolPolicy("allow", timeout=0.7), mark=str(mark))
    assert "longer than 0.7 s" in str(result.error)
    time.sleep(2.5)
    assert not mark.exists()


def test_a_run_can_be_interrupted(tools: dict[str, LeapFunction], tmp_path: Path):
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    call = LeapFunctionCall("slow", {"mark": str(tmp_path / "m")})
    assert run_call(tools["slow"], call, ToolPolicy("allow"), cancelled).error == "it was interrupted"


def test_output_is_bounded(tools: dict[str, LeapFunction]):
    result = run(tools["huge"], ToolPolicy("allow", output_limit=101))
    assert result.text == "ä" * 50 + "\n[cut: the output was longer than 101 bytes]"


def command(*argv: str) -> LeapFunction:
    return LeapFunction("c", "", (), {"type": "object", "properties": {"q": {"type": "string"}}}, Command(argv))


def test_a_command_reads_json_and_its_output_is_the_result():
    assert run(command("tr", "a-z", "A-Z"), q="x é").text == '{"Q": "X é"}'


def test_a_command_runs_without_a_shell():
    assert run(command("echo", "$HOME; ls | wc"), q="x").text == "$HOME; ls | wc"


def test_what_goes_wrong_with_commands():
    assert "no-such-command cannot be started" in str(run(command("no-such-command")).error)
    failed = run(command("sh", "-c", "echo reason >&2; exit 4"))
    assert failed.error == "the command ended with code 4: reason"
    endless = run(command("yes"), ToolPolicy("allow", output_limit=10))
    assert endless.text == "y\ny\ny\ny\ny\n\n[cut: the output was longer than 10 bytes]"


def importable(a: int) -> int:
    """A function that another process finds by its module."""
    return a + 1


@pytest.mark.slow
def test_a_callable_of_the_program_runs_in_a_child_process_too():
    assert run(LeapFunction.from_callable(importable), a=1).text == "2"


def test_a_closure_needs_this_process():
    seen = []

    def remember(a: int) -> str:
        seen.append(a)
        return "ok"

    function = LeapFunction.from_callable(remember)
    assert run(function, a=1).text == "ok" and seen == [1]
    assert run(function, ToolPolicy("allow", isolated=False), a=2).text == "ok" and seen == [1, 2]
    conversation = ScriptedModelRunner("never").create_conversation()
    conversation.register_function(function)
    with pytest.raises(LeapToolError, match="cannot be found by another process"):
        run_functions(conversation, FunctionPolicy(default=ToolPolicy("allow", isolated=True)), "go")


SCRIPT = """
import sys
print("the script runs")
from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.tools.execution import run_call
from leap_core.tools.policy import ToolPolicy

def send(to: str) -> str:
    print("sent")
    return f"sent to {to}"

print(run_call(LeapFunction.from_callable(send), LeapFunctionCall("send", {"to": "x"}), ToolPolicy("allow")).text)
"""


def test_a_function_of_the_script_itself_does_not_run_the_script_again(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["the script runs", "sent", "sent to x"], done.stderr


WAITS = """
import pathlib, sys
from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.tools.execution import run_call
from leap_core.tools.policy import ToolPolicy
from leap_core.tools.execution import Command

line = ("sh", "-c", f"sleep 300 & echo $$ $! > {sys.argv[1]}; wait")
run_call(LeapFunction("f", "", call=Command(line)), LeapFunctionCall("f", {}), ToolPolicy("allow", timeout=200))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="process groups")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_tool_and_what_it_started_end_with_this_process(tmp_path: Path, end: signal.Signals):
    note = tmp_path / "pids"
    code = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n{WAITS}"  # nohup's children ignore it
    process = subprocess.Popen([sys.executable, "-c", code, str(note)])
    pids = within(60, lambda: note.exists() and len(note.read_text().split()) == 2 and note.read_text().split())
    process.send_signal(end)
    process.wait(60)
    assert within(60, lambda: not any(is_running(int(pid)) for pid in pids))


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_a_tool_ends_with_this_process_from_its_first_moment_on(tmp_path: Path):
    """As if this process were killed while it still starts the tool."""
    note = tmp_path / "pid"
    script = f"""
import os, subprocess, time
from leap_core.tools.process_cleanup import Lifeline
lifeline = Lifeline()
line = lifeline.command(["sh", "-c", "echo $$ > {note}; sleep 300"])
subprocess.Popen(line, start_new_session=True, pass_fds=lifeline.descriptors)
time.sleep(300)
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    pid = int(within(60, lambda: note.exists() and note.read_text()))
    process.kill()
    process.wait(60)
    assert within(60, lambda: not is_running(pid))


def within(seconds: float, condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return value


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_that_fails_tells_what_it_found():
    found = run(LeapFunction("f", "", call=Command(("sh", "-c", "echo line 3 is wrong; echo bad >&2; exit 2"))))
    assert found.error == "the command ended with code 2\nstandard output:\nline 3 is wrong\nstandard error:\nbad"
    quiet = run(LeapFunction("f", "", call=Command(("sh", "-c", "exit 1"))))
    assert quiet.error == "the command ended with code 1"


def test_failures_are_as_short_as_results(tmp_path: Path):
    file = tmp_path / "loud.py"
    file.write_text("def loud():\n    raise ValueError('x' * 300_000)\n", encoding="utf-8")
    (loud,) = functions_of_file(file)
    short = ToolPolicy("allow", output_limit=100)
    assert len(str(run(loud, short).error)) < 200

    def here() -> None:
        raise ValueError("x" * 300_000)

    assert len(str(run(LeapFunction.from_callable(here), short).error)) < 200
    shout = LeapFunction("f", "", call=Command(("sh", "-c", "yes | head -c 90; yes | head -c 9000 >&2; exit 1")))
    assert len(str(run(shout, short).error)) < 200


@pytest.mark.slow
def test_a_generator_gives_its_items(tmp_path: Path):
    file = tmp_path / "items.py"
    file.write_text("def items():\n    yield 1\n    yield 'b'\n\nasync def later():\n    yield 2\n", encoding="utf-8")
    assert [run(function).text for function in functions_of_file(file)] == ['[1, "b"]', "[2]"]


@pytest.mark.slow
def test_a_function_that_no_model_can_call_is_left_out_unless_it_is_asked_for(tmp_path: Path):
    file = tmp_path / "mixed.py"
    file.write_text("def good(a: int): ...\ndef bad(*args): ...\n", encoding="utf-8")
    warnings: list[str] = []
    assert [function.name for function in functions_of_file(file, on_warning=warnings.append)] == ["good"]
    assert len(warnings) == 1 and "'args' cannot be given by name" in warnings[0]
    assert [function.name for function in functions_of_file(file, ["good"])] == ["good"]
    with pytest.raises(LeapToolError, match="'args' cannot be given by name"):
        functions_of_file(file, ["bad"])


def test_a_declared_function_cannot_be_run():
    assert "only declared" in str(run(LeapFunction("f", "")).error)


def test_the_message_of_a_result():
    call = LeapFunctionCall("f", {"a": 1})
    assert FunctionResult(call, "21 °C").message("call_0").to_json() == {
        "role": "tool",
        "content": "21 °C",
        "tool_call_id": "call_0",
    }
    assert FunctionResult(call, "", "broken").message("x").text == '{"error": "broken"}'


@pytest.mark.slow
def test_files_without_functions_are_errors(tmp_path: Path):
    for name, content, problem in (
        ("a.py", "x = 1", "no public functions"),
        ("b.py", "def f(:", "SyntaxError"),
        ("c.py", "def f(a: complex): ...", "complex"),
        ("d.json", "{", "neither Python"),
        ("e.json", "[]", "declares no tools"),
        ("f.json", '[{"name": 1}]', r"tools\[0\].name"),
    ):
        file = tmp_path / name
        file.write_text(content)
        with pytest.raises(LeapToolError, match=problem):
            functions_of_file(file)
    with pytest.raises(LeapToolError, match="there is no file"):
        functions_of_file(tmp_path / "none.py")


def test_declarations_come_in_three_wrappings(tmp_path: Path):
    for number, content in enumerate(('{"name": "f"}', '[{"function": {"name": "f"}}]', '{"tools": [{"name": "f"}]}')):
        file = tmp_path / f"{number}.json"
        file.write_text(content)
        assert [function.name for function in functions_of_file(file)] == ["f"]


def test_commands_are_registered_and_forgotten(tmp_path: Path):
    registry = CommandRegistry(tmp_path / "config" / "tools.json")
    assert registry.functions() == []
    registry.add("shout", "tr a-z 'A-Z'", "Upper case", {"type": "object", "properties": {}})
    (function,) = registry.functions()
    assert function.call == Command(("tr", "a-z", "A-Z")) and function.description == "Upper case"
    with pytest.raises(LeapToolError, match="already"):
        registry.add("shout", "cat", "", {})
    registry.add("shout", "cat", "", {}, replace=True)
    registry.remove("shout")
    with pytest.raises(LeapToolError, match="no registered tool"):
        registry.remove("shout")
    for line in ("", "'open"):
        with pytest.raises(LeapToolError):
            registry.add("x", line, "", {})


def test_tools_that_are_registered_at_once_are_all_kept(tmp_path: Path):
    file = tmp_path / "config" / "tools.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: CommandRegistry(file).add(f"t{n}", "cat", "", {"type": "object"}), range(24)))
    assert {function.name for function in CommandRegistry(file).functions()} == {f"t{n}" for n in range(24)}
    assert [path.name for path in file.parent.iterdir()] == ["tools.json"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"tools": []}', '{"tools": {"a": {"command": "ls"}}}'])
def test_a_damaged_registry_is_named(tmp_path: Path, content: str):
    file = tmp_path / "tools.json"
    file.write_text(content)
    with pytest.raises(LeapToolError, match="damaged"):
        CommandRegistry(file).functions()


def test_declarations_that_are_nested_too_deeply_are_refused(tmp_path: Path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(LeapToolError, match="neither Python"):
        functions_of_file(tmp_path / "deep.json")


def test_tools_are_chosen_by_name(tmp_path: Path):
    offered = builtin_functions(tmp_path)
    assert [f.name for f in choose(["calculate", "calculate"], offered)] == ["calculate"]
    with pytest.raises(LeapToolError) as caught:
        choose(["nope"], offered)
    assert "current_time, calculate, read_file" in str(caught.value.hint)


def test_a_place_of_a_function():
    assert PythonFunction.of(importable).name == "importable"
    for odd in (lambda: 1, [].append):
        with pytest.raises(LeapToolError):
            PythonFunction.of(odd)


def test_policies_come_from_the_configuration():
    table = {"rounds": 3, "timeout": 5, "policy": "deny", "add": {"policy": "allow", "output_limit": 10}}
    policy = policy_from_table(table, FunctionPolicy({"calculate": ToolPolicy("allow")}))
    assert policy.rounds == 3
    assert policy.of("add") == ToolPolicy("allow", 5, 10)
    assert policy.of("other") == ToolPolicy("deny", 5)
    assert policy.of("calculate") == ToolPolicy("allow", 5)
    assert policy.allowing(["other"]).of("other").decision == "allow"


@pytest.mark.parametrize(
    ("table", "option"),
    [
        ([], "tools"),
        ({"rounds": 0}, "tools.rounds"),
        ({"timeout": -1}, "tools.timeout"),
        ({"f": {"policy": "maybe"}}, "tools.f.policy"),
        ({"f": {"output_limit": 1.5}}, "tools.f.output_limit"),
        ({"f": {"colour": 1}}, "tools.f.colour"),
        ({"colour": 1}, "tools.colour"),
    ],
)
def test_a_wrong_setting_is_named(table: object, option: str):
    with pytest.raises(LeapOptionsError) as caught:
        policy_from_table(table)
    assert caught.value.option == option
