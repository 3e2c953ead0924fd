"""leap's responses as messages and events of Anthropic's Messages API."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
import secrets
from collections.abc import Iterator
from typing import Any

from ..errors import LeapError, LeapGenerationPromptExceedContextLengthError
from ..messages import LeapFunctionCall
from ..openai.errors import STATUSES, status_of
from ..openai.replies import EVENT_STREAM, finish_reason, leap_fields, with_id, with_one_call
from ..openai.requests import GenerationRequest
from ..openai.responses_replies import typed_event
from ..options import GenerationOptions
from ..responses import Chunk, Complete, FunctionCalls, MessageResponse, ReasoningChunk
from ..statistics import GenerationStats


STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""By HTTP status; the others are ``api_error``."""


def error_body(status: int, error: LeapError) -> JsonObject:
    """Anthropic's error object."""
    message = error.message if error.hint is None else f"{error.message} ({error.hint})"
    if isinstance(error, LeapGenerationPromptExceedContextLengthError):  # by these words clients know it
        message = f"prompt is too long: {error.prompt_tokens} tokens > {error.context_size} maximum"
    return {"type": "error", "error": {"type": ERROR_TYPES.get(status, "api_error"), "message": message}}


def batch_error(custom_id: str, code: str, message: str) -> JsonObject:
    """A line of a message batch's results for a request that failed; ``code`` as in OpenAI's error object."""
    status = next((row[1] for row in STATUSES if row[3] == code), 500)
    error = {"type": ERROR_TYPES.get(status, "api_error"), "message": message}
    return {"custom_id": custom_id, "result": {"type": "errored", "error": {"type": "error", "error": error}}}


def batch_answer(custom_id: str, complete: Complete, model: str, id: str) -> JsonObject:
    """A line of a message batch's results. The same answer becomes the same line."""
    reply = MessagesReply(GenerationRequest(None, GenerationOptions()), model, id=id)
    return {"custom_id": custom_id, "result": {"type": "succeeded", "message": reply.whole(complete)}}


class MessagesReply:
    """The answer to one request; ``model`` is how the request named it."""

    media_type = EVENT_STREAM

    def __init__(self, request: GenerationRequest, model: str, *, id: str | None = None) -> None:
        self._request, self._model = request, model
        self.id = id or f"msg_{secrets.token_hex(12)}"
        self.stores = False
        self.prompt_tokens: int | None = None
        """The tokens of the prompt, as far as they are known when the answer begins."""
        self._blocks = 0
        self._open = ""
        self._called = 0

    def whole(self, complete: Complete) -> JsonObject:
        """The answer in one piece."""
        complete = with_one_call(complete) if self._request.single_call else complete
        message = complete.full_message
        blocks: list[JsonObject] = []
        if message.reasoning_content:
            blocks.append({"type": "thinking", "thinking": message.reasoning_content, "signature": ""})
        if message.text or not message.function_calls:
            blocks.append({"type": "text", "text": message.text})
        blocks += [_tool_use(with_id(call)) for call in message.function_calls or ()]
        body = {**self._body(blocks, complete.stats), **_stop(complete)}
        return {**body, "leap": leap_fields(complete, self._request.notes)}

    def begin(self) -> bytes:
        """What a stream opens with."""
        opened = self._body([], None)
        opened["usage"]["input_tokens"] = self.prompt_tokens or 0
        return _event("message_start", message=opened) + _event("ping")

    def pieces(self, response: MessageResponse) -> Iterator[bytes]:
        """The events that one response becomes."""
        if isinstance(response, Chunk):
            yield from self._switch("text", {"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": response.text})
        elif isinstance(response, ReasoningChunk):
            yield from self._switch("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": response.reasoning})
        elif isinstance(response, FunctionCalls):
            for call in response.function_calls:
                if self._request.single_call and self._called:
                    break
                self._called += 1
                block = _tool_use(with_id(call))
                arguments = json.dumps(block["input"], ensure_ascii=False)
                yield from self._close()
                yield from self._switch("tool_use", {**block, "input": {}})
                yield self._delta({"type": "input_json_delta", "partial_json": arguments})
                yield from self._close()
        elif isinstance(response, Complete):
            yield from self._close()
            extras = leap_fields(response, self._request.notes)
            yield _event("message_delta", delta=_stop(response), usage=_usage(response.stats), leap=extras)
            yield _event("message_stop")

    def end(self) -> bytes:
        """What a stream closes with."""
        return b""

    def failed(self, error: LeapError) -> bytes:
        """The event that ends a stream whose generation failed."""
        return typed_event("error", error_body(status_of(error)[0], error))

    def _body(self, blocks: list[JsonObject], stats: GenerationStats | None) -> JsonObject:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": blocks,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(stats),
        }

    def _switch(self, kind: str, block: JsonObject) -> Iterator[bytes]:
        """Be in a block of this kind: close another one, and open it where it is not open."""
        if self._open == kind:
            return
        yield from self._close()
        self._open = kind
        yield _event("content_block_start", index=self._blocks, content_block=block)

    def _close(self) -> Iterator[bytes]:
        if self._open:
            yield _event("content_block_stop", index=self._blocks)
            self._open = ""
            self._blocks += 1

    def _delta(self, delta: JsonObject) -> bytes:
        return _event("content_block_delta", index=self._blocks, delta=delta)


def _event(kind: str, **fields: object) -> bytes:
    return typed_event(kind, {"type": kind, **fields})


def _tool_use(call: LeapFunctionCall) -> JsonObject:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}


def _stop(complete: Complete) -> JsonObject:
    """Why the answer ended, and at which of the request's stop sequences."""
    reason = STOP_REASONS[finish_reason(complete)]
    if reason == "end_turn" and complete.stop_string is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": complete.stop_string}
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(stats: GenerationStats | None) -> JsonObject:
    """Anthropic counts restored prompt tokens beside the prompt's."""
    stats = stats or GenerationStats(0, 0, 0, 0.0)
    return {
        "input_tokens": stats.prompt_tokens,
        "cache_read_input_tokens": stats.cached_prompt_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": stats.completion_tokens,
    }
