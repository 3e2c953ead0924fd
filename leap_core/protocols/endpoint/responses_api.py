"""OpenAI's Responses API, for endpoints that have no chat completions: bodies, and events as chunks of a chat.

Source: openai 3.54.0, types/responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...conversation.messages import ChatMessageRole
from ...conversation.options import GENERATION
from ...conversation.request import Request
from ...conversation.responses import MessageResponse
from ...errors import LeapEndpointError, LeapOptionsError
from ...schemas.json_values import JsonObject
from .bodies import SENT, ReplyReader, chat_body

PATH = "/responses"
OPTIONS = {row.chat[0]: row.responses for row in GENERATION.values() if row.responses}
"""Fields of chat completions by those of this API."""
REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


def responses_body(request: Request) -> JsonObject:
    """A request, see ``chat_body``. Raises LeapOptionsError for an option that it has no field for."""
    chat = chat_body(request)
    for name in chat:
        if name in SENT and name not in OPTIONS:
            raise LeapOptionsError(name, "this endpoint has the Responses API alone, which has no field for it")
    body: JsonObject = {own: chat[name] for name, own in OPTIONS.items() if name in chat}
    if "chat_template_kwargs" in chat:
        body["chat_template_kwargs"] = chat["chat_template_kwargs"]
    body |= {"input": [item for each in chat["messages"] for item in _items(each)], "stream": True, "store": False}
    if "logprobs" in chat:
        body["include"] = ["message.output_text.logprobs"]
    if "tools" in chat:
        body["tools"] = [{"type": "function", **each["function"]} for each in chat["tools"]]
    choice = chat.get("tool_choice")
    if choice is not None:
        body["tool_choice"] = {"type": "function", **choice["function"]} if isinstance(choice, dict) else choice
    shape = chat.get("response_format")
    if shape is not None:
        body["text"] = {"format": {"type": shape["type"], **shape.get("json_schema", {})}}
    return body


def _items(message: JsonObject) -> Iterator[JsonObject]:
    """A message of a chat as items of an input."""
    role, content = message["role"], message.get("content")
    if role == ChatMessageRole.TOOL.value:
        output = [_part(part, "input_text") for part in content] if isinstance(content, list) else content or ""
        call_id = message.get("tool_call_id") or "call_0"
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
        return
    is_answer = role == ChatMessageRole.ASSISTANT.value
    kind = "output_text" if is_answer else "input_text"
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    written = [_part(part, kind) for part in parts if part.get("text") != "" or not is_answer]
    if written:
        yield {"type": "message", "role": role, "content": written}
    for n, call in enumerate(message.get("tool_calls") or ()):
        yield {"type": "function_call", "call_id": call.get("id") or f"call_{n}", **call["function"]}


def _part(part: JsonObject, kind: str) -> JsonObject:
    if part.get("type") == "text":
        return {"type": kind, "text": part["text"]}
    if part.get("type") == "image_url":
        return {"type": "input_image", "image_url": part["image_url"]["url"]}
    return part


class ResponsesReader:
    """Hands events on to the reader of a chat's reply, as chunks. ``failure``: the error for an event that is one."""

    def __init__(self, reply: ReplyReader, failure: Callable[[object], LeapEndpointError]) -> None:
        self._reply, self._failure = reply, failure

    @property
    def has_begun(self) -> bool:
        return self._reply.has_begun

    @property
    def has_ended(self) -> bool:
        return self._reply.has_ended

    def feed(self, value: object) -> Iterator[MessageResponse]:
        """The responses in an event, or in a whole answer. Raises LeapEndpointError for one that failed."""
        if not isinstance(value, dict):
            return
        if value.get("object") == "response":
            for item in value.get("output") or ():
                yield from self._item(item, whole=True)
            yield from self._end(value)
            return
        kind = value.get("type")
        if kind == "response.output_text.delta":
            yield from self._chunk({"content": value.get("delta")}, logprobs=value.get("logprobs"))
        elif kind == "response.refusal.delta":
            yield from self._chunk({"refusal": value.get("delta")})
        elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            yield from self._chunk({"reasoning_content": value.get("delta")})
        elif kind == "response.output_item.done":
            yield from self._item(value.get("item"), whole=False)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            yield from self._end(value.get("response"))
        elif kind == "error":
            raise self._failure({"error": value})

    def _item(self, item: object, *, whole: bool) -> Iterator[MessageResponse]:
        """A finished item: calls, and the texts of an answer that comes whole."""
        if not isinstance(item, dict):
            return
        if item.get("type") == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            yield from self._chunk({"tool_calls": [{"id": item.get("call_id"), "function": function}]})
        elif whole and item.get("type") == "message":
            for part in item.get("content") or ():
                if isinstance(part, dict):
                    delta = {"content": part.get("text"), "refusal": part.get("refusal")}
                    yield from self._chunk(delta, logprobs=part.get("logprobs"))
        elif whole and item.get("type") == "reasoning":
            yield from self._chunk({"reasoning_content": item.get("content") or item.get("summary")})

    def _end(self, response: object) -> Iterator[MessageResponse]:
        if not isinstance(response, dict):
            return
        if response.get("status") == "failed" or response.get("error"):
            raise self._failure({"error": response.get("error")})
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        usage = response.get("usage")
        chunk: JsonObject = {"choices": [{"delta": {}, "finish_reason": REASONS.get(str(reason), "stop")}]}
        if isinstance(usage, dict):
            chunk["usage"] = {
                "prompt_tokens": usage.get("input_tokens"),
                "completion_tokens": usage.get("output_tokens"),
                "prompt_tokens_details": usage.get("input_tokens_details"),
            }
        yield from self._reply.feed(chunk)

    def _chunk(self, delta: JsonObject, *, logprobs: object = None) -> Iterator[MessageResponse]:
        choice = {"delta": delta, "logprobs": {"content": logprobs} if logprobs else None}
        yield from self._reply.feed({"choices": [choice]})
