"""What a reader does while it reads: ask again, add messages, register functions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest

from leap_core import ChatMessage, Complete, FunctionCalls, LeapError, LeapFunctionCall, LeapGenerationError
from leap_core.testing import ScriptedModelRunner

CALL = FunctionCalls((LeapFunctionCall("weather", {"city": "Bern"}),))


def roles(conversation):
    return [message.role.value for message in conversation.history]


@pytest.fixture
def conversation():
    return ScriptedModelRunner(["a", "b"], ["c"]).create_conversation()


def test_a_second_answer_is_refused_while_the_first_is_read_in_this_thread(conversation):
    first = conversation.generate_response("one")
    next(first)
    with pytest.raises(LeapGenerationError, match="still being read here"):
        list(conversation.generate_response("two"))
    assert [type(response) for response in first][-1] is Complete
    assert list(conversation.generate_response("two"))[-1].full_message.text == "c"


def test_nested_tasks_are_refused_too(conversation):
    async def nested():
        async for _ in conversation.generate_response("one"):
            with pytest.raises(LeapGenerationError, match="still being read here"):
                async for _ in conversation.generate_response("two"):
                    pass
            with pytest.raises(LeapGenerationError, match="still being read here"):
                list(conversation.generate_response("two"))
            break

    asyncio.run(asyncio.wait_for(nested(), 100))
    assert conversation.history == []


def test_an_awaited_task_is_refused_while_the_first_answer_is_read(conversation):
    async def ask():
        async for _ in conversation.generate_response("two"):
            pass

    async def outer():
        async for _ in conversation.generate_response("one"):
            for wait in (asyncio.create_task(ask()), asyncio.gather(ask(), asyncio.sleep(0))):
                with pytest.raises(LeapGenerationError, match="still being read here"):
                    await wait
            break

    asyncio.run(asyncio.wait_for(outer(), 100))
    assert conversation.history == []


def test_an_answer_begun_outside_the_event_loop_counts_inside_it(conversation):
    first = conversation.generate_response("one")
    next(first)

    async def inside():
        with pytest.raises(LeapGenerationError, match="still being read here"):
            async for _ in conversation.generate_response("two"):
                pass

    asyncio.run(asyncio.wait_for(inside(), 100))


def test_other_threads_and_tasks_wait_for_their_turn(conversation):
    first, ended = conversation.generate_response("one"), []
    next(first)
    other = threading.Thread(target=lambda: ended.extend(conversation.generate_response("two")))
    other.start()
    time.sleep(0.2)
    assert not ended
    list(first)
    other.join(100)
    assert ended[-1].full_message.text == "c"


def test_two_tasks_take_turns():
    conversation = ScriptedModelRunner(["a", "b"], ["c"]).create_conversation()

    async def read(prompt):
        return [response async for response in conversation.generate_response(prompt)][-1].full_message.text

    async def both():
        return await asyncio.gather(read("one"), read("two"))

    assert sorted(asyncio.run(asyncio.wait_for(both(), 100))) == ["ab", "c"]


def test_a_result_appended_during_the_turn_follows_it():
    conversation = ScriptedModelRunner([CALL], ["sunny"]).create_conversation()
    for response in conversation.generate_response("How is the weather?"):
        if isinstance(response, FunctionCalls):
            conversation.append_to_history(ChatMessage("tool", "22 degrees"))
    assert roles(conversation) == ["user", "assistant", "tool"]
    list(conversation.generate_response(None))
    assert roles(conversation) == ["user", "assistant", "tool", "assistant"]


def test_results_of_a_cancelled_turn_are_dropped():
    conversation = ScriptedModelRunner([CALL, "more"], ["c"]).create_conversation()
    with conversation.generate_response("How is the weather?") as stream:
        next(stream)
        conversation.append_to_history(ChatMessage("tool", "22 degrees"))
        conversation.append_to_history(ChatMessage("user", "by the way"))
    assert roles(conversation) == ["user"]


@pytest.mark.parametrize("wrong", ["hello", 5, None, ["user", "hi"], {"role": "user", "content": 5}])
def test_an_invalid_message_is_refused_at_the_call(conversation, wrong):
    with pytest.raises(LeapError):
        conversation.append_to_history(wrong)
    with pytest.raises(LeapError):
        conversation.model_runner.create_conversation_from_history([wrong])
    assert conversation.history == []


def test_objects_are_read_as_messages(conversation):
    runner = conversation.model_runner
    other = runner.create_conversation_from_history([{"role": "user", "content": "hi"}])
    other.append_to_history({"role": "assistant", "content": "ho"})
    assert other.history == [ChatMessage("user", "hi"), ChatMessage("assistant", "ho")]


def test_python_functions_are_declared(conversation):
    def weather(city: str) -> str:
        """The weather of a city."""
        return city

    conversation.register_function(weather)
    assert [(f.name, f.description) for f in conversation.functions] == [("weather", "The weather of a city.")]
    for wrong in ("weather", 5, str):
        with pytest.raises(LeapError, match="neither"):
            conversation.register_function(wrong)


def test_a_reply_stopped_before_its_first_word_leaves_no_empty_message():
    from leap_core import Leap, ModelLoadingOptions

    with Leap.load("builtin", ModelLoadingOptions(slots=1)) as runner:
        conversation = runner.create_conversation()
        stream = conversation.generate_response("Count to 300. " * 60)
        threading.Timer(0.02, stream.stop).start()
        end = list(stream)[-1]
        if not end.full_message.content:
            assert conversation.history == []
            asked = [ChatMessage("user", "Count to 300. " * 60)]
            assert end.stats is None or end.stats.prompt_tokens <= runner.get_prompt_tokens_size(asked)


def test_streams_close_with_aclosing(conversation):
    async def read():
        async with contextlib.aclosing(conversation.generate_response("one")) as stream:
            async for _ in stream:
                break

    asyncio.run(asyncio.wait_for(read(), 100))
    assert conversation.history == [] and not conversation.is_generating
