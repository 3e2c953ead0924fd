"""Conversations over the scripted runner: what the contract tests, which run on every runner, cannot make happen."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading

import pytest

from leap_core import (
    ChatMessage,
    Chunk,
    Complete,
    Conversation,
    FunctionCalls,
    GenerationFinishReason,
    LeapFunction,
    LeapFunctionCall,
    LeapGenerationError,
    ReasoningChunk,
)
from leap_core.conversation.streams import ResponseStream
from leap_core.errors import LeapConstraintError, LeapGenerationPromptExceedContextLengthError, LeapOptionsError
from leap_core.testing import ScriptedModelRunner, Stall

CALL = LeapFunctionCall("weather", {"city": "Bern"})


def function(name):
    return LeapFunction(name, f"What {name} does.", [])


def test_an_error_in_the_middle_leaves_the_history_as_it_was():
    conversation = ScriptedModelRunner(["half", LeapGenerationError("broken")]).create_conversation("Be brief.")
    seen = []
    with pytest.raises(LeapGenerationError, match="broken"):
        seen.extend(conversation.generate_response("hi"))
    assert len(conversation.history) == 1 and not conversation.is_generating


def test_a_reply_that_ends_in_an_error_is_delivered_but_not_in_the_history():
    end = Complete(ChatMessage("assistant", "half"), GenerationFinishReason.ERROR)
    conversation = ScriptedModelRunner(["half", end]).create_conversation()
    assert list(conversation.generate_response("hi")) == [Chunk("half"), end]
    assert conversation.history == []


@pytest.mark.parametrize("reason", [r for r in GenerationFinishReason if r is not GenerationFinishReason.ERROR])
def test_replies_with_any_other_finish_reason_are_kept(reason):
    end = Complete(ChatMessage("assistant", "text"), reason)
    conversation = ScriptedModelRunner([end]).create_conversation()
    list(conversation.generate_response("hi"))
    assert conversation.history == [ChatMessage("user", "hi"), ChatMessage("assistant", "text")]


def test_reasoning_and_calls_are_part_of_the_reply_in_the_history():
    runner = ScriptedModelRunner([ReasoningChunk("hm"), FunctionCalls((CALL,))], "It is sunny.")
    conversation = runner.create_conversation()
    list(conversation.generate_response("weather?"))
    assert conversation.history[-1] == ChatMessage("assistant", (), "hm", [CALL])
    conversation.append_to_history(ChatMessage("tool", '{"sky": "clear"}'))
    list(conversation.generate_response(None))
    assert [message.role.value for message in runner.requests[1].messages] == ["user", "assistant", "tool"]
    assert conversation.history[-1].text == "It is sunny."


def test_a_message_of_any_role_and_parts_can_be_answered():
    runner = ScriptedModelRunner("ok")
    conversation = runner.create_conversation()
    list(conversation.generate_response(ChatMessage("tool", "42", tool_call_id="c1")))
    assert runner.requests[0].messages == (ChatMessage("tool", "42", tool_call_id="c1"),)


def test_registered_functions_reach_the_model_and_one_name_is_one_function():
    runner = ScriptedModelRunner("ok")
    conversation = runner.create_conversation()
    conversation.register_functions([function("a"), function("b")])
    newer = function("a")
    conversation.register_function(newer)
    conversation.functions.clear()
    assert [f.name for f in conversation.functions] == ["b", "a"]
    list(conversation.generate_response("hi"))
    assert runner.requests[0].functions[1] is newer


def test_a_reply_to_an_assistants_text_continues_the_same_message():
    conversation = ScriptedModelRunner([" Paris", "."]).create_conversation()
    conversation.append_to_history(ChatMessage("user", "Capital of France?"))
    conversation.append_to_history(ChatMessage("assistant", "It is"))
    complete = list(conversation.generate_response(None))[-1]
    assert complete.full_message.text == " Paris.", "what is delivered follows the text"
    assert [message.text for message in conversation.history] == ["Capital of France?", "It is Paris."]


def test_what_is_appended_while_an_answer_runs_follows_it():
    conversation = ScriptedModelRunner(["a", "b"]).create_conversation()
    for response in conversation.generate_response("hi"):
        if response == Chunk("a"):
            conversation.append_to_history(ChatMessage("system", "note"))
    assert [message.text for message in conversation.history] == ["hi", "ab", "note"]


def test_the_history_given_is_copied():
    history = [ChatMessage("user", "one")]
    conversation = Conversation(ScriptedModelRunner(), history)
    history.clear()
    assert len(conversation.history) == 1


def test_is_generating_is_seen_by_all_threads():
    stall = Stall()
    conversation = ScriptedModelRunner(["a", stall]).create_conversation()
    thread = threading.Thread(target=lambda: list(conversation.generate_response("hi")))
    thread.start()
    assert stall.reached.wait(100) and conversation.is_generating
    stall.release()
    thread.join(100)
    assert not conversation.is_generating


def test_closing_from_another_thread_ends_the_reader_and_keeps_nothing():
    stall = Stall()
    conversation = ScriptedModelRunner(["a", stall, "b"]).create_conversation()
    stream = conversation.generate_response("hi")
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(stream))
    thread.start()
    assert stall.reached.wait(100)
    stream.close()
    thread.join(100)
    assert not thread.is_alive() and not conversation.is_generating
    assert conversation.history == [] and seen == [Chunk("a")], "neither more text nor an end"


def test_a_slow_async_reader_gets_everything_and_history_waits_for_it():
    conversation = ScriptedModelRunner(["a", "b", "c"]).create_conversation()

    async def main():
        seen = []
        async for response in conversation.generate_response("hi"):
            await asyncio.sleep(0.02)
            if isinstance(response, Chunk):
                assert conversation.history == []
            seen.append(response)
        return seen

    *pieces, end = asyncio.run(main())
    assert [piece.text for piece in pieces] == ["a", "b", "c"]
    assert conversation.history[-1] == end.full_message


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python's, for any open generator
def test_a_closed_event_loop_cancels_the_answer():
    """Neither an error in a thread nor one that runs for ever."""
    conversation = ScriptedModelRunner(["a"] * 1000).create_conversation()
    loop = asyncio.new_event_loop()
    responses = conversation.generate_response("hi").__aiter__()
    assert loop.run_until_complete(responses.__anext__()) == Chunk("a")
    (worker,) = (thread for thread in threading.enumerate() if thread.name == "leap-async")
    loop.close()
    worker.join(100)
    assert not worker.is_alive() and not conversation.is_generating and conversation.history == []


def test_two_event_loops_can_read_concurrently():
    runner = ScriptedModelRunner(*["ok"] * 8)

    async def ask():
        conversation = runner.create_conversation()
        return [response async for response in conversation.generate_response("hi")][-1].full_message.text

    async def many():
        return await asyncio.gather(*(ask() for _ in range(4)))

    texts = []
    threads = [threading.Thread(target=lambda: texts.extend(asyncio.run(many()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert texts == ["ok"] * 8


def test_stop_ends_an_async_stream():
    conversation = ScriptedModelRunner(list("abcdefgh")).create_conversation()

    async def read() -> list[object]:
        seen = []
        stream = conversation.generate_response("hi")
        async for response in stream:
            seen.append(response)
            if len(seen) == 1:
                await asyncio.sleep(0.2)  # the thread that generates would have got to the end
                stream.stop()
        return seen

    *pieces, end = asyncio.run(read())
    assert len(pieces) <= 2 and end.finish_reason is GenerationFinishReason.INTERRUPTED


def test_cancelling_a_reply_does_not_block_the_event_loop(monkeypatch):
    """Where the model is in a host, that is a request."""
    is_free, stop, waited = threading.Event(), ResponseStream.stop, []

    def slowly(stream: ResponseStream) -> None:
        waited.append(is_free.wait(100))
        stop(stream)

    async def cancel() -> None:
        begun = asyncio.Event()
        stream = ScriptedModelRunner(list("abcdefgh")).create_conversation().generate_response("hi")

        async def read() -> None:
            async for _ in stream:
                begun.set()
                await asyncio.sleep(60)

        reading = asyncio.create_task(read())
        await begun.wait()
        reading.cancel()
        await asyncio.sleep(0.05)
        is_free.set()
        await asyncio.wait([reading])

    monkeypatch.setattr(ResponseStream, "stop", slowly)
    asyncio.run(cancel())
    assert waited and all(waited)


def test_a_for_loop_continues_after_next():
    stream = ScriptedModelRunner(["a", "b"]).create_conversation().generate_response("hi")
    assert next(stream) == Chunk("a")
    assert [response for response in stream][0] == Chunk("b")


def test_a_stream_stopped_before_it_began_sends_no_request():
    runner = ScriptedModelRunner("a")
    conversation = runner.create_conversation()
    stream = conversation.generate_response("hi")
    stream.stop()
    (end,) = stream
    assert end.finish_reason is GenerationFinishReason.INTERRUPTED and end.stats is None
    assert conversation.history == [] and runner.requests == [] and not conversation.is_generating


def test_arguments_in_the_returned_history_are_copies():
    conversation = ScriptedModelRunner().create_conversation_from_history(
        [ChatMessage("assistant", function_calls=[LeapFunctionCall("f", {"a": [1]})])]
    )
    conversation.history[0].function_calls[0].arguments["a"].append(2)
    assert conversation.history[0].function_calls[0].arguments == {"a": [1]}


@pytest.mark.parametrize(
    "error",
    [
        LeapGenerationError("broken", hint="mend it"),
        LeapOptionsError("top_p", "too large"),
        LeapConstraintError("no", text="{", problems=["cut"]),
        LeapGenerationPromptExceedContextLengthError(9, 8),
    ],
)
def test_errors_can_be_pickled(error):
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


def test_no_two_calls_of_a_conversation_have_the_same_id():
    named = LeapFunctionCall("look", {}, id="call_1")
    runner = ScriptedModelRunner(*[[FunctionCalls((CALL, CALL))] for _ in range(2)], [FunctionCalls((named, CALL))])
    conversation = runner.create_conversation()
    delivered = []
    for _ in range(3):
        for response in conversation.generate_response("again"):
            if isinstance(response, FunctionCalls):
                delivered += [call.id for call in response.function_calls]
    kept = [call["id"] for message in conversation.export_to_json() for call in message.get("tool_calls", ())]
    assert kept == delivered and len(set(kept)) == 6 and kept[:4] == ["call_0", "call_1", "call_2", "call_3"]
