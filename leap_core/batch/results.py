"""The result of one line: kept as what happened, and given its shape when it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import errors
from ..responses import Complete, GenerationFinishReason

JsonObject = dict[str, Any]

OPENAI, PLAIN = "openai", "plain"
FORMATS = (OPENAI, PLAIN)

CODES: tuple[tuple[type[errors.LeapError], str], ...] = (
    (errors.LeapGenerationPromptExceedContextLengthError, "context_length_exceeded"),
    (errors.LeapConstraintError, "constraint_not_satisfied"),
    (errors.LeapSchemaError, "invalid_schema"),
    (errors.LeapOptionsError, "invalid_request"),
    (errors.LeapSerializationError, "invalid_request"),
    (errors.LeapGenerationError, "generation_failed"),
)
FINISH_REASONS = {
    GenerationFinishReason.MAX_TOKENS.value: "length",
    GenerationFinishReason.EXCEED_CONTEXT.value: "length",
}


@dataclass(frozen=True)
class Result:
    """``response`` is the JSON of Complete, or ``error`` has a code, a message and perhaps a hint.

    ``created`` is in seconds since 1970.
    """

    key: str
    custom_id: str
    model: str
    created: int
    response: JsonObject | None = None
    error: JsonObject | None = None

    @property
    def succeeded(self) -> bool:
        return self.error is None

    @property
    def completion_tokens(self) -> int:
        stats = (self.response or {}).get("stats") or {}
        return int(stats.get("completion_tokens", 0))

    def to_json(self) -> JsonObject:
        """What the journal keeps."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Result:
        """Read what ``to_json`` made; anything else raises KeyError, TypeError or ValueError."""
        result = Result(**value)
        if (result.response is None) == (result.error is None):
            raise ValueError("a result has either a response or an error")
        if result.response is not None:
            Complete.from_json(result.response)
        return result

    def render(self, format: str) -> str:
        """The line of the output, without its line end."""
        value = self._openai() if format == OPENAI else self._plain()
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def _plain(self) -> JsonObject:
        if self.response is None:
            return {"custom_id": self.custom_id, "error": self.error}
        message, usage = self.response["message"], self._usage()
        value = {"custom_id": self.custom_id, "text": _text(message["content"])}
        if message.get("tool_calls"):
            value["tool_calls"] = message["tool_calls"]
        if message.get("reasoning_content"):
            value["reasoning"] = message["reasoning_content"]
        value["finish_reason"] = self._finish_reason()
        value |= {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
        return value | self._warnings()

    def _openai(self) -> JsonObject:
        head = {"id": f"batch_req_{self.key}", "custom_id": self.custom_id}
        if self.response is None:
            return {**head, "response": None, "error": self.error}
        message = {**self.response["message"], "content": _text(self.response["message"]["content"]) or None}
        if not message.get("tool_calls"):
            message["content"] = message["content"] or ""
        body = {
            "id": f"chatcmpl-{self.key}",
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason()}],
            "usage": self._usage(),
        }
        response = {"status_code": 200, "request_id": self.key, "body": body | self._warnings()}
        return {**head, "response": response, "error": None}

    def _finish_reason(self) -> str:
        assert self.response is not None
        if self.response["message"].get("tool_calls"):
            return "tool_calls"
        return FINISH_REASONS.get(self.response["finish_reason"], "stop")

    def _usage(self) -> JsonObject:
        assert self.response is not None
        stats = self.response.get("stats") or {}
        prompt = stats.get("prompt_tokens", 0) + stats.get("cached_prompt_tokens", 0)
        completion = stats.get("completion_tokens", 0)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def _warnings(self) -> JsonObject:
        assert self.response is not None
        return {"warnings": self.response["warnings"]} if self.response.get("warnings") else {}


def error_json(error: errors.LeapError) -> JsonObject:
    """A failure as a record; the text of an answer that did not fit its constraint is kept."""
    code = next((code for kind, code in CODES if isinstance(error, kind)), "failed")
    value: JsonObject = {"code": code, "message": error.message}
    if error.hint:
        value["hint"] = error.hint
    if isinstance(error, errors.LeapConstraintError):
        value["text"] = error.text
    return value


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part["text"] for part in content if part.get("type") == "text")
