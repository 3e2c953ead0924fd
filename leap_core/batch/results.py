"""The result of one line: kept as what happened, and given its shape when it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..openai.replies import finish_reason, message_body, usage, whole_chat
from ..responses import Complete
from ..statistics import GenerationStats

JsonObject = dict[str, Any]

OPENAI, PLAIN = "openai", "plain"
FORMATS = (OPENAI, PLAIN)
NO_STATS = GenerationStats(0, 0, 0, 0.0)


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
        complete = Complete.from_json(self.response)
        assert isinstance(complete, Complete)
        message = complete.full_message
        value: JsonObject = {"custom_id": self.custom_id, "text": message.text}
        if message.function_calls:
            value["tool_calls"] = message_body(message)["tool_calls"]
        if message.reasoning_content:
            value["reasoning"] = message.reasoning_content
        value["finish_reason"] = finish_reason(complete)
        counts = usage(complete.stats or NO_STATS) or {}
        value |= {name: counts[name] for name in ("prompt_tokens", "completion_tokens")}
        return value | ({"warnings": list(complete.warnings)} if complete.warnings else {})

    def _openai(self) -> JsonObject:
        head = {"id": f"batch_req_{self.key}", "custom_id": self.custom_id}
        if self.response is None:
            return {**head, "response": None, "error": self.error}
        complete = Complete.from_json(self.response)
        assert isinstance(complete, Complete)
        body = whole_chat({"id": f"chatcmpl-{self.key}", "created": self.created, "model": self.model}, complete)
        return {**head, "response": {"status_code": 200, "request_id": self.key, "body": body}, "error": None}
