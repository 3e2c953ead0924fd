"""Anthropic's message batches with its official client; a queue that answers in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anthropic
import pytest

from leap_core import Complete
from leap_core.batch.input.lines import LineRequest
from leap_core.batch.journal.line_result import LineResult, Row
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.calls import LeapFunctionCall
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import GenerationFinishReason
from leap_core.server.foreground import ServerSettings, application
from leap_core.server.job_queue import BatchState
from leap_core.server.models.loaded_model import LoadRequest
from leap_core.server.models.loaded_models import LoadedModels
from leap_core.testing import ScriptedModelRunner

HTTP_LIBRARIES = ("httpx2", "httpx")
CALLS = [LeapFunctionCall("look", {"at": 1})]
TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "integer"}}}}


@dataclass
class Queue:
    """Jobs whose lines a test has answered."""

    settings: list[BatchSettings] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    def submit(self, settings: BatchSettings, cwd: Path) -> str:
        self.settings.append(settings)
        self.states.append("running")
        return str(len(self.settings) - 1)

    def state(self, job: str) -> BatchState | None:
        state = self.states[int(job)]
        return None if state == "removed" else BatchState(state, message="it broke" if state == "failed" else None)

    def cancel(self, job: str) -> None:
        self.states[int(job)] = "cancelled"

    def counts(self) -> dict[str, int]:
        return {}

    def jobs(self, limit: int, only: object = None) -> list[dict[str, Any]]:
        return []

    def requests(self, job: int) -> list[LineRequest]:
        lines = Path(self.settings[job].input.source).read_bytes().splitlines()
        requests = [self.settings[job].reader().read(line) for line in lines]
        return [request for request in requests if isinstance(request, LineRequest)]

    def answer(self, job: int, most: int, state: str = "succeeded") -> None:
        """Write the results of the first lines, the second a failure, and end the job."""
        lines = []
        for n, request in enumerate(self.requests(job)[:most]):
            head = (f"key{n}", str(request.custom_id), "builtin", 0)
            calls = CALLS if request.functions else None
            message = ChatMessage("assistant", f"To {request.messages[-1].text}", function_calls=calls)
            result = LineResult.of_answers(head, [Complete(message, GenerationFinishReason.STOP)])
            if n == 1:
                result = LineResult(*head, error={"code": "context_length_exceeded", "message": "too long"})
            lines.append(result.render(self.settings[job].output_format, Row()) + "\n")
        Path(self.settings[job].output.path).write_text("".join(lines))
        self.states[job] = state


Client = anthropic.AsyncAnthropic


def serving(directory: Path, queue: Queue, use: Callable[[Client], Awaitable[Any]], key: str = "none") -> Any:
    """Run ``use`` with the official client of a new server over the same directory and queue."""

    async def main() -> Any:
        models = LoadedModels(lambda local, _: ScriptedModelRunner(model_id=local.model_id))
        await models.load(LoadRequest("builtin"))
        app = application(models, ServerSettings(api_key=key, jobs=queue, files=directory))
        library = import_module(next(each for each in HTTP_LIBRARIES if find_spec(each)))
        http = anthropic.DefaultAsyncHttpxClient(transport=library.ASGITransport(app))
        settings: dict[str, Any] = {"max_retries": 0, "_strict_response_validation": True}
        async with Client(base_url="http://127.0.0.1", api_key=key, http_client=http, **settings) as client:
            try:
                return await use(client)
            finally:
                await models.close()

    return asyncio.run(main())


def ask(custom_id: str, text: str = "Hello", **given: Any) -> Any:
    params = {"model": "builtin", "max_tokens": 20, "messages": [{"role": "user", "content": text}], **given}
    return {"custom_id": custom_id, "params": params}


async def results(client: Client, id: str) -> dict[str, Any]:
    return {each.custom_id: each.result async for each in await client.messages.batches.results(id)}


def test_every_request_of_a_batch_is_answered_or_an_error_by_itself(tmp_path: Path, leap_home: Path) -> None:
    queue = Queue()
    asked = [
        ask("a", "one", system="Be brief.", stop_sequences=["END"], extra={"a": 1}),
        ask("b", "two"),
        ask("c", "three", tools=[{**TOOL, "defer_loading": True}], tool_choice={"type": "any"}, keep_alive="5m"),
        ask("nobody", model="claude-9"),
        ask("streams", stream=True),
        ask("wrong", messages=7),
        ask("adapted", leap={"options": {"adapters": [{"path": "a.gguf"}]}}),
        ask("misspelled", leap={"groundng": True}),
        {"custom_id": "endless", "params": {"model": "builtin", "messages": []}},
    ]

    async def use(client: Client) -> str:
        batch = await client.messages.batches.create(requests=asked)
        assert (batch.processing_status, batch.results_url, batch.request_counts.processing) == ("in_progress", None, 3)
        assert [request.messages[0].text for request in queue.requests(0)] == ["Be brief.", "two", "three"]
        assert queue.requests(0)[0].options.to_json() == {"max_tokens": 20, "stop": ["END"]}
        (function,), options = queue.requests(0)[2].functions, queue.requests(0)[2].options
        assert (function.name, function.deferred, options.tool_choice) == ("look", True, "required")
        with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
            await client.messages.batches.delete(batch.id)
        queue.answer(0, 3)
        return batch.id

    id = serving(tmp_path, queue, use)

    async def fetch(client: Client) -> None:
        batch = await client.messages.batches.retrieve(id)
        counts = batch.request_counts
        assert batch.processing_status == "ended" and batch.ended_at is not None
        assert (counts.succeeded, counts.errored, counts.processing) == (2, 7, 0)
        found = await results(client, id)
        assert list(map(found.__contains__, "abc")) == [True] * 3 and len(found) == 9
        assert found["a"].message.content[0].text == "To one" and found["a"].message.stop_reason == "end_turn"
        (text, use) = found["c"].message.content
        assert (use.type, use.name, use.input, use.id) == ("tool_use", "look", {"at": 1}, "call_0")
        errors = {name: each.error.error.type for name, each in found.items() if each.type == "errored"}
        wrong = dict.fromkeys(("b", "streams", "wrong", "adapted", "misspelled", "endless"), "invalid_request_error")
        assert errors == {**wrong, "nobody": "not_found_error"}
        deleted = await client.messages.batches.delete(id)
        assert (deleted.id, deleted.type) == (id, "message_batch_deleted")
        assert not list((tmp_path / "messages").iterdir())
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.batches.retrieve(id)

    serving(tmp_path, queue, fetch)


@pytest.mark.parametrize(
    ("state", "expected"), [("cancelled", "canceled"), ("removed", "expired"), ("failed", "errored")]
)
def test_what_was_not_answered_says_why(tmp_path: Path, leap_home: Path, state: str, expected: str) -> None:
    queue = Queue()

    async def use(client: Client) -> None:
        batch = await client.messages.batches.create(requests=[ask("a"), ask("b"), ask("c")])
        queue.answer(0, 1, "running" if state == "cancelled" else state)
        if state == "cancelled":
            ended = await client.messages.batches.cancel(batch.id)
            assert ended.cancel_initiated_at is not None
        ended = await client.messages.batches.cancel(batch.id)
        assert ended.processing_status == "ended" and getattr(ended.request_counts, expected) == 2
        found = await results(client, batch.id)
        assert [found[name].type for name in "abc"] == ["succeeded", expected, expected]

    serving(tmp_path, queue, use)


def test_batches_are_listed_page_by_page_for_their_owner(tmp_path: Path, leap_home: Path) -> None:
    queue = Queue()

    async def use(client: Client) -> None:
        made = [(await client.messages.batches.create(requests=[ask("a")])).id for _ in range(3)][::-1]
        assert [each.id async for each in client.messages.batches.list(limit=2)] == made
        before = await client.messages.batches.list(limit=1, before_id=made[2])
        assert [each.id for each in before.data] == [made[1]] and before.has_more
        for requests in ([], [ask("a"), ask("a")], [ask("a b")]):
            with pytest.raises(anthropic.BadRequestError, match="requests"):
                await client.messages.batches.create(requests=requests)

    async def other(client: Client) -> list[Any]:
        return (await client.messages.batches.list()).data

    serving(tmp_path, queue, use)
    assert serving(tmp_path, queue, other, key="another") == []
