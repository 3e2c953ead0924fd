"""What a generation delivers: pieces of text and reasoning, calls of functions, sound, and at the end Complete.

Every response has a JSON form, ``{"type": "chunk", "text": …}`` and so on, that reads back equal.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, ClassVar

from ..errors import GenerationStats as GenerationStats
from ..errors import LeapGenerationError, LeapSerializationError
from ..schemas.json_values import JsonObject, list_at, number_at, object_at, text_at
from ..system.dataclass import dataclass
from .media.wav import as_float32
from .messages import ChatMessage, ChatMessageRole, LeapFunctionCall
from .request_facts import RequestFacts


class GenerationFinishReason(str, Enum):
    """Why a generation ended. MAX_TOKENS is leap's own: the SDK has no name for reaching ``max_tokens``."""

    STOP = "stop"
    """The model ended its answer, or a stop string was met."""
    EXCEED_CONTEXT = "exceed_context"
    """The context is full."""
    MAX_TOKENS = "max_tokens"
    """``max_tokens`` were generated."""
    REPETITION = "repetition"
    """The answer repeated itself and was stopped; leap's own name."""
    INTERRUPTED = "interrupted"
    """The caller stopped the generation; the partial reply is kept."""
    CONSTRAINT = "constraint"
    """The SDK's name for a text that its constraint ended; leap ends such a text with STOP."""
    ERROR = "error"
    """The generation failed; its partial reply is not in the history."""


class MessageResponse:
    """One event of a generation: Chunk, ReasoningChunk, FunctionCalls, AudioSample or Complete; and FunctionResult,
    where leap runs functions."""

    Chunk: ClassVar[type[Chunk]]
    ReasoningChunk: ClassVar[type[ReasoningChunk]]
    FunctionCalls: ClassVar[type[FunctionCalls]]
    FunctionResult: ClassVar[type[FunctionResult]]
    AudioSample: ClassVar[type[AudioSample]]
    Complete: ClassVar[type[Complete]]

    def to_json(self) -> JsonObject:
        """The event as an object with a ``type``."""
        raise NotImplementedError

    @staticmethod
    def from_json(value: object, path: str = "response") -> MessageResponse:
        """Read an event back; an unknown format raises LeapSerializationError naming the path."""
        json_fields = object_at(value, path)
        reader = _READERS.get(str(json_fields.get("type")))
        if reader is None:
            raise LeapSerializationError(f"unknown response type {json_fields.get('type')!r}", path=f"{path}.type")
        return reader(json_fields, path)


@dataclass(frozen=True)
class Chunk(MessageResponse):
    """A piece of the answer's text: whole characters, never a marker."""

    text: str

    def to_json(self) -> JsonObject:
        return {"type": "chunk", "text": self.text}


@dataclass(frozen=True)
class ReasoningChunk(MessageResponse):
    """A piece of the reasoning; only with ``GenerationOptions.enable_thinking`` and a model that reasons."""

    reasoning: str

    def to_json(self) -> JsonObject:
        return {"type": "reasoning_chunk", "reasoning": self.reasoning}


@dataclass(frozen=True)
class FunctionCalls(MessageResponse):
    """Calls the model asks for, in its order, once they are complete."""

    function_calls: tuple[LeapFunctionCall, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "function_calls", tuple(self.function_calls))

    def to_json(self) -> JsonObject:
        calls = [call.to_json(f"call_{n}") for n, call in enumerate(self.function_calls)]
        return {"type": "function_calls", "function_calls": calls}


