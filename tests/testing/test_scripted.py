"""The scripted runner: what a test can make it do, beyond the contract that all runners keep."""

from __future__ import annotations

import threading

import pytest

from leap_core import (
    ChatMessage,
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    GenerationOptions,
    GenerationStats,
    LeapFunctionCall,
    LeapGenerationError,
    ReasoningChunk,
)
from leap_core.testing import Script, ScriptedModelRunner, Stall

CALL = LeapFunctionCall("weather", {"city": "Bern"})


def play(runner, prompt="hi", options=None):
    return list(runner.create_conversation().generate_response(prompt, options))


def test_scripts_are_played_in_order():
    runner = ScriptedModelRunner("one", ["t", "wo"])
    runner.add("three")
    assert [play(runner)[-1].full_message.text for _ in range(3)] == ["one", "two", "three"]


def test_an_exhausted_script_is_an_error_that_says_so():
    with pytest.raises(LeapGenerationError, match="no script left"):
        play(ScriptedModelRunner())


def test_complete_is_made_of_what_was_said():
    *pieces, end = play(ScriptedModelRunner([ReasoningChunk("hm"), "Loo", "king.", FunctionCalls((CALL,))]))
    assert pieces == [ReasoningChunk("hm"), Chunk("Loo"), Chunk("king."), FunctionCalls((CALL,))]
    assert end.full_message == ChatMessage("assistant", "Looking.", "hm", [CALL])
    assert (end.stats.prompt_tokens, end.stats.completion_tokens, end.stats.total_tokens) == (4, 3, 7)


def test_a_script_may_bring_its_own_end():
    end = Complete(
        ChatMessage("assistant", "x"), GenerationFinishReason.CONSTRAINT, GenerationStats(1, 1, 2, 0.0), ("w",)
    )
    assert play(ScriptedModelRunner(["x", end, "never"])) == [Chunk("x"), end]


def test_an_exception_is_raised_where_it_stands():
    runner = ScriptedModelRunner(["half", RuntimeError("boom")], "fine")
    conversation = runner.create_conversation()
    stream = conversation.generate_response("hi")
    assert next(stream) == Chunk("half")
    with pytest.raises(RuntimeError, match="boom"):
        next(stream)
    assert conversation.history == [] and not conversation.is_generating
    assert play(runner)[-1].full_message.text == "fine"


def test_a_stall_waits_until_it_is_released():
    stall = Stall()
    runner = ScriptedModelRunner(["before", stall, "after"])
    received = []
    thread = threading.Thread(target=lambda: received.extend(play(runner)))
    thread.start()
    assert stall.reached.wait(100) and thread.is_alive()
    stall.release()
    thread.join(100)
    assert received[-1].full_message.text == "beforeafter"


def test_a_stall_may_be_bounded():
    assert play(ScriptedModelRunner(["a", Stall(seconds=0.01), "b"]))[-1].full_message.text == "ab"


def test_a_script_can_ignore_that_it_is_told_to_stop():
    runner = ScriptedModelRunner(Script(["a", "b", "c"], ignore_stop=True))
    conversation = runner.create_conversation()
    stream = conversation.generate_response("hi")
    next(stream)
    stream.stop()
    *_, end = iter(lambda: next(stream, None), None)
    assert (end.finish_reason, end.full_message.text) == (GenerationFinishReason.STOP, "abc")


def test_closing_ends_even_a_script_that_ignores_stopping():
    runner = ScriptedModelRunner(Script(["a", Stall(), "b"], ignore_stop=True))
    conversation = runner.create_conversation()
    with conversation.generate_response("hi") as stream:
        next(stream)
    assert conversation.history == [] and not conversation.is_generating


def test_requests_are_recorded():
    runner = ScriptedModelRunner("ok")
    options = GenerationOptions(temperature=0.5)
    conversation = runner.create_conversation("Be brief.")
    list(conversation.generate_response("hi", options))
    (request,) = runner.requests
    assert request.messages == (ChatMessage("system", "Be brief."), ChatMessage("user", "hi"))
    assert (request.functions, request.options) == ((), options)


def test_many_threads_get_one_script_each():
    runner = ScriptedModelRunner(*[str(number) for number in range(50)])
    texts = []

    def ask():
        for _ in range(10):
            texts.append(play(runner)[-1].full_message.text)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts, key=int) == [str(number) for number in range(50)]
