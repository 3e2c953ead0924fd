"""Many at once: generations on one conversation take turns, conversations on one runner do not disturb each other."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from leap_core import Chunk, GenerationFinishReason

PROMPTLY = 100.0


def test_two_generations_on_one_conversation_take_turns(subject, runner):
    conversation = runner.create_conversation()
    prompts = [subject.short(runner) for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        ends = list(threads.map(lambda prompt: list(conversation.generate_response(prompt))[-1], prompts))
    assert [end.finish_reason for end in ends] == [GenerationFinishReason.STOP] * 2
    assert [message.role.value for message in conversation.history] == ["user", "assistant"] * 2
    assert {message.text for message in conversation.history[1::2]} == {end.full_message.text for end in ends}


def test_async_generations_on_one_conversation_take_turns(subject, runner):
    conversation = runner.create_conversation()

    async def read():
        return [response async for response in conversation.generate_response(subject.short(runner))][-1]

    async def main():
        return await asyncio.gather(*(read() for _ in range(3)))

    ends = asyncio.run(main())
    assert [end.finish_reason for end in ends] == [GenerationFinishReason.STOP] * 3
    assert [message.role.value for message in conversation.history] == ["user", "assistant"] * 3


def test_a_waiting_generation_can_be_stopped(subject, runner):
    conversation = runner.create_conversation()
    first = conversation.generate_response(subject.long(runner))
    assert isinstance(next(first), Chunk)
    second = conversation.generate_response(subject.short(runner))
    received = []
    waiting = threading.Thread(target=lambda: received.extend(second))
    waiting.start()
    second.stop()
    waiting.join(PROMPTLY)
    assert [response.finish_reason for response in received] == [GenerationFinishReason.INTERRUPTED]
    assert conversation.is_generating, "the first goes on"
    first.close()
    assert conversation.history == [] and not conversation.is_generating


def test_a_waiting_generation_can_be_cancelled(subject, runner):
    conversation = runner.create_conversation()
    first = conversation.generate_response(subject.long(runner))
    next(first)

    async def main():
        async def read():
            async for _ in conversation.generate_response(subject.short(runner)):
                raise AssertionError("it is not its turn")

        task = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        task.cancel()
        return await asyncio.wait({task}, timeout=PROMPTLY)

    done, pending = asyncio.run(main())
    assert len(done) == 1 and not pending and done.pop().cancelled()
    first.stop()
    *_, end = iter(lambda: next(first, None), None)
    assert end.finish_reason is GenerationFinishReason.INTERRUPTED
    assert len(conversation.history) == 2


def test_conversations_on_one_runner_answer_concurrently(subject, runner):
    prompts = [subject.short(runner) for _ in range(6)]

    def ask(prompt):
        conversation = runner.create_conversation()
        end = list(conversation.generate_response(prompt))[-1]
        assert conversation.history[-1] == end.full_message
        return end.full_message.text

    with ThreadPoolExecutor(6) as threads:
        texts = list(threads.map(ask, prompts))
    assert all("Paris" in text for text in texts)


def test_stopping_one_does_not_affect_the_other(subject, runner):
    one, other = runner.create_conversation(), runner.create_conversation()
    stopped, going = one.generate_response(subject.long(runner)), other.generate_response(subject.long(runner))
    next(stopped)
    next(going)
    stopped.stop()
    *_, end = iter(lambda: next(stopped, None), None)
    assert end.finish_reason is GenerationFinishReason.INTERRUPTED
    assert all(isinstance(next(going), Chunk) for _ in range(20))
    going.close()
