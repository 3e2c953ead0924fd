"""Responses that are fetched, followed, cancelled and deleted by their ids."""

from __future__ import annotations

import asyncio
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...conversation.loading_options import refuse_adapters
from ...conversation.request import Request as Asked
from ...conversation.responses import Complete, GenerationFinishReason, MessageResponse
from ...errors import LeapError, LeapSerializationError
from ...protocols.openai.replies import COMMENT, EVENT_STREAM
from ...protocols.openai.requests import GenerationRequest
from ...protocols.openai.responses_reply import ResponsesReply, new_response_id
from ...protocols.openai.responses_request import ResponsesRequest
from ...schemas.json_values import JsonObject
from ..http import STORE, AsciiJSON, Refused
from ..job_queue import JobQueue, QueuedAnswer, loading_of
from ..keep_alive import PING_SECONDS, PingedStream
from ..models.loaded_models import LoadedModels
from ..records import Records, not_found, owner_of, page_of

MOST_KEPT = 1000
"""Responses in memory; the oldest are forgotten."""


class KeptResponses:
    """Responses by their ids, each an object: ``messages`` are the chat messages that it ends, ``body`` the response,
    ``input`` what was asked. ``records`` keeps those that are asked to be kept for good; it waits for the disk. All
    others are in memory alone: what nobody asks to be kept is not written down."""

    def __init__(self, records: Records | None = None) -> None:
        self.records = records
        self._guard = threading.RLock()
        self._memory: OrderedDict[str, JsonObject] = OrderedDict()

    def keep(self, record: JsonObject, *, durable: bool) -> str | None:
        """Keep a response in memory, or for good where ``durable``; why that could not be done, if it could not."""
        problem = None
        with self._guard:
            if durable and self.records is not None:
                try:
                    self.records.write(record)
                    self._memory.pop(record["id"], None)  # of a disk that was full before
                    return None
                except OSError as error:
                    problem = f"the response is kept in memory only: it cannot be written: {error.strerror or error}"
            self._memory[record["id"]] = record
            while len(self._memory) > MOST_KEPT:
                self._memory.popitem(last=False)
        return problem

    def update(self, record: JsonObject) -> None:
        """Keep for good what a response has become. Raises Refused (404) where it was removed meanwhile."""
        with self._guard:
            self.get(record["id"])
            self.keep(record, durable=True)

    def get(self, id: str) -> JsonObject:
        """A response. Raises Refused (404) where it is not kept."""
        with self._guard:
            record = self._memory.get(id)
        if record is None and self.records is not None:
            return self.records.get(id)
        if record is None:
            raise not_found("response", id)
        return record

    def remove(self, id: str) -> None:
        """Forget a response. Raises Refused (404)."""
        with self._guard:
            self.get(id)
            self._memory.pop(id, None)
            if self.records is not None:
                self.records.remove(id)

    def history(self, id: str) -> list[JsonObject]:
        """The messages up to and with this response. Raises LeapSerializationError when it is not kept, or has not
        ended."""
        record: JsonObject = {}
        with suppress(Refused):
            record = self.get(id)
        if not record or "items" in record:
            raise LeapSerializationError(f"there is no response {id!r}", path="previous_response_id")
        if "messages" not in record:
            raise LeapSerializationError(f"the response {id!r} has not ended", path="previous_response_id")
        return list(record["messages"])


def durable_responses(directory: Path, api_key: str | None) -> KeptResponses:
    """Responses of which those that are asked to be kept (``store: true``) lie in this directory, by their random ids,
    for servers of the same key. Nothing else can be named by an id: neither sessions nor files."""
    return KeptResponses(Records(directory, "response", owner_of(api_key)))


LOOK_SECONDS = 0.05
MOST_LISTED = 100
STATUSES = {"queued": "queued", "running": "in_progress", "failed": "failed", "cancelled": "cancelled"}
SEQUENCE = re.compile(rb'"sequence_number":(\d+)')


