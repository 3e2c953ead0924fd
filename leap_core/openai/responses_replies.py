"""leap's responses as objects and events of OpenAI's Responses API."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import LeapError
from ..messages import LeapFunctionCall
from ..responses import Chunk, Complete, FunctionCalls, MessageResponse, ReasoningChunk
from ..statistics import GenerationStats
from .errors import error_object, status_of
from .replies import EVENT_STREAM, finish_reason, leap_fields, with_id, with_one_call
from .responses_requests import ResponsesRequest

JsonObject = dict[str, Any]


class ResponsesReply:
    """The answer to one request; ``model`` is how the request named it. ``on_complete`` is called with the chat message
    of a whole answer, so that another request can go on from it; it says why the answer is not stored, if it is not."""

    media_type = EVENT_STREAM

    def __init__(
        self,
        request: ResponsesRequest,
        model: str,
        on_complete: Callable[[str, JsonObject], str | None] = lambda *_: None,
    ) -> None:
        self._request, self._model, self._on_complete = request, model, on_complete
        self.id = f"resp_{secrets.token_hex(24)}"
        self.stores = request.keep is True
        self._created = int(time.time())
        self._sequence = 0
        self._items: list[JsonObject] = []
        self._open: JsonObject | None = None
        self._text = ""

    def whole(self, complete: Complete) -> JsonObject:
        """The answer in one piece."""
        complete = with_one_call(complete) if self._request.chat.single_call else complete
        message = complete.full_message
        calls = [with_id(call) for call in message.function_calls or ()]
        items = []
        if message.reasoning_content:
            items.append(_reasoning(message.reasoning_content))
        if message.text or not calls:
            items.append(_message(message.text))
        items += [_call(call) for call in calls]
        self._items = items
        if finish_reason(complete) == "length":
            items[-1]["status"] = "incomplete"
        return self._finished(complete)

    def begin(self) -> bytes:
        """What a stream opens with."""
        opened = self._body("in_progress", [])
        return self._event("response.created", response=opened) + self._event("response.in_progress", response=opened)

    def pieces(self, response: MessageResponse) -> Iterator[bytes]:
        """The events that one response becomes."""
        if isinstance(response, Chunk):
            if self._open is None or self._open["type"] != "message":
                yield from self._close_item()
                yield from self._open_item(_message("", "in_progress"))
                yield self._part_event("response.content_part.added", part={**_output_text(""), "logprobs": []})
            self._text += response.text
            yield self._part_event("response.output_text.delta", delta=response.text, logprobs=[])
        elif isinstance(response, ReasoningChunk):
            if self._open is None or self._open["type"] != "reasoning":
                yield from self._close_item()
                yield from self._open_item(_reasoning("", "in_progress"))
            self._text += response.reasoning
            yield self._part_event("response.reasoning_text.delta", delta=response.reasoning)
        elif isinstance(response, FunctionCalls):
            yield from self._close_item()
            for call in response.function_calls:
                if self._request.chat.single_call and any(item["type"] == "function_call" for item in self._items):
                    break
                yield from self._call_events(with_id(call))
        elif isinstance(response, Complete):
            status = "incomplete" if finish_reason(response) == "length" else "completed"
            yield from self._close_item(status)
            if not self._items:
                yield from self._open_item(_message("", "in_progress"))
                yield from self._close_item(status)
            body = self._finished(response)
            yield self._event(f"response.{body['status']}", response=body)

    def end(self) -> bytes:
        """What a stream closes with."""
        return b""

    def failed(self, error: LeapError) -> bytes:
        """The event that ends a stream whose generation failed."""
        _, kind, code = status_of(error)
        written = error_object(error, kind, code)
        body = {**self._body("failed", self._items), "error": {"code": "server_error", "message": written["message"]}}
        return self._event("response.failed", response=body)

    def _finished(self, complete: Complete) -> JsonObject:
        cut = finish_reason(complete) == "length"
        body = self._body("incomplete" if cut else "completed", self._items)
        if cut:
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        body["usage"] = _usage(complete.stats)
        calls = [
            {"id": item["call_id"], "type": "function", "function": {k: item[k] for k in ("name", "arguments")}}
            for item in self._items
            if item["type"] == "function_call"
        ]
        message: JsonObject = {"role": "assistant", "content": complete.full_message.text or None}
        if complete.full_message.reasoning_content:
            message["reasoning_content"] = complete.full_message.reasoning_content
        unstored = self._on_complete(self.id, message | ({"tool_calls": calls} if calls else {}))
        notes = self._request.chat.notes
        if unstored is not None:
            body["store"], notes = False, (*notes, unstored)
        return {**body, "leap": leap_fields(complete, notes)}

    def _body(self, status: str, items: list[JsonObject]) -> JsonObject:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": list(items),
            "usage": None,
            **self._request.echo,
        }

    def _call_events(self, call: LeapFunctionCall) -> Iterator[bytes]:
        item = _call(call, "in_progress")
        arguments, item["arguments"] = item["arguments"], ""
        yield from self._open_item(item)
        yield self._item_event("response.function_call_arguments.delta", delta=arguments)
        yield self._item_event("response.function_call_arguments.done", name=call.name, arguments=arguments)
        self._text = arguments
        yield from self._close_item()

    def _open_item(self, item: JsonObject) -> Iterator[bytes]:
        self._open, self._text = item, ""
        yield self._event("response.output_item.added", output_index=len(self._items), item=item)

    def _close_item(self, status: str = "completed") -> Iterator[bytes]:
        item, text = self._open, self._text
        if item is None:
            return
        if item["type"] == "message":
            item = {**item, "status": status, "content": [_output_text(text)]}
            yield self._part_event("response.output_text.done", text=text, logprobs=[])
            yield self._part_event("response.content_part.done", part=_output_text(text))
        elif item["type"] == "reasoning":
            item = {**item, "status": status, "content": [{"type": "reasoning_text", "text": text}]}
            yield self._part_event("response.reasoning_text.done", text=text)
        else:
            item = {**item, "status": status, "arguments": text}
        yield self._event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        self._open = None

    def _part_event(self, kind: str, **fields: object) -> bytes:
        return self._item_event(kind, content_index=0, **fields)

    def _item_event(self, kind: str, **fields: object) -> bytes:
        assert self._open is not None
        return self._event(kind, item_id=self._open["id"], output_index=len(self._items), **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        value = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return typed_event(kind, value)


def typed_event(kind: str, value: object) -> bytes:
    """One server-sent event with its type."""
    data = json.dumps(value, separators=(",", ":"), default=str).encode("ascii")
    return b"event: " + kind.encode("ascii") + b"\ndata: " + data + b"\n\n"


def _message(text: str, status: str = "completed") -> JsonObject:
    content = [_output_text(text)] if status == "completed" else []
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": []}


def _reasoning(text: str, status: str = "completed") -> JsonObject:
    content = [{"type": "reasoning_text", "text": text}] if status == "completed" else []
    return {
        "id": f"rs_{secrets.token_hex(12)}",
        "type": "reasoning",
        "summary": [],
        "content": content,
        "status": status,
    }


def _call(call: LeapFunctionCall, status: str = "completed") -> JsonObject:
    written = call.to_json()
    return {
        "id": f"fc_{secrets.token_hex(12)}",
        "type": "function_call",
        "call_id": written["id"],
        **written["function"],
        "status": status,
    }


def _usage(stats: GenerationStats | None) -> JsonObject | None:
    if stats is None:
        return None
    prompt = stats.prompt_tokens + stats.cached_prompt_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": stats.cached_prompt_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + stats.completion_tokens,
    }
