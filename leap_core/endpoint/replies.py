"""Replies and streams of OpenAI's protocol as leap's responses: the counterpart of ``openai.replies``, which writes
them."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
import time
from collections.abc import Iterator
from typing import Any

from ..errors import LeapEndpointError, LeapSerializationError
from ..json_fields import number_at
from ..messages import ChatMessage, ChatMessageRole, LeapFunctionCall
from ..options import GenerationOptions
from ..responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
    TokenLogprob,
)
from ..statistics import GenerationStats


OPEN, CLOSE = "<think>", "</think>"
MOST_WARNINGS = 10
REASONS = {each.value: each for each in GenerationFinishReason} | {
    "tool_calls": GenerationFinishReason.STOP,
    "function_call": GenerationFinishReason.STOP,
    "eos": GenerationFinishReason.STOP,
}


class ReplyReader:
    """Reads one reply, in pieces or whole. ``begun``: when it was asked for (``time.monotonic``)."""

    def __init__(self, options: GenerationOptions, begun: float) -> None:
        self._options, self._begun = options, begun
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[JsonObject] = []
        self._logprobs: list[TokenLogprob] = []
        self._usage: JsonObject = {}
        self._leap: JsonObject = {}
        self._reason: str | None = None
        self._first: float | None = None
        self._last = begun
        self._pieces = 0
        self._thinks_inline = False
        self.warnings: list[str] = []

    @property
    def has_begun(self) -> bool:
        """Whether anything of the answer has come."""
        return self._first is not None

    @property
    def has_ended(self) -> bool:
        """Whether the endpoint has said why the answer ended."""
        return self._reason is not None

    def feed(self, value: object) -> Iterator[MessageResponse]:
        """The responses in a chunk of a stream, or in a whole reply."""
        if not isinstance(value, dict):
            return
        if isinstance(value.get("usage"), dict):
            self._usage = value["usage"]
        if isinstance(value.get("leap"), dict):
            self._leap = value["leap"]
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}
        self._read_logprobs(choice.get("logprobs"))
        yield from self._pieces_of(delta)
        if isinstance(choice.get("finish_reason"), str):
            self._reason = choice["finish_reason"]

    def _pieces_of(self, delta: JsonObject) -> Iterator[MessageResponse]:
        reasoning = _text(delta.get("reasoning_content") or delta.get("reasoning"))
        text = _text(delta.get("content")) or _text(delta.get("refusal"))
        if delta.get("refusal") and "the model refused" not in self.warnings:
            self.warnings.append("the model refused")
        if not (reasoning or text or delta.get("tool_calls")):
            return
        self._last = time.monotonic()
        self._first = self._first or self._last
        self._pieces += 1
        if reasoning:
            self._reasoning.append(reasoning)
            if self._options.enable_thinking:
                yield ReasoningChunk(reasoning)
            elif self._options.inline_thinking_tags:
                yield from self._say(reasoning if self._thinks_inline else OPEN + reasoning)
                self._thinks_inline = True
        if text:
            yield from self._say(CLOSE + text if self._thinks_inline else text)
            self._thinks_inline = False
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._add_call(call)

    def _say(self, text: str) -> Iterator[MessageResponse]:
        self._texts.append(text)
        yield Chunk(text)

    def _add_call(self, piece: object) -> None:
        """Calls come in pieces that belong together by their index; some endpoints send each whole, without one."""
        if not isinstance(piece, dict):
            return
        function = piece.get("function") if isinstance(piece.get("function"), dict) else {}
        assert isinstance(function, dict)
        index = piece.get("index")
        found = next((each for each in self._calls if index is not None and each["index"] == index), None)
        if found is None and index is None and not piece.get("id") and self._calls:
            found = self._calls[-1]
        if found is None:
            found = {"index": index, "id": None, "name": "", "arguments": ""}
            self._calls.append(found)
        found["id"] = found["id"] or _text(piece.get("id")) or None
        found["name"] = found["name"] or _text(function.get("name"))
        arguments = function.get("arguments")
        found["arguments"] += json.dumps(arguments) if isinstance(arguments, dict) else _text(arguments)

    def _read_logprobs(self, value: object) -> None:
        content = value.get("content") if isinstance(value, dict) else None
        for each in content if isinstance(content, list) else ():
            try:
                self._logprobs.append(_logprob(each))
            except LeapSerializationError as error:
                self._warn(f"a probability could not be read: {error.message}")

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(warning)

    def finish(self) -> Iterator[MessageResponse]:
        """What the end brings: the calls, and Complete. Raises LeapEndpointError where the endpoint took the answer
        away."""
        if self._reason == "content_filter":
            raise LeapEndpointError("the endpoint's filter ended the answer (content_filter)", of_request=True)
        calls = tuple(call for each in self._calls if (call := self._call(each)) is not None)
        if calls:
            yield FunctionCalls(calls)
        for warning in self._leap.get("warnings") or ():
            self._warn(str(warning)[:300])
        yield self._complete(self._finish_reason(), calls, self._stats())

    def interrupted(self, delivered: list[MessageResponse]) -> Complete:
        """The reply as far as its reader has it."""
        self._texts = [each.text for each in delivered if isinstance(each, Chunk)]
        return self._complete(GenerationFinishReason.INTERRUPTED, (), None)

    def _complete(
        self, reason: GenerationFinishReason, calls: tuple[LeapFunctionCall, ...], stats: GenerationStats | None
    ) -> Complete:
        message = ChatMessage(
            ChatMessageRole.ASSISTANT, "".join(self._texts), "".join(self._reasoning) or None, calls or None
        )
        return Complete(message, reason, stats, tuple(self.warnings), tuple(self._logprobs))

    def _call(self, value: JsonObject) -> LeapFunctionCall | None:
        function = {"name": value["name"], "arguments": value["arguments"]}
        try:
            return LeapFunctionCall.from_json({"id": value["id"], "function": function})
        except LeapSerializationError as error:
            self._warn(f"a call of {value['name'] or 'no function'} could not be read: {error.message}")
            return None

    def _finish_reason(self) -> GenerationFinishReason:
        own = REASONS.get(str(self._leap.get("finish_reason")))
        if own is not None:
            return own
        if self._reason == "length":
            most, made = self._options.max_tokens, self._usage.get("completion_tokens")
            at_most = most is not None and (not isinstance(made, int) or made >= most)
            return GenerationFinishReason.MAX_TOKENS if at_most else GenerationFinishReason.EXCEED_CONTEXT
        return REASONS.get(str(self._reason), GenerationFinishReason.STOP)

    def _stats(self) -> GenerationStats:
        """Counts are the endpoint's (0 where it gives none), times are those of this side."""
        details = self._usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
        prompt = max(0, _count(self._usage.get("prompt_tokens")) - cached)
        made = _count(self._usage.get("completion_tokens"))
        first = self._first or self._last
        speed = (made - 1) / max(self._last - first, 1e-6) if made > 1 else 0.0
        return GenerationStats(prompt, made, prompt + made, speed, cached, first - self._begun)


def _text(value: object) -> str:
    """A text, also of parts."""
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _logprob(value: object) -> TokenLogprob:
    """One token's; its bytes are its text where the endpoint gives none."""
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object")
    top = value.get("top_logprobs")
    return TokenLogprob(
        _token(value),
        number_at(value.get("logprob"), "logprob"),
        value.get("allowed_logprob") if isinstance(value.get("allowed_logprob"), (int, float)) else None,
        tuple(
            (_token(each), number_at(each.get("logprob"), "logprob"))
            for each in (top if isinstance(top, list) else ())
            if isinstance(each, dict)
        ),
    )


def _token(value: JsonObject) -> bytes:
    codes = value.get("bytes")
    if isinstance(codes, list) and all(isinstance(code, int) and 0 <= code < 256 for code in codes):
        return bytes(codes)
    return _text(value.get("token")).encode()