class StoredResponses:
    """Responses in ``kept``; those of the background are answered by ``queue``."""

    def __init__(
        self, models: LoadedModels, kept: KeptResponses, queue: JobQueue, ping_interval: float = PING_SECONDS
    ) -> None:
        self._models, self._kept, self._queue = models, kept, queue
        self._ping_interval = ping_interval

    def routes(self) -> list[Route]:
        return [
            Route("/v1/responses/{id}", self.response),
            Route("/v1/responses/{id}", self.remove, methods=["DELETE"]),
            Route("/v1/responses/{id}/cancel", self.cancel, methods=["POST"]),
            Route("/v1/responses/{id}/input_items", self.input_items),
        ]

    async def begin(
        self,
        asked: ResponsesRequest,
        body: JsonObject,
        history: list[JsonObject],
        on_begun: Callable[[str], object] = lambda _: None,
    ) -> Response:
        """Have a request answered in the background: its response, or the stream of it. ``on_begun`` gets its id."""
        chat = asked.chat
        model = await self._models.described(chat.model)
        options = chat.options
        adapters = model.named_adapters(chat.model)
        if adapters is not None:
            options = replace(options, adapters=adapters)
        else:
            refuse_adapters(options.adapters, model.name)
        if options.rng_seed is None:  # an attempt that begins anew says the same
            options = replace(options, rng_seed=secrets.randbits(31))
        answer = QueuedAnswer(
            Asked(chat.messages, chat.functions, options),
            model.load_request.reference,
            loading_of(model),
            model.load_request.cwd or Path.cwd(),
        )
        job = await STORE.run(self._queue.ask, answer)
        record: JsonObject = {
            "id": new_response_id(),
            "created_at": int(time.time()),
            "model": chat.model or model.name,
            "before": [*history, *asked.own],
            "input": body.get("input"),
            "echo": asked.echo,
            "single_call": chat.single_call,
            "notes": list(chat.notes),
            "document_notes": list(chat.document_notes),
            "job": job,
        }
        await STORE.run(self._kept.keep, record, durable=True)
        await STORE.run(on_begun, record["id"])
        if chat.stream:
            return self._stream(record, -1, chat.ping_interval)
        return AsciiJSON(await STORE.run(self.settled, record))

    async def response(self, request: Request) -> Response:
        """A response as it is now; with ``stream=true`` its events, those beyond ``starting_after`` alone."""
        record = await self._found(request)
        if request.query_params.get("stream", "false").lower() not in ("true", "1"):
            return AsciiJSON(await STORE.run(self.settled, record))
        after = request.query_params.get("starting_after", "-1")
        if not re.fullmatch(r"-1|\d{1,9}", after):
            raise LeapSerializationError("expected the number of an event", path="starting_after")
        if "job" not in record:
            raise LeapSerializationError("only a response of the background is streamed again", path="stream")
        return self._stream(record, int(after))

    async def cancel(self, request: Request) -> Response:
        """End a response of the background; one that has ended stays as it is."""
        record = await self._found(request)
        if "job" not in record:
            raise LeapSerializationError("only a response of the background can be cancelled", path="id")
        body = await STORE.run(self.settled, record)
        if body["status"] in ("queued", "in_progress"):
            await STORE.run(self._queue.cancel, record["job"])
            body = {**await STORE.run(self.settled, record)}
            if body["status"] in ("queued", "in_progress"):  # it ends within a token
                body["status"] = "cancelled"
        return AsciiJSON(body)

    async def remove(self, request: Request) -> Response:
        """Forget a response; one that is being made ends."""
        id = request.path_params["id"]
        record = await self._found(request)
        await STORE.run(self._kept.remove, id)
        if "job" in record:
            await STORE.run(self._queue.forget, record["job"])
        return AsciiJSON({"id": id, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        """What was asked, as items."""
        record = await self._found(request)
        given = record.get("input") or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        data = [_item(record["id"], n, item) for n, item in enumerate(items)]
        if request.query_params.get("order", "desc") == "desc":
            data.reverse()
        page, ends = page_of(data, request.query_params, MOST_LISTED)
        return AsciiJSON({"object": "list", "data": page, **ends})

    def settled(self, record: JsonObject) -> JsonObject:
        """The response as it is now; when it has ended, it is kept so. Waits for the disk."""
        if "body" in record:
            return dict(record["body"])
        said: list[JsonObject] = []
        reply = self._reply(record, said.append)
        state = self._queue.answered(record["job"], 0, -1)
        if state is None:
            body = reply.so_far("failed", "its job was removed")
        else:
            for _ in _events(reply, state.events):
                pass
            if state.state == "succeeded" and reply.finished is not None:
                body = reply.finished
            else:
                body = reply.so_far(STATUSES.get(state.state, "failed"), state.message)
        if state is None or state.is_final:
            messages = {"messages": [*record["before"], *said]} if said else {}
            self._kept.update({**record, **messages, "body": body})
        return body

    def settle(self, id: str) -> None:
        """Note the end of a response of the background, so that another can continue from it."""
        with suppress(Exception):
            self.settled(self._kept.get(id))

    def _stream(self, record: JsonObject, after: int, ping_interval: float | None = None) -> Response:
        interval = self._ping_interval if ping_interval is None else ping_interval
        return PingedStream(self._follow(record, after), EVENT_STREAM, interval, lambda: COMMENT)

    async def _follow(self, record: JsonObject, after: int) -> AsyncIterator[bytes]:
        """The events beyond the one with this number, as they come."""
        attempt, number = 0, -1
        reply = self._reply(record)
        pieces = [reply.begin()]
        while True:
            state = await STORE.run(self._queue.answered, record["job"], attempt, number)
            if state is None:
                yield reply.ended("failed", "its job was removed")
                return
            if attempt and state.attempt != attempt:  # the same once more: what was sent is not sent again
                reply = self._reply(record)
                pieces = [reply.begin()]
            attempt, number = state.attempt, state.number
            pieces += _events(reply, state.events)
            over = reply.finished is not None or state.is_final
            if over and reply.finished is None:
                pieces.append(reply.ended(STATUSES.get(state.state, "failed"), state.message))
            for event in b"".join(pieces).split(b"\n\n"):
                found = SEQUENCE.search(event)
                if found is not None and int(found[1]) > after:
                    after = int(found[1])
                    yield event + b"\n\n"
            if over:
                return
            pieces = []
            await asyncio.sleep(LOOK_SECONDS)

    async def _found(self, request: Request) -> JsonObject:
        """The response that a path names. Raises Refused (404)."""
        record = await STORE.run(self._kept.get, request.path_params["id"])
        if "body" not in record and "job" not in record:  # a conversation is kept beside responses
            raise not_found("response", record["id"])
        return record

    def _reply(self, record: JsonObject, on_message: Callable[[JsonObject], object] = lambda _: None) -> ResponsesReply:
        def complete(_body: JsonObject, message: JsonObject) -> None:
            on_message(message)

        id, created = record["id"], record["created_at"]
        chat = GenerationRequest(
            single_call=record["single_call"],
            notes=tuple(record["notes"]),
            document_notes=tuple(record.get("document_notes", ())),
        )
        asked = ResponsesRequest(chat, [], None, True, record["echo"], background=True)
        return ResponsesReply(asked, record["model"], complete, id=id, created=created)


def _events(reply: ResponsesReply, events: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    for event in events:
        if event.get("type") == "notice":
            continue
        try:
            response = MessageResponse.from_json(dict(event))
        except LeapError:  # of a later revision
            continue
        if isinstance(response, Complete) and response.finish_reason is GenerationFinishReason.INTERRUPTED:
            continue  # cancelled, as the job's state says
        yield from reply.pieces(response)


def _item(id: str, n: int, item: JsonObject) -> JsonObject:
    if item.get("type", "message") != "message":
        return {"id": f"{id}_{n}", **item}
    content = item.get("content")
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    parts = [{"type": kind, "text": content}] if isinstance(content, str) else content
    return {"id": f"msg_{id[5:]}_{n}", "type": "message", "status": "completed", **item, "content": parts}
