"""``leap chat --jsonl`` on the scripted runner: a message a line in, a message a line out."""

from __future__ import annotations

import json

import pytest

from leap_core.conversation.messages import ChatMessage, LeapFunctionCall
from leap_core.conversation.responses import FunctionCalls, ReasoningChunk
from leap_core.conversation.sessions import SessionStore
from leap_core.errors import LeapGenerationError

DECLARED = '[{"name": "look", "description": "", "parameters": {"type": "object", "properties": {}}}]'


@pytest.fixture
def chat(leap):
    """Give these values, a line each, and get the exit code, the messages and the errors."""

    def run(*lines: object, arguments: tuple[str, ...] = ()):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        done = leap("chat", "-m", "some", "--jsonl", *arguments, stdin=text)
        return done.code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return run


def says(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def test_each_message_is_answered_by_a_message(leap, chat):
    runner = leap.script(["Hel", "lo."], "Ada.")
    assert chat(says("user", "I am Ada."), "", says("user", "Who am I?")) == (
        0,
        [says("assistant", "Hello."), says("assistant", "Ada.")],
        "",
    )
    assert [message.text for message in runner.requests[1].messages] == ["I am Ada.", "Hello.", "Who am I?"]


def test_a_message_has_openai_s_shape_with_everything_in_it(leap, chat):
    call = LeapFunctionCall("look", {"at": "it"})
    leap.script([ReasoningChunk("hm"), "Well", FunctionCalls((call,))])
    (leap.home.parent / "tools.json").write_text(DECLARED)
    parts = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    code, (answer,), _ = chat(parts, arguments=("--tools-file", "tools.json"))
    assert code == 0 and ChatMessage.from_json(answer) == ChatMessage("assistant", "Well", "hm", [call])


def test_an_assistant_message_from_outside_is_a_user_message(leap, chat):
    runner = leap.script("a", "b")
    chat(says("assistant", "Hello, I am another."))
    assert runner.requests[0].messages == (ChatMessage("user", "Hello, I am another."),)


def test_a_system_message_is_not_answered(leap, chat):
    runner = leap.script("a", "b")
    _, answers, _ = chat(
        says("developer", "Be brief."), says("user", "1"), says("system", "Be long."), says("user", "2")
    )
    assert len(answers) == 2
    assert [request.messages[0].text for request in runner.requests] == ["Be brief.", "Be long."]
    assert [message.text for message in runner.requests[1].messages] == ["Be long.", "1", "a", "2"]


def test_the_model_continues_when_all_its_calls_have_results(leap, chat):
    calls = FunctionCalls((LeapFunctionCall("look", {"n": 1}), LeapFunctionCall("look", {"n": 2})))
    runner = leap.script([calls], "both seen")
    (leap.home.parent / "tools.json").write_text(DECLARED)
    results = [{"role": "tool", "content": text, "tool_call_id": f"call_{n}"} for n, text in enumerate("xy")]
    code, answers, _ = chat(says("user", "go"), *results, results[0], arguments=("--tools-file", "tools.json"))
    assert [answer["content"] for answer in answers] == [None, "both seen"]
    assert [message.role.value for message in runner.requests[1].messages] == ["user", "assistant", "tool", "tool"]
    assert code == 2, "no call waits for a third result"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "line 2: not JSON: "),
        ('"text"', "line 2: message: expected an object, not a string"),
        ("[" * 100_000, "line 2: "),
        ('{"role": "robot", "content": "x"}', "line 2: message.role: unknown role 'robot'"),
        ('{"role": "user", "content": 1}', "line 2: message.content: expected a string"),
        ('{"role": "assistant"}', "line 2: message.content: there is nothing to answer"),
        ('{"role": "tool", "content": "x"}', "line 2: message.role: a tool's result, and no call waits for one"),
    ],
)
def test_errors_name_the_number_of_the_line(leap, chat, line, problem):
    leap.script("a", "never")
    code, answers, stderr = chat(says("user", "1"), line, says("user", "3"))
    assert (code, answers) == (2, [says("assistant", "a")])
    assert stderr.startswith(f"leap: error: {problem}") and stderr.count("\n") == 1


def test_a_failed_answer_ends_the_chat_with_its_exit_code(leap, chat):
    leap.script("a", [LeapGenerationError("broken")])
    assert chat(says("user", "1"), "", says("user", "3")) == (
        1,
        [says("assistant", "a")],
        "leap: error: line 3: broken\n",
    )


def test_the_conversation_is_saved_and_continued(leap, chat):
    leap.script("a")
    chat(says("user", "1"))
    runner = leap.script("b")
    chat(says("user", "2"), arguments=("-c",))
    assert [message.text for message in runner.requests[0].messages] == ["1", "a", "2"]
    with SessionStore(leap.home / "leap.db") as store:
        assert [session.messages for session in store.list()] == [4]
