"""Conversations of OpenAI's Responses API: items that requests continue from, and that their answers are added to."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import LeapSerializationError
from ...protocols.openai.responses_request import messages_of
from ...schemas.json_values import JsonObject, list_at, object_at
from ..http import STORE, AsciiJSON, Refused, read_json
from ..records import not_found, page_of
from .responses import KeptResponses

MOST_ADDED = 20
MOST_LISTED = 100
KINDS = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


class Conversations:
    """Conversations among the things in ``kept``. ``settle`` notes the end of a response of the background."""

    def __init__(self, kept: KeptResponses, settle: Callable[[str], None] = lambda _: None) -> None:
        self._kept, self.settle = kept, settle
        self._changing = threading.Lock()

    def routes(self) -> list[Route]:
        one, items = "/v1/conversations/{id}", "/v1/conversations/{id}/items"
        return [
            Route("/v1/conversations", self.create, methods=["POST"]),
            Route(one, self.conversation),
            Route(one, self.update, methods=["POST"]),
            Route(one, self.remove, methods=["DELETE"]),
            Route(items, self.list_items),
            Route(items, self.add_items, methods=["POST"]),
            Route(items + "/{item}", self.item),
            Route(items + "/{item}", self.remove_item, methods=["DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        """A new conversation, with ``items`` and ``metadata`` where they are given."""
        body = object_at(await read_json(request), "body")
        items = _added(body["items"]) if body.get("items") else []
        record = {"id": f"conv_{secrets.token_hex(24)}", "created_at": int(time.time()), "pending": []}
        record |= {"metadata": object_at(body.get("metadata") or {}, "metadata"), "items": items}
        await STORE.run(self._kept.keep, record, durable=True)
        return AsciiJSON(_conversation(record))

    async def conversation(self, request: Request) -> Response:
        """A conversation's object."""
        return AsciiJSON(_conversation(await STORE.run(self._settled, request.path_params["id"])))

    async def update(self, request: Request) -> Response:
        """Other ``metadata``."""
        body = object_at(await read_json(request), "body")
        metadata = object_at(body.get("metadata") or {}, "metadata")
        id = request.path_params["id"]
        return AsciiJSON(
            _conversation(await STORE.run(self._change, id, lambda record: record.update(metadata=metadata)))
        )

    async def remove(self, request: Request) -> Response:
        """Forget a conversation, and its items."""
        id = request.path_params["id"]
        await STORE.run(self._get, id)
        await STORE.run(self._kept.remove, id)
        return AsciiJSON({"id": id, "object": "conversation.deleted", "deleted": True})

    async def list_items(self, request: Request) -> Response:
        """The items, the newest first unless ``order`` is asc; beyond ``after``, at most ``limit``."""
        items = list((await STORE.run(self._settled, request.path_params["id"]))["items"])
        if request.query_params.get("order", "desc") == "desc":
            items.reverse()
        page, ends = page_of(items, request.query_params, MOST_LISTED)
        return AsciiJSON({"object": "list", "data": page, **ends})

    async def add_items(self, request: Request) -> Response:
        """Add items at the end."""
        items = _added(object_at(await read_json(request), "body").get("items"))
        await STORE.run(self._change, request.path_params["id"], lambda record: record["items"].extend(items))
        page, ends = page_of(items, {}, MOST_ADDED)
        return AsciiJSON({"object": "list", "data": page, **ends})

    async def item(self, request: Request) -> Response:
        """One item."""
        record = await STORE.run(self._settled, request.path_params["id"])
        return AsciiJSON(_of_id(record, request.path_params["item"]))

    async def remove_item(self, request: Request) -> Response:
        """Remove an item."""

        def remove(record: JsonObject) -> None:
            record["items"].remove(_of_id(record, request.path_params["item"]))

        return AsciiJSON(_conversation(await STORE.run(self._change, request.path_params["id"], remove)))

    def history(self, id: str) -> list[JsonObject]:
        """Its chat messages. Raises LeapSerializationError while a response of the background is being made for it,
        Refused (404)."""
        record = self._settled(id)
        if record["pending"]:
            raise LeapSerializationError(f"the response {record['pending'][0]!r} has not ended", path="conversation")
        return messages_of(record["items"])

    def add(self, id: str, given: object, output: list[JsonObject]) -> str | None:
        """Add what a request said and what was answered; why that could not be done, if it could not."""
        try:
            self._change(id, lambda record: record["items"].extend([*_with_ids(given), *output]))
        except Refused:
            return "the conversation was deleted meanwhile"
        return None

    def expect(self, id: str, response: str) -> None:
        """Have what a response of the background says added when it has ended."""
        self._change(id, lambda record: record["pending"].append(response))

    def _settled(self, id: str) -> JsonObject:
        """The conversation with the responses of the background that have ended."""
        record = self._get(id)
        return self._change(id, lambda _: None) if record["pending"] else record

    def _change(self, id: str, change: Callable[[JsonObject], object]) -> JsonObject:
        with self._changing:
            record = self._get(id)
            record = {**record, "items": list(record["items"]), "pending": []}
            for response in self._get(id)["pending"]:
                self.settle(response)
                answered: JsonObject = {"body": None}  # it was deleted
                with suppress(Refused):
                    answered = self._kept.get(response)
                if "body" not in answered:
                    record["pending"].append(response)
                elif "messages" in answered:
                    record["items"] += [*_with_ids(answered["input"]), *answered["body"]["output"]]
            change(record)
            self._kept.keep(record, durable=True)
            return record

    def _get(self, id: str) -> JsonObject:
        if id.startswith("conv_"):
            with suppress(Refused):
                return self._kept.get(id)
        raise not_found("conversation", id)


def _added(value: object) -> list[JsonObject]:
    items = list_at(value, "items")
    if not 1 <= len(items) <= MOST_ADDED:
        raise LeapSerializationError(f"expected 1 to {MOST_ADDED} items", path="items")
    messages_of(items)  # what is wrong is said now
    return _with_ids(items)


def _with_ids(given: object) -> list[JsonObject]:
    """The items of an ``input`` that was read, each with an id and in its whole form."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list_at(given or [], "input")
    return [_whole(object_at(item, "input")) for item in items]


def _whole(item: JsonObject) -> JsonObject:
    kind = item.get("type", "message")
    whole = {"status": "completed", **item, "type": kind}
    whole["id"] = item.get("id") or f"{KINDS.get(kind, 'item')}_{secrets.token_hex(12)}"
    if kind == "message":
        content = item.get("content")
        text = "output_text" if item.get("role") == "assistant" else "input_text"
        parts = [{"type": text, "text": content}] if isinstance(content, str) else content or []
        whole["content"] = [_part(part) for part in parts]
    return whole


def _part(part: JsonObject) -> JsonObject:
    if part.get("type") == "output_text":
        return {"annotations": [], "logprobs": [], **part}
    return {"detail": "auto", **part} if part.get("type") == "input_image" else part


def _of_id(record: JsonObject, id: str) -> JsonObject:
    for item in record["items"]:
        if item["id"] == id:
            return dict(item)
    raise not_found("item", id)


def _conversation(record: JsonObject) -> JsonObject:
    about = {name: record[name] for name in ("id", "created_at", "metadata")}
    return {**about, "object": "conversation"}