@dataclass(frozen=True)
class FunctionResult(MessageResponse):
    """What came of one call that leap ran (``run_functions``). ``error``: why there is no result, which the model gets
    in its place. ``denied``: it did not run; ``refused``: because the user said no to it. ``seconds`` it took."""

    call: LeapFunctionCall
    text: str
    error: str | None = None
    denied: bool = False
    seconds: float = 0.0
    refused: bool = False

    def message(self, identifier: str) -> ChatMessage:
        """The result as the conversation records it."""
        content = self.text if self.error is None else json.dumps({"error": self.error}, ensure_ascii=False)
        return ChatMessage(ChatMessageRole.TOOL, content, tool_call_id=identifier)

    def to_json(self) -> JsonObject:
        value: JsonObject = {
            "type": "function_result",
            "name": self.call.name,
            "arguments": dict(self.call.arguments),
            **({"result": self.text} if self.error is None else {"error": self.error}),
            "denied": self.denied,
        }
        return value | ({"refused": True} if self.refused else {}) | {"seconds": self.seconds}


@dataclass(frozen=True)
class AudioSample(MessageResponse):
    """A piece of what the model says aloud: mono samples, as float32 holds them, at ``sample_rate`` Hz. They are in
    [-1, 1] but for what a model overdoes.

    In JSON the samples are base64 of little-endian float32; a list of numbers is read too.
    """

    samples: tuple[float, ...] = field(repr=False)
    sample_rate: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", as_float32(self.samples))

    def to_json(self) -> JsonObject:
        packed = struct.pack(f"<{len(self.samples)}f", *self.samples)
        samples = base64.b64encode(packed).decode("ascii")
        return {"type": "audio_sample", "samples": samples, "sample_rate": self.sample_rate}


@dataclass(frozen=True)
class TokenLogprob:
    """How likely one generated token was: natural logarithms of probabilities at temperature 1, before penalties.

    ``logprob`` is the model's own, before the mask of a constraint; ``allowed_logprob`` among the tokens that the mask
    left (None without a constraint). ``top``: the likeliest tokens at its place, before the mask, likeliest first.
    Tokens are bytes; their texts may be parts of characters.
    """

    token: bytes
    logprob: float
    allowed_logprob: float | None = None
    top: tuple[tuple[bytes, float], ...] = ()

    def to_json(self) -> JsonObject:
        """OpenAI's format, with ``allowed_logprob`` beside it."""
        value = _probability(self.token, self.logprob)
        if self.allowed_logprob is not None:
            value["allowed_logprob"] = self.allowed_logprob
        return value | {"top_logprobs": [_probability(token, logprob) for token, logprob in self.top]}

    @staticmethod
    def from_json(value: object, path: str = "logprobs") -> TokenLogprob:
        """Read what ``to_json`` writes. Raises LeapSerializationError."""
        fields = object_at(value, path)
        allowed = fields.get("allowed_logprob")
        top = list_at(fields.get("top_logprobs", []), f"{path}.top_logprobs")
        return TokenLogprob(
            *_read_probability(fields, path),
            None if allowed is None else number_at(allowed, f"{path}.allowed_logprob"),
            tuple(_read_probability(each, f"{path}.top_logprobs[{n}]") for n, each in enumerate(top)),
        )


def _probability(token: bytes, logprob: float) -> JsonObject:
    return {"token": token.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(token)}


def _read_probability(value: object, path: str) -> tuple[bytes, float]:
    fields = object_at(value, path)
    codes = list_at(fields.get("bytes"), f"{path}.bytes")
    if not all(isinstance(code, int) and 0 <= code < 256 for code in codes):
        raise LeapSerializationError("expected bytes", path=f"{path}.bytes")
    return bytes(codes), number_at(fields.get("logprob"), f"{path}.logprob")


@dataclass(frozen=True)
class CompleteInfo:
    """What ``Complete.info`` holds."""

    finish_reason: GenerationFinishReason
    stats: GenerationStats | None


