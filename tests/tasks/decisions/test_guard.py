"""A guard: what it stops is not shown, not sent on, and not in the history."""

from __future__ import annotations

import json
import math

import pytest

from leap_core.conversation.messages import AudioPcmF32, ChatMessage, Text
from leap_core.conversation.responses import Complete, GenerationFinishReason, TokenLogprob
from leap_core.conversation.streams import last_of
from leap_core.errors import LeapGenerationError, LeapGuardError, LeapSerializationError, LeapUnsupportedMediaError
from leap_core.tasks.decisions.guard import Guard, read_guard
from leap_core.testing import ScriptedModelRunner

INSULT = {"type": "predicate", "name": "insult", "instructions": "Is it an insult?", "threshold": 0.8}


class Judge(ScriptedModelRunner):
    """Says yes as likely as the number after the last # of a text, in percent; 10 without one."""

    def start(self, messages, functions=(), options=None):
        number = messages[-1].text.rpartition("#")[2][:2]
        share = int(number) / 100 if number.isdigit() else 0.1
        (answer,) = options.choices_constraint
        logprob = TokenLogprob(answer.encode(), math.log(share if answer == "yes" else 1 - share))
        message = ChatMessage("assistant", answer)
        self.add([Complete(message, GenerationFinishReason.STOP, logprobs=(logprob,))])
        return super().start(messages, functions, options)


def guarded(*scripts, questions=(INSULT,), judge=None):
    runner = ScriptedModelRunner(*scripts)
    conversation = runner.create_conversation()
    conversation.guard = Guard(judge or Judge(), read_guard(list(questions)))
    return runner, conversation


def test_a_message_is_stopped_before_the_model_gets_it():
    runner, conversation = guarded("Hello.", "Fine.")
    with pytest.raises(LeapGuardError, match=r"stopped the message: insult \(80%, stops from 80%\)") as stopped:
        last_of(conversation.generate_response("you #80"))
    assert (stopped.value.what, stopped.value.share) == ("message", pytest.approx(0.8))
    assert runner.requests == [] and conversation.history == []
    assert last_of(conversation.generate_response("you #79")).full_message.text == "Hello."
    assert [message.text for message in conversation.history] == ["you #79", "Hello."]


def test_nothing_of_an_answer_is_delivered_before_it_passed():
    _, conversation = guarded(["Hel", "lo ", "#90"], ["fine ", "#20"])
    seen = []
    with pytest.raises(LeapGuardError, match="stopped the answer"):
        for response in conversation.generate_response("hi"):
            seen.append(response)
    assert seen == [] and conversation.history == []
    pieces = list(conversation.generate_response("hi"))
    assert [type(each).__name__ for each in pieces] == ["Chunk", "Chunk", "Complete"]


def test_reasoning_is_asked_about_and_the_message_is_part_of_the_state():
    judge = Judge()
    _, conversation = guarded("Hello.", judge=judge)
    last_of(conversation.generate_response("hi"))
    asked = [request.messages[0].text for request in judge.requests]
    assert asked[0].startswith("hi\n\nIs it an insult?") and json.loads(asked[-1].partition("\n\n")[0]) == {
        "message": "hi",
        "answer": "Hello.",
    }


def test_a_question_may_be_about_one_of_them_and_other_answers_may_stop():
    only_answers = {**INSULT, "of": "answer"}
    about_us = {"type": "predicate", "name": "ours", "instructions": "Is it ours?", "of": "message", "stop": False}
    _, conversation = guarded("Hello.", questions=[only_answers, about_us])
    assert last_of(conversation.generate_response("mine #75")).full_message.text == "Hello."
    with pytest.raises(LeapGuardError, match=r"ours \(70%"):
        last_of(conversation.generate_response("other #30"))


