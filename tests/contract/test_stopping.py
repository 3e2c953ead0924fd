"""The ways to end an answer early: each within about a token, each with its rule for the history."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from leap_core import ChatMessage, Chunk, Complete, GenerationFinishReason, LeapGenerationError

PROMPTLY = 100.0
"""Seconds within which a stopped answer must have ended on the slowest machine; a long answer alone proves nothing."""


def is_usable(subject, runner, conversation):
    """The conversation is free again and answers."""
    assert not conversation.is_generating
    *_, end = conversation.generate_response(subject.short(runner))
    return end.finish_reason is GenerationFinishReason.STOP


def test_leaving_the_loop_stops_and_does_not_change_the_history(subject, runner):
    conversation = runner.create_conversation("Be brief.")
    for response in conversation.generate_response(subject.long(runner)):
        assert isinstance(response, Chunk)
        break
    gc.collect()
    assert len(conversation.history) == 1
    assert is_usable(subject, runner, conversation)


def test_closing_the_iterator_stops_and_does_not_change_the_history(subject, runner):
    conversation = runner.create_conversation()
    iterator = iter(conversation.generate_response(subject.long(runner)))
    next(iterator)
    iterator.close()
    assert conversation.history == []
    assert is_usable(subject, runner, conversation)


def test_closing_the_stream_stops_and_does_not_change_the_history(subject, runner):
    conversation = runner.create_conversation()
    with conversation.generate_response(subject.long(runner)) as stream:
        next(stream)
    assert conversation.history == []
    assert is_usable(subject, runner, conversation)


def test_stop_ends_the_answer_and_keeps_its_text(subject, runner):
    conversation = runner.create_conversation()
    stream = conversation.generate_response(subject.long(runner))
    pieces = [next(stream), next(stream), next(stream)]
    stream.stop()
    rest = list(iter(lambda: next(stream, None), None))
    *late, end = rest
    assert isinstance(end, Complete) and end.finish_reason is GenerationFinishReason.INTERRUPTED
    text = "".join(piece.text for piece in pieces + late)
    assert end.full_message.text == text != ""
    assert conversation.history[-1] == end.full_message and len(conversation.history) == 2
    assert is_usable(subject, runner, conversation)


def test_stop_from_another_thread_wakes_the_reader(subject, runner):
    conversation = runner.create_conversation()
    stream = conversation.generate_response(subject.long(runner))
    seen = [next(stream)]
    threading.Thread(target=stream.stop).start()
    seen += iter(lambda: next(stream, None), None)
    assert seen[-1].finish_reason is GenerationFinishReason.INTERRUPTED


def test_stop_before_the_first_iteration_ends_the_stream_at_once(subject, runner):
    conversation = runner.create_conversation()
    stream = conversation.generate_response(subject.long(runner))
    stream.stop()
    responses = list(stream)
    assert responses[-1].finish_reason is GenerationFinishReason.INTERRUPTED
    assert is_usable(subject, runner, conversation)


def test_stop_and_close_after_the_end_are_harmless(subject, runner):
    conversation = runner.create_conversation()
    stream = conversation.generate_response(subject.short(runner))
    end = list(stream)[-1]
    stream.stop()
    stream.close()
    assert end.finish_reason is GenerationFinishReason.STOP and len(conversation.history) == 2


def test_the_handler_stops_a_callback(subject, runner):
    conversation = runner.create_conversation()
    prompt = subject.long(runner)
    conversation.append_to_history(ChatMessage("user", prompt))
    received = []
    begun = threading.Event()

    def receive(response):
        received.append(response)
        begun.set()

    handler = runner.generate_from_conversation(conversation, receive)
    assert begun.wait(PROMPTLY)
    handler.stop()
    assert handler.wait(PROMPTLY)
    assert received[-1].finish_reason is GenerationFinishReason.INTERRUPTED
    assert sum(isinstance(response, Complete) for response in received) == 1
    assert [message.role.value for message in conversation.history] == ["user", "assistant"]


def test_the_handler_waits_for_an_answer(subject, runner):
    conversation = runner.create_conversation_from_history([ChatMessage("user", subject.short(runner))])
    received = []
    assert runner.generate_from_conversation(conversation, received.append).wait(PROMPTLY)
    assert received[-1].finish_reason is GenerationFinishReason.STOP
    assert "".join(r.text for r in received[:-1]) == conversation.history[-1].text


def test_errors_reach_the_callback(subject):
    runner = subject.new_runner()
    conversation = runner.create_conversation("Hi.")
    runner.unload()
    received, errors = [], []
    handler = runner.generate_from_conversation(conversation, received.append, on_error=errors.append)
    assert handler.wait(PROMPTLY)
    assert received == [] and "unloaded" in errors[0].message


async def collect(stream):
    return [response async for response in stream]


def test_async_iteration_gives_the_same_responses(subject, runner):
    conversation = runner.create_conversation()
    *pieces, end = asyncio.run(collect(conversation.generate_response(subject.short(runner))))
    assert isinstance(end, Complete) and end.finish_reason is GenerationFinishReason.STOP
    assert "".join(piece.text for piece in pieces) == end.full_message.text
    assert conversation.history[-1] == end.full_message


def test_async_iteration_raises_errors(subject):
    runner = subject.new_runner()
    conversation = runner.create_conversation()
    runner.unload()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        asyncio.run(collect(conversation.generate_response("Hi.")))


def test_the_event_loop_keeps_running_during_an_answer(subject, runner):
    conversation = runner.create_conversation()

    async def main():
        ticks = 0
        stream = conversation.generate_response(subject.long(runner))

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == 20:
                stream.stop()
        ticking.cancel()
        return ticks, seen

    ticks, seen = asyncio.run(main())
    assert seen >= 20 and ticks >= 20


@pytest.mark.parametrize("after", [1, 5])
def test_cancelling_the_task_stops_and_does_not_change_the_history(subject, runner, after):
    conversation = runner.create_conversation()

    async def main():
        arrived = asyncio.Event()

        async def read():
            seen = 0
            async for _ in conversation.generate_response(subject.long(runner)):
                seen += 1
                if seen == after:
                    arrived.set()

        task = asyncio.create_task(read())
        await asyncio.wait_for(arrived.wait(), PROMPTLY)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PROMPTLY)
        assert not conversation.is_generating

    asyncio.run(main())
    assert conversation.history == []
    assert is_usable(subject, runner, conversation)


@pytest.mark.parametrize("kind", ["short", "long"])
def test_leaving_an_async_loop_does_not_change_the_history(subject, runner, kind):
    """However far ahead of its reader the answer is: one that was not read to its end is not kept."""
    conversation = runner.create_conversation()

    async def main():
        responses = conversation.generate_response(getattr(subject, kind)(runner)).__aiter__()
        await responses.__anext__()
        await asyncio.sleep(0.05)  # time enough to run ahead
        await responses.aclose()

    asyncio.run(main())
    assert conversation.history == []
    assert is_usable(subject, runner, conversation)
