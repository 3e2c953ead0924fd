"""Responses that are fetched again, and those of the background, with the official client; the queue is scripted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest

from leap_core import Complete, FunctionCalls, LeapFunctionCall
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import Chunk, GenerationFinishReason
from leap_core.server.endpoints.responses import durable_responses
from leap_core.server.foreground import ServerSettings, application
from leap_core.server.job_queue import AnswerState, QueuedAnswer
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.testing import ScriptedModelRunner

HTTP_LIBRARIES = ("httpx2", "httpx")
DONE = Complete(ChatMessage("assistant", "One two three."), GenerationFinishReason.STOP)


@dataclass
class Queue:
    """Jobs whose events a test adds."""

    asked: list[QueuedAnswer] = field(default_factory=list)
    state: str = "queued"
    attempt: int = 1
    events: list[dict[str, Any]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def ask(self, answer: QueuedAnswer) -> str:
        self.asked.append(answer)
        return "job"

    def answered(self, job: str, attempt: int, number: int) -> AnswerState | None:
        begin = number + 1 if attempt == self.attempt else 0
        message = "broken" if self.state == "failed" else None
        return AnswerState(self.state, message, self.attempt, len(self.events) - 1, self.events[begin:])

    def cancel(self, job: str) -> None:
        self.state = "cancelled"

    def counts(self) -> dict[str, int]:
        return {}

    def forget(self, job: str) -> None:
        self.forgotten.append(job)

    def say(self, *responses: Any, state: str = "running") -> None:
        self.events += [response.to_json() for response in responses]
        self.state = state


def serving(
    directory: Path, queue: Queue, use: Callable[[openai.AsyncOpenAI], Awaitable[Any]], *scripts: Any, key: str = "none"
) -> Any:
    """Run ``use`` with the official client of a new server over the same directory and queue."""

    async def main() -> Any:
        models = LoadedModels(lambda local, _: ScriptedModelRunner(*scripts, model_id=local.model_id))
        await models.load(LoadRequest("builtin"))
        kept = durable_responses(directory / "responses", key)
        app = application(models, ServerSettings(api_key=key, responses=kept, jobs=queue))
        library = import_module(next(each for each in HTTP_LIBRARIES if find_spec(each)))
        http = openai.DefaultAsyncHttpxClient(transport=library.ASGITransport(app))
        url = "http://127.0.0.1/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=key, http_client=http, max_retries=0) as client:
            try:
                return await use(client)
            finally:
                await models.close()

    return asyncio.run(main())


@pytest.mark.slow
def test_a_background_response_survives_its_server(tmp_path: Path, leap_home: Path) -> None:
    queue = Queue()

    async def begin(client: openai.AsyncOpenAI) -> str:
        response = await client.responses.create(model="builtin", input="Count.", background=True)
        assert (response.status, response.background) == ("queued", True)
        return response.id

    id = serving(tmp_path, queue, begin)
    assert [message.text for message in queue.asked[0].request.messages] == ["Count."]
    assert queue.asked[0].model == "builtin" and queue.asked[0].request.options.rng_seed is not None
    queue.say(Chunk("One "), Chunk("two "))

    async def fetch(client: openai.AsyncOpenAI) -> None:
        half = await client.responses.retrieve(id)
        assert (half.status, half.output_text) == ("in_progress", "One two ")
        with pytest.raises(openai.BadRequestError, match="has not ended"):
            await client.responses.create(model="builtin", input="And?", previous_response_id=id)
        queue.say(Chunk("three."), DONE, state="succeeded")
        whole = await client.responses.retrieve(id)
        assert (whole.id, whole.status, whole.output_text) == (id, "completed", "One two three.")
        queue.events.clear()  # what a job put out is forgotten in time
        assert (await client.responses.retrieve(id)) == whole
        (item,) = (await client.responses.input_items.list(id)).data
        assert item.content[0].text == "Count."  # type: ignore[union-attr]
        later = await client.responses.create(model="builtin", input="And?", previous_response_id=id)
        assert later.output_text == "Four."
        await client.responses.delete(id)
        assert queue.forgotten == ["job"]
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(id)

    serving(tmp_path, queue, fetch, "Four.")


def test_a_stream_is_resumed_without_a_gap(tmp_path: Path, leap_home: Path) -> None:
    """Also when the job's attempt began anew in between."""
    queue = Queue()
    call = FunctionCalls((LeapFunctionCall("look", {"at": 1}),))
    queue.say(Chunk("One "), Chunk("two "), Chunk("three."), call, DONE, state="succeeded")

    async def use(client: openai.AsyncOpenAI) -> None:
        stream = await client.responses.create(model="builtin", input="Count.", background=True, stream=True)
        events = [event async for event in stream]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].type == "response.completed"
        id = events[0].response.id  # type: ignore[union-attr]
        for after in (0, 3, len(events) - 2, len(events) - 1):
            again = await client.responses.retrieve(id, stream=True, starting_after=after)
            assert [event async for event in again] == events[after + 1 :]
        queue.attempt = 2
        again = await client.responses.retrieve(id, stream=True, starting_after=4)
        assert [event async for event in again] == events[5:]

    serving(tmp_path, queue, use)