def test_a_choice_names_what_stops_it():
    choice = {"type": "choice", "instructions": "q", "choices": ["a", "b", "c"], "stop": ["a", "c"]}
    (watched,) = read_guard([choice])
    assert (watched.stop, watched.threshold, watched.of) == ((0, 2), 0.5, ("message", "answer"))
    (named,) = read_guard({"late": {"type": "noul", "instructions": "Late?", "threshold": 1}})
    assert (named.name, named.stop, named.threshold) == ("late", (0,), 1.0)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"threshold": 0}, "questions[0].threshold"),
        ({"threshold": True}, "questions[0].threshold"),
        ({"of": "both"}, "questions[0].of"),
        ({"stop": "yes"}, "questions[0].stop"),
        ({"stop": []}, "questions[0].stop"),
        ({"type": "score", "levels": ["a", "b"]}, "questions[0].stop"),
        ({"stopp": True}, "questions[0].stopp"),
    ],
)
def test_errors_are_named_by_their_path(fields, place):
    with pytest.raises(LeapSerializationError) as refused:
        read_guard([{**INSULT, **fields}])
    assert refused.value.path == place


@pytest.mark.parametrize("value", ["x", [], {}, [1], None])
def test_an_invalid_list_of_questions_is_refused(value):
    with pytest.raises(LeapSerializationError):
        read_guard(value)


def test_a_message_that_the_guard_cannot_check_does_not_pass():
    _, conversation = guarded("Hello.")
    with pytest.raises(LeapUnsupportedMediaError, match="cannot check audio"):
        last_of(conversation.generate_response(ChatMessage("user", [AudioPcmF32([0.0], 16000), Text("hi")])))
    _, conversation = guarded("Hello.", judge=ScriptedModelRunner(*[[LeapGenerationError("broken")]] * 2))
    with pytest.raises(LeapGenerationError, match="broken"):
        last_of(conversation.generate_response("hi"))
    assert conversation.history == []


def test_a_message_that_is_stopped_while_it_is_checked_ends_quietly():
    _, conversation = guarded("Hello.")
    stream = conversation.generate_response("hi")
    stream.stop()
    assert last_of(stream).finish_reason is GenerationFinishReason.INTERRUPTED and conversation.history == []


@pytest.fixture
def chat(leap, tmp_path, monkeypatch):
    """``leap chat`` of a scripted model with a guard."""
    (tmp_path / "guard.json").write_text(json.dumps([INSULT]))
    chatting = ScriptedModelRunner("Hello.", "bad #99", "Fine.")
    models = {"some": chatting, "judge": Judge()}
    monkeypatch.setattr(leap, "load", lambda reference, *_: models[str(reference)])

    def run(*arguments, **more):
        return leap("chat", "-m", "some", "--guard", "guard.json", "--guard-model", "judge", *arguments, **more)

    run.models = models
    return run


def test_a_pipe_ends_with_the_guards_code_and_the_line(chat):
    done = chat(stdin="hi\ntell me\nmore\n")
    assert (done.code, done.stdout) == (11, "Hello.\n")
    assert done.stderr == "leap: error: line 2: the guard stopped the answer: insult (99%, stops from 80%)\n"
    assert all(model.is_unloaded for model in chat.models.values())


def test_a_terminal_goes_on_and_other_models_are_guarded_too(chat):
    chat.models["other"] = ScriptedModelRunner("worse #98", "ok")
    done = chat(stdin="you #90\nhi\n/model other\nnow?\nand now?\n", stdin_terminal=True)
    assert (done.code, done.stdout) == (0, "Hello.\nscripted, a context of 4096 tokens\nok\n")
    assert done.stderr.count("the guard stopped") == 2


def test_messages_as_json_are_guarded(chat):
    lines = [{"role": "user", "content": text} for text in ("hi", "you #90")]
    done = chat("--jsonl", stdin="".join(json.dumps(line) + "\n" for line in lines))
    assert done.code == 11 and [json.loads(line)["content"] for line in done.stdout.splitlines()] == ["Hello."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--guard", "nosuch.json"), "cannot read nosuch.json"),
        (("--guard", "broken.json"), "--guard broken.json is not JSON"),
        (("--guard", "wrong.json"), "--guard wrong.json: questions[0].of"),
        (("--guard-model", "judge"), "--guard-model needs --guard"),
    ],
)
def test_a_guard_that_cannot_be_read_is_refused(leap, tmp_path, arguments, message):
    (tmp_path / "broken.json").write_text("[")
    (tmp_path / "wrong.json").write_text(json.dumps([{**INSULT, "of": "x"}]))
    done = leap("chat", "-m", "some", *arguments, stdin="hi\n")
    assert done.code == 2 and message in done.stderr.replace("\n", " ")
