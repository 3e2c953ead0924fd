"""leap's responses as OpenAI's: whole completions, chunks of a stream, usage and finish reasons.

What OpenAI has no field for rides in ``leap`` (finish reason, statistics, warnings) and ``reasoning_content``.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..messages import LeapFunctionCall
from ..responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    GenerationStats,
    MessageResponse,
    ReasoningChunk,
)
from .requests import Asked

JsonObject = dict[str, Any]

DONE = b"data: [DONE]\n\n"
FINISH_REASONS = {
    GenerationFinishReason.MAX_TOKENS: "length",
    GenerationFinishReason.EXCEED_CONTEXT: "length",
}
"""The others are ``stop``, or ``tool_calls`` when functions were called."""


class Reply:
    """The answer to one request in OpenAI's shape; ``model`` is how the request named it."""

    def __init__(self, asked: Asked, model: str) -> None:
        self._asked = asked
        self._is_chat = asked.prompt is None
        self._called = 0
        self.id = f"{'chatcmpl' if self._is_chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._head: JsonObject = {"id": self.id, "created": int(time.time()), "model": model}

    def whole(self, complete: Complete) -> JsonObject:
        """The answer in one piece."""
        message = complete.full_message
        reason = self._finish_reason(complete)
        if self._is_chat:
            content: JsonObject = {"role": "assistant", "content": message.text or None, "refusal": None}
            if message.reasoning_content is not None:
                content["reasoning_content"] = message.reasoning_content
            calls = list(self._calls(message.function_calls or ()))
            if calls:
                content["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls]
            elif content["content"] is None:
                content["content"] = ""
            choice: JsonObject = {"index": 0, "message": content, "logprobs": None, "finish_reason": reason}
        else:
            choice = {"index": 0, "text": message.text, "logprobs": None, "finish_reason": reason}
        kind = "chat.completion" if self._is_chat else "text_completion"
        return {
            **self._head,
            "object": kind,
            "choices": [choice],
            "usage": usage(complete.stats),
            "leap": self._extras(complete),
        }

    def begin(self) -> bytes:
        """What a stream opens with."""
        return self._chunk({"role": "assistant", "content": ""}) if self._is_chat else b""

    def pieces(self, response: MessageResponse) -> Iterator[bytes]:
        """The chunks of a stream that one response becomes."""
        event: dict[str, Any] = {"leap": response.to_json()} if self._asked.events else {}
        if isinstance(response, Chunk):
            yield self._chunk({"content": response.text} if self._is_chat else response.text, more=event)
        elif isinstance(response, ReasoningChunk):
            yield self._chunk({"reasoning_content": response.reasoning}, more=event)
        elif isinstance(response, FunctionCalls):
            calls = list(self._calls(response.function_calls))
            if calls or event:
                yield self._chunk({"tool_calls": calls}, more=event)
        elif isinstance(response, Complete):
            event = event or {"leap": self._extras(response)}
            yield self._chunk({} if self._is_chat else "", self._finish_reason(response), more=event)
            if self._asked.include_usage:
                yield frame({**self._chunk_head, "choices": [], "usage": usage(response.stats)})
        elif event:
            yield self._chunk({}, more=event)

    @property
    def _chunk_head(self) -> JsonObject:
        return {**self._head, "object": "chat.completion.chunk" if self._is_chat else "text_completion"}

    def _chunk(self, delta: object, finish_reason: str | None = None, more: JsonObject | None = None) -> bytes:
        key = "delta" if self._is_chat else "text"
        choice = {"index": 0, key: delta, "logprobs": None, "finish_reason": finish_reason}
        return frame({**self._chunk_head, "choices": [choice], **(more or {})})

    def _calls(self, calls: Iterable[LeapFunctionCall]) -> Iterator[JsonObject]:
        for call in calls:
            if self._asked.single_call and self._called:
                return
            named = call if call.id else replace(call, id=f"call_{secrets.token_hex(8)}")
            yield {"index": self._called, **named.to_json()}
            self._called += 1

    def _finish_reason(self, complete: Complete) -> str:
        calls = "tool_calls" if complete.full_message.function_calls else "stop"
        return FINISH_REASONS.get(complete.finish_reason, calls)

    def _extras(self, complete: Complete) -> JsonObject:
        warnings = [*self._asked.notes, *complete.warnings]
        if self._asked.single_call and len(complete.full_message.function_calls or ()) > 1:
            warnings.append("only the first of several calls was passed on, because parallel_tool_calls is false")
        extras: JsonObject = {"finish_reason": complete.finish_reason.value}
        if complete.stats is not None:
            extras["stats"] = complete.stats.to_json()
        return extras | ({"warnings": warnings} if warnings else {})


def usage(stats: GenerationStats | None) -> JsonObject | None:
    """OpenAI counts restored prompt tokens among the prompt's."""
    if stats is None:
        return None
    prompt = stats.prompt_tokens + stats.cached_prompt_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": stats.completion_tokens,
        "total_tokens": prompt + stats.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_prompt_tokens},
    }


def frame(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value, separators=(",", ":"), default=str).encode("ascii") + b"\n\n"
