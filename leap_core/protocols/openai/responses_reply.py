"""Replies to /v1/responses: whole, as typed events, and compacted.

Source: openai 3.54.0, types/responses.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from ...conversation.calls.declaration import referred
from ...conversation.messages import LeapFunctionCall
from ...conversation.responses import Complete, FunctionResult
from ...errors import GenerationStats, LeapError
from ...schemas.json_values import JsonObject
from .replies import (
    ReplyWriter,
    error_object,
    finish_reason,
    status_of,
)
from .responses_request import (
    CALLS,
    CUSTOM,
    ENCRYPTED,
    LOCAL_SHELL,
    NAMESPACE,
    TOOL_SEARCH,
    ResponsesRequest,
    as_functions,
    plain_call,
)


class ResponsesReply(ReplyWriter):
    """The answer to one request; ``model`` is how the request named it. ``on_complete`` is called with a whole answer
    and its chat message, so that another request can continue from it; it says why the answer is not stored, if it is
    not. ``id`` and ``created``: of an answer that is written once more; the same responses become the same events."""

    def __init__(
        self,
        request: ResponsesRequest,
        model: str,
        on_complete: Callable[[JsonObject, JsonObject], str | None] = lambda *_: None,
        *,
        id: str | None = None,
        created: int | None = None,
    ) -> None:
        super().__init__(request.chat)
        self._asked, self._model, self._on_complete = request, model, on_complete
        self.id = id or new_response_id()
        self.stores = request.keep is True or request.echo.get("conversation") is not None
        self.finished: JsonObject | None = None
        """The whole answer, when it has come to its end."""
        self._created = created or int(time.time())
        self._ids = 0
        self._sequence = 0
        self._kinds: dict[str, str] = {}
        """The type of each tool, by its name as the model has it."""
        self._namespaces: dict[str, str] = {}
        for tool in request.echo.get("tools") or ():
            self._note_tool(tool if isinstance(tool, dict) else {})
        self._items: list[JsonObject] = []
        self._open: JsonObject | None = None
        self._text = ""

    def _note_tool(self, tool: JsonObject, namespace: str = "") -> None:
        kind, name = str(tool.get("type")), tool.get("name")
        if kind == NAMESPACE:
            for inner in tool.get("tools") or ():
                self._note_tool(inner, f"{name}.")
            return
        self._kinds[kind if kind in (LOCAL_SHELL, TOOL_SEARCH) else f"{namespace}{name}"] = kind
        if namespace:
            self._namespaces[f"{namespace}{name}"] = namespace[:-1]

    def _whole(self, complete: Complete) -> JsonObject:
        message = complete.full_message
        calls = [self._with_id(call) for call in message.function_calls or ()]
        items = []
        if message.reasoning_content:
            items.append(self._reasoning(message.reasoning_content))
        for result in complete.searches if self._request.search else ():
            items += self._search_items(result)
        if message.text or not calls:
            items.append(self._message(message.text))
        items += [self._call(call) for call in calls]
        self._items = items
        if finish_reason(complete) == "length":
            items[-1]["status"] = "incomplete"
        return self._finished(complete)

    def begin(self) -> bytes:
        opened = self._body("in_progress", [])
        return self._event("response.created", response=opened) + self._event("response.in_progress", response=opened)

    def _text_events(self, text: str) -> Iterator[bytes]:
        if self._open is None or self._open["type"] != "message":
            yield from self._close_item()
            yield from self._open_item(self._message("", "in_progress"))
            yield self._part_event("response.content_part.added", part={**_output_text(""), "logprobs": []})
        self._text += text
        yield self._part_event("response.output_text.delta", delta=text, logprobs=[])

    def _reasoning_events(self, reasoning: str) -> Iterator[bytes]:
        if self._open is None or self._open["type"] != "reasoning":
            yield from self._close_item()
            yield from self._open_item(self._reasoning("", "in_progress"))
        self._text += reasoning
        yield self._part_event("response.reasoning_text.delta", delta=reasoning)

    def _calls_events(self, calls: Sequence[LeapFunctionCall]) -> Iterator[bytes]:
        yield from self._close_item()
        for call in calls:
            yield from self._call_events(self._with_id(call))

    def _search_events(self, result: FunctionResult) -> Iterator[bytes]:
        yield from self._close_item()
        for item in self._search_items(result):
            yield from self._open_item(item)
            yield from self._done(item)

    def _end_events(self, complete: Complete) -> Iterator[bytes]:
        status = "incomplete" if finish_reason(complete) == "length" else "completed"
        yield from self._close_item(status)
        if not self._items:
            yield from self._open_item(self._message("", "in_progress"))
            yield from self._close_item(status)
        body = self._finished(complete)
        yield self._event(f"response.{body['status']}", response=body)

    def failed(self, error: LeapError) -> bytes:
        _, kind, code = status_of(error)
        return self.ended("failed", error_object(error, kind, code)["message"])

    def _finished(self, complete: Complete) -> JsonObject:
        cut = finish_reason(complete) == "length"
        body = self._body("incomplete" if cut else "completed", self._items)
        if cut:
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        body["usage"] = _usage(complete.stats)
        calls = [
            {"id": item["call_id"], "type": "function", "function": {k: item[k] for k in ("name", "arguments")}}
            for item in (plain_call(each) for each in self._items if each["type"] in CALLS and "call_id" in each)
        ]
        message: JsonObject = {"role": "assistant", "content": complete.full_message.text or None}
        if complete.full_message.reasoning_content:
            message["reasoning_content"] = complete.full_message.reasoning_content
        unstored = self._on_complete(body, message | ({"tool_calls": calls} if calls else {}))
        if unstored is not None:
            body["store"] = False
            complete = replace(complete, warnings=(*complete.warnings, unstored))
        self.finished = {**body, "leap": complete.reported()}
        return self.finished

    def so_far(self, status: str, problem: str | None = None) -> JsonObject:
        """The answer as far as it came; ``problem``: why it failed."""
        error = None if problem is None else {"code": "server_error", "message": problem}
        return {**self._body(status, [*self._items, *self._unfinished()]), "error": error}

    def _unfinished(self) -> Iterator[JsonObject]:
        """The item that is being made."""
        if self._open is not None and self._open["type"] == "message":
            yield {**self._open, "status": "incomplete", "content": [_output_text(self._text)]}
        elif self._open is not None and self._open["type"] == "reasoning":
            content = [{"type": "reasoning_text", "text": self._text}]
            yield {**self._open, "status": "incomplete", "content": content}

    def ended(self, status: str, problem: str | None = None) -> bytes:
        """The event that ends a stream whose answer did not come to its own end."""
        kind = "response.failed" if status == "failed" else "response.incomplete"
        return self._event(kind, response=self.so_far(status, problem))

    def _new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}_{hashlib.blake2b(f'{self.id}/{self._ids}'.encode(), digest_size=12).hexdigest()}"

    def _with_id(self, call: LeapFunctionCall) -> LeapFunctionCall:
        return call if call.id else replace(call, id=self._new_id("call"))

    def _body(self, status: str, items: list[JsonObject]) -> JsonObject:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": list(items),
            "usage": None,
            **self._asked.echo,
        }

    def _message(self, text: str, status: str = "completed") -> JsonObject:
        content = [_output_text(text)] if status == "completed" else []
        return {"id": self._new_id("msg"), "type": "message", "role": "assistant", "status": status, "content": content}

    def _reasoning(self, text: str, status: str = "completed") -> JsonObject:
        content = [{"type": "reasoning_text", "text": text}] if status == "completed" else []
        item = {"id": self._new_id("rs"), "type": "reasoning", "summary": [], "content": content, "status": status}
        return {**item, **self._encrypted(text)}

    def _encrypted(self, text: str) -> JsonObject:
        if ENCRYPTED not in self._asked.include or not text:
            return {}
        return {"encrypted_content": base64.b64encode(text.encode()).decode("ascii")}

    def _search_items(self, result: FunctionResult) -> list[JsonObject]:
        """A search of leap's for tools, and the definitions that it found."""
        found = set(referred(result.text) or ())
        tools = [tool for tool in self._asked.echo.get("tools") or () if _is_among(tool, found)]
        about = {"execution": "server", "status": "completed"}
        arguments = dict(result.call.arguments)
        return [
            {"id": self._new_id("tsc"), "type": "tool_search_call", "arguments": arguments, **about},
            {"id": self._new_id("tso"), "type": "tool_search_output", "tools": tools, **about},
        ]

    def _call(self, call: LeapFunctionCall, status: str = "completed") -> JsonObject:
        written = call.to_json()
        kind = self._kinds.get(call.name)
        if kind == CUSTOM:
            given = {"call_id": written["id"], "name": call.name, "input": str(call.arguments.get("input", ""))}
            if (namespace := self._namespaces.get(call.name)) is not None:
                given |= {"namespace": namespace, "name": call.name.removeprefix(f"{namespace}.")}
            return {"id": self._new_id("ctc"), "type": "custom_tool_call", **given, "status": status}
        if kind == LOCAL_SHELL:
            action: JsonObject = {"type": "exec", "command": call.arguments.get("command") or [], "env": {}}
            return {
                "id": self._new_id("lsh"),
                "type": "local_shell_call",
                "call_id": written["id"],
                "action": action,
                "status": status,
            }
        if kind == TOOL_SEARCH:
            about = {"arguments": dict(call.arguments), "execution": "client", "status": status}
            return {"id": self._new_id("tsc"), "type": "tool_search_call", "call_id": written["id"], **about}
        item = {"id": self._new_id("fc"), "type": "function_call", "call_id": written["id"], **written["function"]}
        if (namespace := self._namespaces.get(call.name)) is not None:
            item |= {"namespace": namespace, "name": call.name.removeprefix(f"{namespace}.")}
        return {**item, "status": status}

    def _call_events(self, call: LeapFunctionCall) -> Iterator[bytes]:
        item = self._call(call, "in_progress")
        if item["type"] != "function_call":
            yield from self._other_call_events(item)
            return
        arguments, item["arguments"] = item["arguments"], ""
        yield from self._open_item(item)
        yield self._item_event("response.function_call_arguments.delta", delta=arguments)
        yield self._item_event("response.function_call_arguments.done", name=item["name"], arguments=arguments)
        self._text = arguments
        yield from self._close_item()

    def _other_call_events(self, item: JsonObject) -> Iterator[bytes]:
        """Those of a call that is no function's."""
        if item["type"] == "custom_tool_call":
            text, opened = item["input"], {**item, "input": ""}
            yield from self._open_item(opened)
            yield self._item_event("response.custom_tool_call_input.delta", delta=text)
            yield self._item_event("response.custom_tool_call_input.done", input=text)
        else:
            yield from self._open_item(item)
        yield from self._done({**item, "status": "completed"})

    def _done(self, item: JsonObject) -> Iterator[bytes]:
        yield self._event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        self._open = None

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
            content = [{"type": "reasoning_text", "text": text}]
            item = {**item, "status": status, "content": content, **self._encrypted(text)}
            yield self._part_event("response.reasoning_text.done", text=text)
        else:
            item = {**item, "status": status, "arguments": text}
        yield from self._done(item)

    def _part_event(self, kind: str, **fields: object) -> bytes:
        return self._item_event(kind, content_index=0, **fields)

    def _item_event(self, kind: str, **fields: object) -> bytes:
        assert self._open is not None
        return self._event(kind, item_id=self._open["id"], output_index=len(self._items), **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        value = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return typed_event(kind, value)


class CompactedReply(ResponsesReply):
    """A conversation in short: what the user said, and an item that represents all that was said."""

    def _whole(self, complete: Complete) -> JsonObject:
        said = [message for message in self._asked.own if message["role"] == "user"]
        own = [{**self._message(""), "role": "user", "content": _texts_of(each["content"])} for each in said]
        summary = complete.full_message.text.strip()
        item = {"id": self._new_id("cmp"), "type": "compaction", "encrypted_content": summary}
        return {
            "id": self.id,
            "object": "response.compaction",
            "created_at": self._created,
            "output": [*own, item],
            "usage": _usage(complete.stats),
        }


def _texts_of(content: object) -> list[JsonObject]:
    """The content of a user's message as an item of an answer has it; only texts stay."""
    if isinstance(content, str):
        return [_output_text(content)]
    parts = content if isinstance(content, list) else []
    return [_output_text(part["text"]) for part in parts if part.get("type") == "text"]


def _is_among(tool: JsonObject, names: Collection[str]) -> bool:
    """Whether a tool, or one of a namespace's, has one of these names."""
    return any(isinstance(each, dict) and each.get("name") in names for each in as_functions([tool]))


def new_response_id() -> str:
    """A fresh id."""
    return f"resp_{secrets.token_hex(24)}"


def typed_event(kind: str, value: object) -> bytes:
    """One server-sent event with its type."""
    data = json.dumps(value, separators=(",", ":"), default=str).encode("ascii")
    return b"event: " + kind.encode("ascii") + b"\ndata: " + data + b"\n\n"


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": []}


def _usage(stats: GenerationStats | None) -> JsonObject | None:
    if stats is None:
        return None
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_prompt_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": stats.reasoning_tokens or 0},
        "total_tokens": stats.total_tokens,
    }