@pytest.mark.slow
def test_a_stream_continues_when_an_attempt_restarts(tmp_path: Path, leap_home: Path) -> None:
    queue = Queue()
    queue.say(Chunk("One "), Chunk("two "))

    async def use(client: openai.AsyncOpenAI) -> None:
        async def begin_anew() -> None:
            await asyncio.sleep(0.2)
            queue.attempt, queue.events = 2, []
            queue.say(Chunk("One "))
            await asyncio.sleep(0.2)
            queue.say(Chunk("two "), Chunk("three."), DONE, state="succeeded")

        again = asyncio.create_task(begin_anew())
        stream = await client.responses.create(model="builtin", input="Count.", background=True, stream=True)
        events = [event async for event in stream]
        await again
        assert [event.sequence_number for event in events] == list(range(len(events)))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == "One two three." == events[-1].response.output_text  # type: ignore[union-attr]

    serving(tmp_path, queue, use)


@pytest.mark.slow
def test_cancelled_and_failed_responses_have_their_status(tmp_path: Path, leap_home: Path) -> None:
    queue = Queue()

    async def use(client: openai.AsyncOpenAI) -> None:
        running = await client.responses.create(model="builtin", input="Count.", background=True)
        queue.say(Chunk("One "))
        stopped = Complete(ChatMessage("assistant", "One "), GenerationFinishReason.INTERRUPTED)
        queue.say(stopped)
        cancelled = await client.responses.cancel(running.id)
        assert (cancelled.status, cancelled.output_text) == ("cancelled", "One ")
        assert (await client.responses.cancel(running.id)).status == "cancelled"
        queue.events.clear()
        queue.state = "queued"
        failing = await client.responses.create(model="builtin", input="Count.", background=True)
        queue.state = "failed"
        failed = await client.responses.retrieve(failing.id)
        assert failed.status == "failed" and failed.error is not None and failed.error.message == "broken"
        stream = await client.responses.retrieve(failing.id, stream=True)
        assert [event.type async for event in stream][-1] == "response.failed"

    serving(tmp_path, queue, use)


def test_responses_are_retrieved_only_with_their_key(tmp_path: Path, leap_home: Path) -> None:
    async def ask(client: openai.AsyncOpenAI) -> list[str]:
        ids = []
        for store in (True, False):
            response = await client.responses.create(model="builtin", input="Hi", store=store)
            fetched = await client.responses.retrieve(response.id)
            assert (fetched.output_text, fetched.id) == ("Yes.", response.id)
            with pytest.raises(openai.BadRequestError, match="background"):
                await client.responses.cancel(response.id)
            ids.append(response.id)
        short, long = [
            await client.responses.input_tokens.count(model="builtin", input=text) for text in ("a", "a b c")
        ]
        assert long.input_tokens == short.input_tokens + 2 and long.object == "response.input_tokens"
        return ids

    stored, fleeting = serving(tmp_path, Queue(), ask, "Yes.", "Yes.", key="mine")

    async def again(client: openai.AsyncOpenAI) -> None:
        assert (await client.responses.retrieve(stored)).output_text == "Yes."
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(fleeting)

    serving(tmp_path, Queue(), again, key="mine")

    async def other(client: openai.AsyncOpenAI) -> None:
        for path in (stored, "diary"):
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(path)

    serving(tmp_path, Queue(), other, key="other")


def test_items_of_the_input_are_listed_page_by_page(tmp_path: Path, leap_home: Path) -> None:
    async def use(client: openai.AsyncOpenAI) -> None:
        asked: Any = [{"role": "user", "content": text} for text in ("a", "b", "c")]
        response = await client.responses.create(model="builtin", input=asked)
        first = await client.responses.input_items.list(response.id, order="asc", limit=2)
        assert (first.has_more, [item.content[0].text for item in first.data]) == (True, ["a", "b"])  # type: ignore[union-attr]
        rest = await client.responses.input_items.list(response.id, order="asc", after=first.last_id)
        assert (rest.has_more, [item.content[0].text for item in rest.data]) == (False, ["c"])  # type: ignore[union-attr]

    serving(tmp_path, Queue(), use, "Yes.")


def test_a_response_of_a_disk_that_was_full_meanwhile_can_be_gone_on_from(tmp_path: Path, leap_home: Path) -> None:
    queue = Queue()

    async def use(client: openai.AsyncOpenAI) -> None:
        (tmp_path / "responses").write_text("no directory yet")
        response = await client.responses.create(model="builtin", input="Count.", background=True)
        (tmp_path / "responses").unlink()
        queue.say(Chunk("One two three."), DONE, state="succeeded")
        again = await client.responses.create(model="builtin", input="And?", previous_response_id=response.id)
        assert again.output_text == "Four."

    serving(tmp_path, queue, use, "Four.")


def test_a_response_deleted_during_a_read_stays_deleted(tmp_path: Path, leap_home: Path) -> None:
    queue, looks, goes_on = Queue(), threading.Event(), threading.Event()

    def answered(job: str, attempt: int, number: int) -> AnswerState | None:
        looks.set()
        assert goes_on.wait(100)
        return None

    async def use(client: openai.AsyncOpenAI) -> None:
        response = await client.responses.create(model="builtin", input="Count.", background=True)
        queue.answered = answered  # type: ignore[method-assign]
        look = asyncio.create_task(client.responses.retrieve(response.id))
        await asyncio.to_thread(looks.wait, 10)
        await client.responses.delete(response.id)
        goes_on.set()
        for looking in (look, client.responses.retrieve(response.id)):
            with pytest.raises(openai.NotFoundError):
                await looking

    serving(tmp_path, queue, use)
