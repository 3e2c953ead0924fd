"""leap's requests as bodies of OpenAI's protocol, and its replies and streams as leap's responses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...conversation.messages import ChatMessage, ChatMessageRole, Image, LeapFunctionCall
from ...conversation.option_rows import Endpoint
from ...conversation.options import GENERATION, GenerationOptions
from ...conversation.request import Request
from ...conversation.responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
    TokenLogprob,
)
from ...errors import GenerationStats, LeapEndpointError, LeapOptionsError, LeapSerializationError
from ...inference.constraints.shape_prompts import append_to_system
from ...schemas.grounding import without_keyword
from ...schemas.json_values import JsonObject, number_at
from ..openai.fields import ANY_OBJECT

APART = ("json_schema_constraint", "logprobs")
"""Options that a body has in another form than the option's."""
OF_LEAP = {name: row.default for name, row in GENERATION.items() if row.endpoint is Endpoint.LEAP}
"""Options that only another leap is sent, and their defaults."""
SENT = {row.chat[0]: row for row in GENERATION.values() if row.endpoint in (Endpoint.SENT, Endpoint.LEAP) and row.chat}
SENT = {name: row for name, row in SENT.items() if row.name not in APART}
"""The fields of a body that are an option each. Some are of vLLM, SGLang and leap; others refuse them by name."""
CHOICES = "Answer with exactly one of these texts, and nothing else: "


def check_held(options: GenerationOptions) -> None:
    """Raises LeapOptionsError for an option that no endpoint can be held to."""
    for name, row in GENERATION.items():
        if isinstance(row.endpoint, str) and getattr(options, name) != row.default:
            raise LeapOptionsError(name, f"an endpoint cannot be held to {row.endpoint}; a model on this machine can")


def chat_body(request: Request) -> JsonObject:
    """A request to ``/chat/completions``. Options of this side (``Endpoint.LOCAL``) are not in it, nor what only leap
    knows of messages; who sends it has called ``check_held``."""
    options, messages, functions = request.options, request.messages, request.functions
    if options.choices_constraint is not None:
        messages = append_to_system(
            messages, CHOICES + json.dumps(list(options.choices_constraint), ensure_ascii=False)
        )
    body: JsonObject = {"messages": [_message(message) for message in messages], **_parameters(options)}
    if functions:
        body["tools"] = [function.to_json_object() for function in functions]
        choice = options.tool_choice
        if choice is not None:
            named = choice not in ("auto", "none", "required")
            body["tool_choice"] = {"type": "function", "function": {"name": choice}} if named else choice
    if options.wants_logprobs:
        body["logprobs"] = True
    schema = options.json_schema_constraint
    if schema is not None:
        body["response_format"] = _response_format(schema)
    switch = {"enable_thinking": True} if options.enable_thinking else {}
    if kwargs := {**switch, **options.chat_template_kwargs}:
        body["chat_template_kwargs"] = kwargs
    return body


def text_body(text: str | Sequence[int], options: GenerationOptions) -> JsonObject:
    """A request to ``/completions``."""
    body = {"prompt": text if isinstance(text, str) else list(text), **_parameters(options)}
    top = body.pop("top_logprobs", None)
    if options.wants_logprobs:
        body["logprobs"] = top or 0
    return body


def _message(message: ChatMessage) -> JsonObject:
    """The message without what only leap knows (how it was said aloud, and what was thought), its pictures without
    what is beside them (place, time, device)."""
    if any(isinstance(part, Image) for part in message.content):
        from ...conversation.media.images import without_metadata

        bare = (Image(without_metadata(part.data)) if isinstance(part, Image) else part for part in message.content)
        message = replace(message, content=tuple(bare))
    value = message.to_json()
    value.pop("reasoning_content", None)
    if isinstance(value.get("content"), list):
        value["content"] = [
            {name: part for name, part in each.items() if name != "speech"} for each in value["content"]
        ]
    return value


def _parameters(options: GenerationOptions) -> JsonObject:
    given = ((name, row, getattr(options, row.name)) for name, row in SENT.items())
    body = {name: row.kind.to_json(value) for name, row, value in given if value != row.default and value != []}
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def in_one_piece(body: JsonObject) -> JsonObject:
    """A request whose answer is not streamed."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


def _response_format(schema: str) -> JsonObject:
    if schema == ANY_OBJECT:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": without_keyword(json.loads(schema))}}


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
        prompt = max(_count(self._usage.get("prompt_tokens")), cached)
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
