"""Tools and shapes on the command line, with a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leap_cli.framework.environment import Environment
from leap_core.conversation.calls import LeapFunctionCall
from leap_core.conversation.responses import FunctionCalls
from tests.conftest import CommandLine

TOOLS = '''
def double(n: int) -> int:
    """Twice a number."""
    return 2 * n

def fail() -> None:
    raise RuntimeError("out of order")
'''


@pytest.fixture
def tools_file(leap: CommandLine) -> str:
    file = leap.home.parent / "mytools.py"
    file.write_text(TOOLS)
    return str(file)


def configure(leap: CommandLine, text: str) -> None:
    leap.home.mkdir(exist_ok=True)
    (leap.home / "config.toml").write_text(text)


def calls(*made: LeapFunctionCall) -> list[FunctionCalls]:
    return [FunctionCalls(made)]


DOUBLE = LeapFunctionCall("double", {"n": 21})


def test_a_tool_call_and_its_round_trip(leap: CommandLine, tools_file: str):
    runner = leap.script(calls(DOUBLE), "It is 42.")
    done = leap("generate", "-m", "m", "--tools-file", tools_file, "--allow-tool", "double", "twice 21?")
    assert (done.code, done.stdout, done.stderr) == (0, "It is 42.\n", "")
    assert [function.name for function in runner.requests[0].functions] == ["double", "fail"]
    assert runner.requests[1].messages[-1].text == "42"


@pytest.mark.slow
def test_two_parallel_calls_shown(leap: CommandLine, tools_file: str):
    leap.script(calls(DOUBLE, LeapFunctionCall("fail")), "Done.")
    done = leap(
        *("generate", "-m", "m", "--tools-file", tools_file, "--tool", "double", "--tool", "fail"),
        *("--allow-tool", "double", "--allow-tool", "fail", "--show-calls", "go"),
    )
    assert (done.code, done.stdout) == (0, "Done.\n")
    assert done.stderr.splitlines() == [
        "leap: call double(n=21)",
        "leap: result 42",
        "leap: call fail()",
        "leap: error RuntimeError: out of order",
    ]


@pytest.mark.slow
def test_jsonl_has_every_event_and_json_the_calls(leap: CommandLine, tools_file: str):
    allowed = ("--tools-file", tools_file, "--allow-tool", "double", "go")
    leap.script(calls(DOUBLE), "42")
    lines = leap("generate", "-m", "m", "--format", "jsonl", *allowed).stdout.splitlines()
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds == ["function_calls", "complete", "function_result", "chunk", "complete"]
    leap.script(calls(DOUBLE), "42")
    document = json.loads(leap("generate", "-m", "m", "--format", "json", *allowed).stdout)
    assert document["message"]["content"] == "42" and document["calls"][0]["result"] == "42"


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["ask", "deny"])
def test_without_a_terminal_asking_means_denying(leap: CommandLine, tools_file: str, policy: str):
    configure(leap, f'[tools.double]\npolicy = "{policy}"')
    leap.script(calls(DOUBLE), "never")
    done = leap("generate", "-m", "m", "--tools-file", tools_file, "go")
    assert done.code == 7 and done.stdout == "" and "double(n=21) was denied" in done.stderr


@pytest.mark.slow
def test_at_a_terminal_the_exact_call_is_shown_and_may_be_refused(leap: CommandLine, tools_file: str):
    for typed, code, result in (("y\n", 0, "42"), ("n\n", 7, '{"error": "the user refused this call"}'), ("", 7, None)):
        runner = leap.script(calls(DOUBLE), "Right.")
        done = leap(
            *("generate", "-m", "m", "--tools-file", tools_file, "go"), stdin=typed, stdin_terminal=True, terminal=True
        )
        assert done.code == code and "Right." in done.stdout
        assert "the model calls double(n=21)" in done.stderr and "run it?" in done.stderr
        if result is not None:
            assert runner.requests[1].messages[-1].text == result


def test_a_misspelt_tool_is_not_allowed_in_silence(leap: CommandLine, tools_file: str):
    done = leap("generate", "-m", "m", "--tools-file", tools_file, "--allow-tool", "duoble", "go")
    assert done.code == 2 and "there is no tool duoble" in done.stderr
    done = leap("generate", "-m", "m", "--allow-tool", "double", "go")
    assert done.code == 2 and "--allow-tool double needs tools" in done.stderr


def test_the_call_is_shown_as_it_is(leap: CommandLine, tools_file: str):
    leap.script(calls(LeapFunctionCall("double", {"n": "a   b\x1b[2J"})), "Right.")
    done = leap(
        *("generate", "-m", "m", "--tools-file", tools_file, "go"), stdin="n\n", stdin_terminal=True, terminal=True
    )
    assert 'double(n="a   b\\x1b[2J")' in done.stderr and "\x1b[2J" not in done.stderr


def test_a_lone_surrogate_in_an_argument_is_an_error(leap: CommandLine, tools_file: str):
    done = leap("tools", "call", "double", '{"n": "\\ud800"}', "--yes", "--tools-file", tools_file)
    assert done.code == 7 and "half of a surrogate pair" in done.stderr


@pytest.mark.slow
def test_always_is_asked_once(leap: CommandLine, tools_file: str):
    leap.script(calls(DOUBLE, DOUBLE), "Right.")
    done = leap(
        *("generate", "-m", "m", "--tools-file", tools_file, "go"), stdin="a\n", stdin_terminal=True, terminal=True
    )
    assert done.code == 0 and done.stderr.count("run it?") == 1


@pytest.mark.slow
def test_a_denied_tool_in_a_chat_ends_a_pipe_and_not_a_person(leap: CommandLine, tools_file: str):
    leap.script(calls(DOUBLE), "never")
    assert leap("chat", "-m", "m", "--tools-file", tools_file, stdin="go\n").code == 7
    configure(leap, '[tools.double]\npolicy = "deny"')
    leap.script(calls(DOUBLE), "Still here.")
    done = leap("chat", "-m", "m", "--tools-file", tools_file, stdin="go\nagain\n", stdin_terminal=True)
    assert done.code == 0 and "was denied" in done.stderr and "Still here." in done.stdout


def test_calls_of_declared_tools_are_the_answer(leap: CommandLine):
    declared = leap.home.parent / "declared.json"
    declared.write_text('[{"name": "double", "parameters": {"type": "object", "properties": {"n": {}}}}]')
    leap.script(calls(DOUBLE))
    done = leap("generate", "-m", "m", "--tools-file", str(declared), "--tool-choice", "required", "go")
    assert done.code == 0 and json.loads(done.stdout) == {"name": "double", "arguments": '{"n": 21}'}


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--tool", "nowhere"], 2, "there is no tool nowhere"),
        (["--tools-file", "none.py"], 2, "there is no file"),
        (["--tool-choice", "required"], 2, "needs tools"),
        (["--json-schema", "{"], 6, "not JSON"),
        (["--json-schema", '{"type": 5}'], 6, "invalid at /type"),
        (["--json-schema", "none.json"], 2, "cannot read none.json"),
        (["--json-schema", "a nonsense"], 6, "shorthand"),
        (["--json-schema", "a", "--regex", "b"], 2, "--regex cannot be combined with --json-schema"),
        (["--choices", "a,,b"], 2, "empty choice"),
        (["--choices", "[1]"], 2, "list of strings"),
        (["--grammar", "nofile"], 2, "cannot read nofile"),
    ],
)
def test_errors_are_reported_before_a_model_is_loaded(leap: CommandLine, arguments: list[str], code: int, problem: str):
    done = leap("generate", "-m", "m", *arguments, "go")
    assert done.code == code and problem in done.stderr and leap.loaded == [] and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("tools = 5", "tools must be a table"),
        ('[tools.f]\npolicy = "maybe"', "tools.f.policy: 'maybe' is not one of"),
        ("[tools]\nrounds = 0", "tools.rounds"),
        ("[tools.read_file]\ndirectory = 5", "directory: 5 is not a text"),
    ],
)
def test_a_wrong_setting_is_a_usage_error(leap: CommandLine, settings: str, problem: str):
    configure(leap, settings)
    done = leap("tools", "list")
    assert done.code == 2 and problem in done.stderr and "config.toml" in done.stderr


def options_of(leap: CommandLine, *arguments: str) -> Any:
    runner = leap.script("{}")
    assert leap("generate", "-m", "m", *arguments, "go").code == 0
    return runner.requests[0].options


def test_schema_options_reach_the_model(leap: CommandLine):
    file = leap.home.parent / "s.json"
    file.write_text('{"type": "object"}')
    assert options_of(leap, "--json-schema", str(file)).json_schema_constraint == '{"type": "object"}'
    assert json.loads(options_of(leap, "--json-schema", "a int").json_schema_constraint)["required"] == ["a"]
    assert json.loads(options_of(leap, "--json-schema-multi", "a int").json_schema_constraint)["type"] == "array"
    assert (
        options_of(leap, "--json-schema", "a", "--option", "schema-in-prompt=false").inject_schema_into_prompt is False
    )
    assert options_of(leap, "--choices", "yes, no").choices_constraint == ["yes", "no"]
    assert options_of(leap, "--choices", '["a,b", "c"]').choices_constraint == ["a,b", "c"]
    assert options_of(leap, "--regex", "[ab]+").regex_constraint == "[ab]+"
    assert options_of(leap, "--grammar", 'start: "a"').grammar_constraint == 'start: "a"'


def test_only_the_document_is_printed(leap: CommandLine):
    leap.script('{"a": 1}')
    done = leap("generate", "-m", "m", "--json-schema", "a int", "go")
    assert (done.code, done.stdout, done.stderr) == (0, '{"a": 1}\n', "")


def test_schema_show_and_check(leap: CommandLine):
    assert json.loads(leap("saved", "schemas", "show", "a int").stdout)["properties"] == {"a": {"type": "integer"}}
    assert json.loads(leap("saved", "schemas", "show", "a", "--multi").stdout)["type"] == "array"
    assert leap("saved", "schemas", "check", "a int").stdout == "all of it is enforced\n"
    lenient = '{"type": "array", "uniqueItems": true}'
    done = leap("saved", "schemas", "check", lenient)
    assert done.code == 0 and "uniqueItems is not enforced while generating" in done.stdout
    assert leap("saved", "schemas", "check", lenient, "--strict").code == 6
    assert (
        json.loads(leap("saved", "schemas", "check", lenient, "--format", "json").stdout)["enforced_completely"]
        is False
    )
    refused = leap("saved", "schemas", "check", '{"properties": {"a": {"$ref": "#/none"}}}')
    assert refused.code == 6 and "/properties/a/$ref" in refused.stderr


def test_a_registered_tool_is_added_listed_called_and_removed(leap: CommandLine):
    added = leap("tools", "add", "shout", "--command", "tr a-z A-Z", "--schema", "text: what to shout")
    assert added.code == 0 and "its policy is ask" in added.stderr
    assert leap("tools", "add", "shout", "--command", "cat").code == 7
    assert leap("tools", "list", "--format", "quiet").stdout.split() == [
        "shout",
        "current_time",
        "calculate",
        "read_file",
    ]
    shown = json.loads(leap("tools", "show", "shout").stdout)
    assert shown["function"]["parameters"]["properties"]["text"]["description"] == "what to shout"
    assert leap("tools", "check", "shout").stdout == "shout: ok\n"
    denied = leap("tools", "call", "shout", '{"text": "a"}')
    assert denied.code == 7 and "there is no terminal" in denied.stderr
    configure(leap, '[tools.shout]\npolicy = "allow"')
    assert leap("tools", "call", "shout", '{"text": "a"}').stdout == '{"TEXT": "A"}\n'
    assert leap("tools", "call", "shout", '{"text": 5}').code == 7
    assert leap("tools", "call", "shout", "[1]").code == 2
    assert leap("tools", "remove", "shout").code == 0 and leap("tools", "show", "shout").code == 2


@pytest.mark.slow
def test_a_tool_that_is_only_called_like_one_of_leaps_own_is_asked_for(leap: CommandLine, tools_file: str):
    Path(tools_file).write_text("def calculate(expression: str) -> str:\n    return 'mine'\n")
    leap.script(calls(LeapFunctionCall("calculate", {"expression": "1"})), "never")
    assert leap("generate", "-m", "m", "--tools-file", tools_file, "go").code == 7
    assert leap("tools", "call", "calculate", '{"expression": "1"}', "--tools-file", tools_file).code == 7
    assert "policy is ask" in leap("tools", "add", "read_file", "--command", "cat").stderr
    assert leap("tools", "call", "read_file", "{}").code == 7
    assert leap("tools", "call", "calculate", '{"expression": "1"}').stdout == "1\n"


@pytest.mark.parametrize("wrap", [lambda tool: tool, lambda tool: {"type": "function", "function": tool}])
def test_a_tool_is_added_by_its_declaration(leap: CommandLine, wrap: Any):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = wrap({"name": "other", "description": "Where it rains.", "parameters": parameters})
    assert leap("tools", "add", "rain", "--command", "cat", "--schema", json.dumps(tool)).code == 0
    shown = json.loads(leap("tools", "show", "rain").stdout)["function"]
    assert (shown["name"], shown["description"]) == ("rain", "Where it rains.")
    assert list(shown["parameters"]["properties"]) == ["city"]
    parameters["properties"]["city"]["type"] = "strng"
    refused = leap("tools", "add", "b", "--command", "cat", "--schema", json.dumps(tool))
    assert refused.code == 6 and "/properties/city/type" in refused.stderr


def test_what_is_no_text_is_refused_before_anything_runs(leap: CommandLine):
    assert leap("generate", "--regex", "\udcff", "x").code == 2
    assert leap("tools", "call", "calculate", "[" * 100_000).code == 2


def test_a_shorthand_may_have_a_slash(leap: CommandLine):
    shown = json.loads(leap("saved", "schemas", "show", "speed float: in km/h, name").stdout)
    assert shown["properties"]["speed"]["description"] == "in km/h"
    assert leap("saved", "schemas", "show", "no/such/file").code == 2


def test_a_command_that_is_not_there_is_found_out(leap: CommandLine):
    leap("tools", "add", "ghost", "--command", "no-such-program --x")
    checked = leap("tools", "check", "ghost")
    assert checked.code == 7 and checked.stdout == "ghost: there is no command no-such-program\n"


@pytest.mark.slow
def test_leaps_own_tools(leap: CommandLine):
    (leap.home.parent / "note.txt").write_text("hello\n")
    assert leap("tools", "call", "calculate", '{"expression": "6 * 7"}').stdout == "42\n"
    assert leap("tools", "call", "read_file", '{"path": "note.txt"}').stdout == "hello\n"
    assert leap("tools", "call", "read_file", '{"path": "../secret"}').code == 7
    configure(leap, f'[tools.read_file]\ndirectory = "{Path("/nonexistent")}"')
    assert leap("tools", "call", "read_file", '{"path": "note.txt"}').code == 7


@pytest.mark.parametrize(
    ("given", "example"),
    [
        ("2+3", """leap tools call calculate '{"expression": "2+3"}'"""),
        ("6", """leap tools call calculate '{"expression": 6}'"""),
        ("it's", """{"expression": "it'"'"'s"}"""),
        ("{}", """leap tools call calculate '{"expression": "..."}'"""),
        ("2+" * 500_000, """leap tools call calculate '{"expression": "..."}'"""),
    ],
)
def test_arguments_that_are_no_object_are_shown_as_one(leap: CommandLine, given: str, example: str):
    done = leap("tools", "call", "calculate", given)
    assert done.code == 2 and example in done.stderr and done.stderr.count("\n") == 1 and len(done.stderr) < 400


def test_ctrl_c_at_the_question_ends_the_answer(leap: CommandLine, tools_file: str, monkeypatch):
    def interrupted(_env, _prompt):
        raise KeyboardInterrupt

    monkeypatch.setattr(Environment, "read_typed_line", interrupted)
    runner = leap.script(calls(DOUBLE), "never")
    done = leap("generate", "-m", "m", "--tools-file", tools_file, "go", stdin_terminal=True, terminal=True)
    assert done.code == 130 and len(runner.requests) == 1 and "never" not in done.stdout