@dataclass(frozen=True)
class Complete(MessageResponse):
    """The end: the whole reply, why it ended, and its statistics.

    ``warnings`` are sentences for the user about what could not be done as asked (a call that does not parse, a
    schema keyword that could not be enforced while generating).
    """

    full_message: ChatMessage
    finish_reason: GenerationFinishReason
    stats: GenerationStats | None = None
    warnings: tuple[str, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """How likely the prompt's tokens after its first were, where that was asked for."""
    stop_string: str | None = None
    """The stop string that ended the text; None where the answer ended in another way."""
    searches: tuple[FunctionResult, ...] = ()
    """What the model looked for among tools that its prompt did not declare, and the names that it got."""
    left_out: tuple[str, ...] = ()
    """Pages of documents that the model was not given, a sentence for each document."""
    facts: RequestFacts | None = field(default=None, compare=False, repr=False)
    """How the request went, for ``leap why``; no part of its JSON form."""

    @property
    def is_lost(self) -> bool:
        """Whether it was interrupted before its first word, sound or call, so that no history has it."""
        reply = self.full_message
        has_words = bool(reply.content or reply.reasoning_content or reply.function_calls)
        return self.finish_reason is GenerationFinishReason.INTERRUPTED and not has_words

    @property
    def message(self) -> ChatMessage:
        """``full_message``, as the SDK of iOS calls it."""
        return self.full_message

    @property
    def info(self) -> CompleteInfo:
        """Why the reply ended and its statistics together, as the SDK of iOS has it."""
        return CompleteInfo(self.finish_reason, self.stats)

    def to_json(self) -> JsonObject:
        value: JsonObject = {
            "type": "complete",
            "message": self.full_message.to_json(),
            "finish_reason": self.finish_reason.value,
        }
        return value | {name: PARTS[name].write(part) for name, part in self._parts()}

    def reported(self) -> JsonObject:
        """The parts for which other protocols have no field, as replies have them in ``leap``."""
        said = {PARTS[name].reply: PARTS[name].write(part) for name, part in self._parts() if PARTS[name].reply}
        return {"finish_reason": self.finish_reason.value, **said}

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """Those of ``PARTS`` that are there."""
        return ((name, part) for name in PARTS if (part := getattr(self, name)) not in (None, ()))


MessageResponse.Chunk = Chunk
MessageResponse.ReasoningChunk = ReasoningChunk
MessageResponse.FunctionCalls = FunctionCalls
MessageResponse.FunctionResult = FunctionResult
MessageResponse.AudioSample = AudioSample
MessageResponse.Complete = Complete


def stats_from_json(value: object, path: str = "stats") -> GenerationStats:
    """Read what ``GenerationStats.to_json`` writes. Raises LeapSerializationError."""
    json_fields = object_at(value, path)
    for name, item in json_fields.items():
        check = text_at if name == "engine" else number_at
        check(item, f"{path}.{name}")
    try:
        return GenerationStats(**json_fields)
    except TypeError as error:
        raise LeapSerializationError(str(error).replace("GenerationStats.__init__() ", ""), path=path) from None


def require_complete(complete: Complete | None) -> Complete:
    """The answer, when it came to its end. Raises LeapGenerationError when there is none, or when it failed."""
    if complete is None:
        raise LeapGenerationError("the generation ended without an answer")
    if complete.finish_reason is GenerationFinishReason.ERROR:
        raise LeapGenerationError("the generation failed before the answer was complete")
    return complete


def _read_chunk(value: JsonObject, path: str) -> MessageResponse:
    return Chunk(text_at(value.get("text"), f"{path}.text"))


def _read_reasoning(value: JsonObject, path: str) -> MessageResponse:
    return ReasoningChunk(text_at(value.get("reasoning"), f"{path}.reasoning"))


def _read_calls(value: JsonObject, path: str) -> MessageResponse:
    where = f"{path}.function_calls"
    calls = list_at(value.get("function_calls"), where)
    return FunctionCalls(tuple(LeapFunctionCall.from_json(call, f"{where}[{n}]") for n, call in enumerate(calls)))


def _read_result(value: JsonObject, path: str) -> FunctionResult:
    name = text_at(value.get("name"), f"{path}.name")
    error, arguments = value.get("error"), object_at(value.get("arguments"), f"{path}.arguments")
    return FunctionResult(
        LeapFunctionCall(name, arguments),
        text_at(value.get("result"), f"{path}.result") if error is None else "",
        None if error is None else text_at(error, f"{path}.error"),
        bool(value.get("denied")),
        number_at(value.get("seconds"), f"{path}.seconds"),
        bool(value.get("refused")),
    )


def _read_sample(value: JsonObject, path: str) -> MessageResponse:
    rate = number_at(value.get("sample_rate"), f"{path}.sample_rate")
    if not isinstance(rate, int):
        raise LeapSerializationError("expected a whole number of Hz", path=f"{path}.sample_rate")
    return AudioSample(_samples(value.get("samples"), f"{path}.samples"), rate)


def _samples(value: object, path: str) -> tuple[float, ...]:
    if not isinstance(value, str):
        return tuple(number_at(item, f"{path}[{n}]") for n, item in enumerate(list_at(value, path)))
    try:
        data = base64.b64decode(value, validate=True)
        return struct.unpack(f"<{len(data) // 4}f", data)
    except (binascii.Error, ValueError, struct.error):
        raise LeapSerializationError("expected base64 of float32 samples", path=path) from None


def _read_complete(value: JsonObject, path: str) -> MessageResponse:
    reason = text_at(value.get("finish_reason"), f"{path}.finish_reason")
    if reason not in GenerationFinishReason._value2member_map_:
        reasons = ", ".join(each.value for each in GenerationFinishReason)
        raise LeapSerializationError(f"unknown reason {reason!r}; known are {reasons}", path=f"{path}.finish_reason")

    parts = {
        name: part.read(value[name], f"{path}.{name}") for name, part in PARTS.items() if value.get(name) is not None
    }
    facts = value.get("facts")
    return Complete(
        ChatMessage.from_json(value.get("message"), f"{path}.message"),
        GenerationFinishReason(reason),
        **parts,
        facts=RequestFacts.from_json(facts) if isinstance(facts, dict) else None,
    )


def _sentences(value: object, path: str) -> tuple[str, ...]:
    return tuple(text_at(each, f"{path}[{n}]") for n, each in enumerate(list_at(value, path)))


def _read_results(value: object, path: str) -> tuple[FunctionResult, ...]:
    return tuple(_read_result(object_at(each, path), path) for each in list_at(value, path))


def _read_logprobs(value: object, path: str) -> tuple[TokenLogprob, ...]:
    content = list_at(object_at(value, path).get("content"), f"{path}.content")
    return tuple(TokenLogprob.from_json(each, f"{path}.content[{n}]") for n, each in enumerate(content))


_READERS = {
    "chunk": _read_chunk,
    "reasoning_chunk": _read_reasoning,
    "function_calls": _read_calls,
    "function_result": _read_result,
    "audio_sample": _read_sample,
    "complete": _read_complete,
}


@dataclass(frozen=True)
class Part:
    """How a field of Complete is written and read; ``reply``: its name in ``leap`` of every protocol's replies, where
    they have it."""

    write: Callable[[Any], Any]
    read: Callable[[object, str], Any]
    reply: str = ""


def _write_each(values: Sequence[TokenLogprob | FunctionResult]) -> list[JsonObject]:
    return [each.to_json() for each in values]


_LOGPROBS = Part(lambda values: {"content": _write_each(values)}, _read_logprobs)
PARTS = {
    "stats": Part(GenerationStats.to_json, stats_from_json, "stats"),
    "warnings": Part(list, _sentences, "warnings"),
    "logprobs": _LOGPROBS,
    "prompt_logprobs": _LOGPROBS,
    "stop_string": Part(str, text_at),
    "searches": Part(_write_each, _read_results),
    "left_out": Part(list, _sentences, "notes"),
}
"""The fields of Complete beside its message and why it ended, in the order of its JSON."""
