"""``/set`` and ``/show`` in ``leap chat``, and the limit of rounds of calls, on the scripted runner."""

from __future__ import annotations

import json

import pytest

from leap_cli.chat.slash_commands import COMMANDS, suggest
from leap_core.conversation.messages import LeapFunctionCall
from leap_core.conversation.responses import FunctionCalls, ReasoningChunk, TokenLogprob

CALL, ANOTHER, THIRD = (
    [FunctionCalls((LeapFunctionCall("calculate", {"expression": text}),))] for text in ("6*7", "2*21", "84/2")
)


@pytest.fixture
def talk(leap):
    """Type these lines at the prompt."""

    def type_lines(*lines: str, arguments: tuple[str, ...] = ()):
        typed = "".join(f"{line}\n" for line in lines)
        done = leap("chat", "-m", "some", "--no-save", *arguments, stdin=typed, stdin_terminal=True)
        assert done.code == 0, done
        return done

    return type_lines


def errors(done) -> list[str]:
    return [line.split("leap: error: ")[1] for line in done.stderr.splitlines() if "leap: error: " in line]


def test_schema_stop_text_and_reasoning_are_set_and_unset(leap, talk):
    runner = leap.script([ReasoningChunk("hm"), "{}"], "b", [ReasoningChunk("hm"), "c"])
    lines = ("/set json-schema name, age int", "/set stop END", "/set think show", "one")
    done = talk(*lines, "/set choices yes,no", "/set think none", "two", "/set choices none", "/set stop none", "three")
    options = [request.options for request in runner.requests]
    assert set(json.loads(options[0].json_schema_constraint)["properties"]) == {"name", "age"}
    assert [list(each.stop) for each in options] == [["END"], ["END"], []]
    assert options[1].choices_constraint == ["yes", "no"] and options[1].json_schema_constraint is None
    assert options[2].choices_constraint is None
    assert [each.enable_thinking for each in options] == [True, False, False]
    assert done.stderr.count("hm") == 1


def test_show_lists_all_settings_of_answers(leap, talk):
    leap.script()
    done = talk(
        "/set temperature 0.3", "/set regex [a-z]+", "/system Be brief.", "/tools calculate", "/show", "/show system"
    )
    shown = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line)
    assert shown["options"] == "temperature 0.3" and shown["constraint"] == "regex [a-z]+"
    assert shown["tools"] == "calculate" and shown["session"] == "not saved" and "context of" in shown["model"]
    assert done.stdout.endswith("system  Be brief.\n")


def test_unknown_settings_are_named_in_the_error(leap, talk):
    leap.script()
    lines = ("/set temprature 1", "/set think loud", "/set max-tool-iterations 0", "/set json-schema {", "/show mode")
    assert [error.split(";")[0] for error in errors(talk(*lines))] == [
        "there is no setting 'temprature'",
        "think takes show, hide, only or none, not 'loud'",
        "max-tool-iterations takes a number from 1 to 1000, not '0'",
        errors(talk("/set json-schema {"))[0],
        "there is no 'mode' to show",
    ]


def test_a_renamed_setting_names_its_new_name(leap, talk):
    leap.script()
    assert errors(talk("/set chain-limit 3")) == [
        "there is no setting 'chain-limit'; did you mean max-tool-iterations?"
    ]


def test_tab_completes_what_can_be_set_and_shown(leap):
    env = leap.environment("", terminal=True, stdin_terminal=True)
    assert [each.value for each in suggest("/set temp", COMMANDS, env)[1]] == ["temperature"]
    assert {"json-schema", "think", "max-tool-iterations"} <= {
        each.value for each in suggest("/set ", COMMANDS, env)[1]
    }
    assert [each.value for each in suggest("/show s", COMMANDS, env)[1]] == ["system", "session"]


@pytest.mark.slow
def test_the_limit_of_tool_iterations_ends_an_answer(leap, talk):
    runner = leap.script(CALL, ANOTHER, THIRD)
    done = leap("generate", "-m", "some", "--tool", "calculate", "--max-tool-iterations", "2", "go")
    assert (done.code, len(runner.requests)) == (7, 3)
    assert "after 2 rounds; not run: calculate(" in done.stderr and "--max-tool-iterations" in done.stderr
    runner = leap.script(CALL, "42")
    assert leap("generate", "-m", "some", "--tool", "calculate", "--max-tool-iterations", "1", "go").stdout == "42\n"
    assert leap("generate", "--max-tool-iterations", "0", "go").code == 2


@pytest.mark.slow
def test_the_limit_can_be_set_in_a_chat_and_survives_a_change_of_tools(leap, talk):
    leap.script(CALL, ANOTHER, "well", CALL, "42")
    done = talk("/tools calculate", "/set max-tool-iterations 1", "/tools calculate,current_time", "go", "on", "again")
    assert len(errors(done)) == 1 and "after 1 round;" in errors(done)[0]
    assert done.stdout.count("42") >= 1


def test_logprobs_are_in_the_messages_of_jsonl(leap):
    from leap_core.conversation.messages import ChatMessage
    from leap_core.conversation.responses import Complete, GenerationFinishReason

    tokens = (TokenLogprob(b"ok", -0.5, None, ((b"ok", -0.5),)),)
    end = Complete(ChatMessage("assistant", "ok"), GenerationFinishReason.STOP, None, (), tokens)
    leap.script(["ok", end])
    line = json.dumps({"role": "user", "content": "x"}) + "\n"
    done = leap("chat", "-m", "some", "--jsonl", "--top-logprobs", "1", stdin=line)
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert answer["logprobs"]["content"][0]["token"] == "ok" and answer["content"] == "ok"


def test_logprobs_are_refused_without_jsonl(leap):
    runner = leap.script("ok")
    done = leap("chat", "-m", "some", "--top-logprobs", "1", stdin="x\n")
    assert done.code == 2 and "--top-logprobs needs --jsonl" in done.stderr
    leap.variables["LEAP_CHAT_TOP_LOGPROBS"] = "1"
    assert leap("chat", "-m", "some", stdin="x\n").stdout == "ok\n"
    assert runner.requests[0].options.top_logprobs is None
