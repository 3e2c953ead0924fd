"""leap's responses and errors as OpenAI's: completions, chunks of a stream, usage and finish reasons.

The one writer of such bodies, for ``leap serve`` and for the results of ``leap batch``. What OpenAI has no field for
is in ``leap`` (finish reason, statistics, warnings) and ``reasoning_content``.
"""

from __future__ import annotations

import base64
import codecs
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ... import errors
from ...conversation.generator import PromptProgress
from ...conversation.media.wav import UNKNOWN_LENGTH, pcm16, wav_header
from ...conversation.messages import ChatMessage, LeapFunctionCall
from ...conversation.responses import (
    AudioSample,
    Chunk,
    Complete,
    FunctionCalls,
    FunctionResult,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
    TokenLogprob,
)
from ...errors import GenerationStats, LeapError
from ...schemas.json_values import JsonObject, error_to_json
from .requests import GenerationRequest
from .speech import AudioAnswer, audio_body

INVALID = "invalid_request_error"
SERVER = "server_error"

STATUSES: tuple[tuple[type[LeapError], int, str, str], ...] = (
    (errors.LeapGenerationPromptExceedContextLengthError, 400, INVALID, "context_length_exceeded"),
    (errors.LeapUnsupportedMediaError, 400, INVALID, "unsupported_media"),
    (errors.LeapConstraintError, 422, "constraint_error", "constraint_not_satisfied"),
    (errors.LeapQueueFullError, 429, "rate_limit_error", "queue_full"),
    (errors.LeapSchemaError, 400, INVALID, "invalid_schema"),
    (errors.LeapOptionsError, 400, INVALID, "invalid_value"),
    (errors.LeapSerializationError, 400, INVALID, "invalid_value"),
    (errors.LeapModelNotFoundError, 404, INVALID, "model_not_found"),
    (errors.LeapModelLoadingError, 500, SERVER, "model_loading_failed"),
    (errors.LeapNotFoundError, 404, INVALID, "not_found"),
    (errors.LeapUnavailableError, 503, SERVER, "unavailable"),
    (errors.LeapError, 500, SERVER, "generation_failed"),
)
"""The first row that fits an error: status, type and code."""


def status_of(error: LeapError) -> tuple[int, str, str]:
    """The HTTP status, type and code of an error."""
    return next(row[1:] for row in STATUSES if isinstance(error, row[0]))


def error_object(error: LeapError, kind: str, code: str) -> JsonObject:
    """OpenAI's error object; ``leap`` in it has the error's class and fields. ``param`` is the field at fault."""
    message = error.message if error.hint is None else f"{error.message} ({error.hint})"
    if isinstance(error, errors.LeapGenerationPromptExceedContextLengthError):  # by these words clients know it
        message = f"This model's maximum context length is {error.context_size} tokens; {message}"
    param = getattr(error, "option", None) or getattr(error, "path", None) or None
    return {"message": message, "type": kind, "param": param, "code": code, "leap": error_to_json(error)}


def error_record(error: LeapError) -> JsonObject:
    """A failure as a line of a batch keeps it; the text of an answer that did not fit its constraint is kept too."""
    value: JsonObject = {"code": status_of(error)[2], "message": error.message}
    if error.hint:
        value["hint"] = error.hint
    if isinstance(error, errors.LeapConstraintError):
        value["text"] = error.text
    return value


Scored = tuple[bytes, "TokenLogprob | None"]


def text_logprobs(complete: Complete, prompt: str | None = None, first_token: str | None = None) -> JsonObject | None:
    """The lists, None where nothing was asked for: an entry for each token that was made, also for one that adds no
    text. ``prompt``: with its tokens before those of the answer; the first of them has no probability. ``first_token``:
    its text, where the prompt was given as tokens. ``top_logprobs`` have the token itself too. What a stop string cut
    off is left out."""
    if not complete.logprobs and not complete.prompt_logprobs:
        return None
    tokens = _of_prompt(prompt, complete.prompt_logprobs, first_token) if prompt is not None else []
    answer = complete.logprobs
    if complete.stop_string is not None:
        answer = _within(answer, complete.full_message.text)
    texts, offsets = [], []
    decoder, length = codecs.getincrementaldecoder("utf-8")("replace"), 0
    scored: list[Scored] = [*tokens, *((each.token, each) for each in answer)]
    for token, _ in scored:
        texts.append(_text(token))
        offsets.append(length)
        length += len(decoder.decode(token))
    scores = [score for _, score in scored]
    return {
        "tokens": texts,
        "token_logprobs": [None if score is None else score.logprob for score in scores],
        "top_logprobs": [None if score is None else _likeliest(score) for score in scores],
        "text_offset": offsets,
    }


def _of_prompt(prompt: str, scores: Sequence[TokenLogprob], first_token: str | None) -> list[Scored]:
    """The tokens of a prompt. Scores are of those after its first, which may be one that opens every text and that no
    prompt spells; OpenAI's first token has no score either."""
    text = prompt.encode("utf-8", "surrogatepass")
    rest = b"".join(each.token for each in scores)
    first = text.removesuffix(rest) if first_token is None else first_token.encode("utf-8", "surrogatepass")
    if first_token is not None or not scores or (first and first != text):
        return [(first, None), *((each.token, each) for each in scores)]
    return [(each.token, each if n else None) for n, each in enumerate(scores)]


def _within(scores: Sequence[TokenLogprob], text: str) -> tuple[TokenLogprob, ...]:
    """Those tokens that begin within the text."""
    room = len(text.encode("utf-8", "surrogatepass"))
    kept = []
    for score in scores:
        if room <= 0:
            break
        kept.append(score)
        room -= len(score.token)
    return tuple(kept)


def _likeliest(score: TokenLogprob) -> dict[str, float]:
    return {**{_text(token): logprob for token, logprob in score.top}, _text(score.token): score.logprob}


def _text(token: bytes) -> str:
    """A token's text; a part of a character is spelled as OpenAI spells it."""
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


DONE = b"data: [DONE]\n\n"
COMMENT = b":\n\n"
"""A line that readers of server-sent events leave out, as llama-server sends it."""
EVENT_STREAM = "text/event-stream; charset=utf-8"
FINISH_REASONS = {GenerationFinishReason.MAX_TOKENS: "length", GenerationFinishReason.EXCEED_CONTEXT: "length"}
"""The others are ``stop``, or ``tool_calls`` when functions were called."""
ONE_CALL = "only the first of several calls was passed on, because parallel_tool_calls is false"


def whole_chat(head: JsonObject, complete: Complete, audio: AudioAnswer | None = None) -> JsonObject:
    """A chat completion in one piece. ``head``: its id, time and model. ``audio``: with what was said aloud."""
    body = message_body(complete.full_message)
    sound = None if audio is None else audio_body(audio, complete.full_message, head["created"])
    message = {"message": body if sound is None else {**body, "content": None, "audio": sound}}
    return {**head, "object": "chat.completion", **_choice(message, complete, logprobs_of(complete))}


def whole_text(
    head: JsonObject, complete: Complete, before: str | None = None, first_token: str | None = None
) -> JsonObject:
    """A completion of a raw text in one piece; ``before``: the prompt that is repeated before it, and ``first_token``
    its first token where it was given as tokens."""
    text = {"text": (before or "") + complete.full_message.text}
    logprobs = text_logprobs(complete, before, first_token)
    return {**head, "object": "text_completion", **_choice(text, complete, logprobs)}


def message_body(message: ChatMessage) -> JsonObject:
    """The assistant's message."""
    body: JsonObject = {"role": "assistant", "content": message.text or None, "refusal": None}
    if message.reasoning_content is not None:
        body["reasoning_content"] = message.reasoning_content
    if message.function_calls:
        body["tool_calls"] = [with_id(call).to_json() for call in message.function_calls]
    elif body["content"] is None:
        body["content"] = ""
    return body


def finish_reason(complete: Complete) -> str:
    """Why a generation ended, in OpenAI's words."""
    calls = "tool_calls" if complete.full_message.function_calls else "stop"
    return FINISH_REASONS.get(complete.finish_reason, calls)


def usage(stats: GenerationStats | None) -> JsonObject | None:
    """Counts of tokens."""
    if stats is None:
        return None
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.completion_tokens,
        "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_prompt_tokens},
        **({"completion_tokens_details": {"reasoning_tokens": thought}} if (thought := stats.reasoning_tokens) else {}),
    }


def joined(bodies: Sequence[JsonObject], completes: Sequence[Complete], choices: int | None = None) -> JsonObject:
    """The bodies of several answers as one body: ``choices`` to each prompt, or all to one. A prompt counts once."""
    numbered = [{**body["choices"][0], "index": n} for n, body in enumerate(bodies)]
    return {**bodies[0], "choices": numbered, "usage": _usage_of_all(completes, choices)}


def _usage_of_all(completes: Sequence[Complete], choices: int | None = None) -> JsonObject | None:
    """The usage of several answers, ``choices`` to each prompt, or all to one."""
    counts = [complete.stats for complete in completes if complete.stats is not None]
    if len(counts) < len(completes):
        return None
    of_prompts = counts[:: choices or len(completes)]
    prompt, cached = (
        sum(getattr(each, name) for each in of_prompts) for name in ("prompt_tokens", "cached_prompt_tokens")
    )
    made = sum(each.completion_tokens for each in counts)
    return usage(GenerationStats(prompt, made, prompt + made, 0.0, cached))


def with_one_call(complete: Complete) -> Complete:
    """The answer with its first call only, and a warning where it has several: ``parallel_tool_calls`` is false."""
    message = complete.full_message
    if len(message.function_calls or ()) < 2:
        return complete
    message = replace(message, function_calls=(message.function_calls or ())[:1])
    return replace(complete, full_message=message, warnings=(*complete.warnings, ONE_CALL))


def delivered(request: GenerationRequest, complete: Complete) -> Complete:
    """The reply that every writer of a protocol writes: the answer as the request wants it delivered, with the notes
    about its fields and documents."""
    complete = with_one_call(complete) if request.single_call else complete
    if request.silent:
        stats = complete.stats and replace(complete.stats, completion_tokens=0)
        complete = replace(complete, full_message=ChatMessage("assistant", ""), logprobs=(), stats=stats)
    notes, said = (*request.notes, *complete.warnings), (*request.document_notes, *complete.left_out)
    return replace(complete, warnings=notes, left_out=said)


def with_id(call: LeapFunctionCall) -> LeapFunctionCall:
    """The call, named where the model named none: its result refers to it."""
    return call if call.id else replace(call, id=f"call_{secrets.token_hex(8)}")


def _choice(answer: JsonObject, complete: Complete, logprobs: JsonObject | None) -> JsonObject:
    choice = {"index": 0, **answer, "logprobs": logprobs, "finish_reason": finish_reason(complete)}
    return {"choices": [choice], "usage": usage(complete.stats), "leap": complete.reported()}


def logprobs_of(complete: Complete) -> JsonObject | None:
    """How likely the tokens were, where that was asked for: all generated ones, reasoning and markers too."""
    return {"content": [each.to_json() for each in complete.logprobs]} if complete.logprobs else None


class ReplyWriter(ABC):
    """Writes the answer to ``request`` in one protocol, whole or as a stream: of server-sent events, with comments as
    keep-alives, where a protocol has no other way. ``stores``: whether writing the end waits for the disk."""

    media_type = EVENT_STREAM
    stores = False
    id: str

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._called = 0
        """Calls of a stream so far."""

    def whole(self, complete: Complete) -> JsonObject:
        """The answer in one piece."""
        return self._whole(delivered(self._request, complete))

    def pieces(self, response: MessageResponse) -> Iterable[bytes]:
        """The events of a stream that one response becomes."""
        if isinstance(response, Chunk):
            return self._text_events(response.text)
        if isinstance(response, ReasoningChunk):
            return self._reasoning_events(response.reasoning)
        if isinstance(response, FunctionCalls):
            calls = response.function_calls
            calls = calls[: max(1 - self._called, 0)] if self._request.single_call else calls
            self._called += len(calls)
            return self._calls_events(calls)
        if isinstance(response, FunctionResult) and self._request.search:
            return self._search_events(response)
        if isinstance(response, Complete):
            return self._end_events(delivered(self._request, response))
        return self._other_events(response)

    def begin(self) -> bytes:
        """What a stream opens with."""
        return b""

    def end(self) -> bytes:
        """What a stream closes with."""
        return b""

    def ping(self) -> bytes:
        """A keep-alive in a stream."""
        return COMMENT

    @abstractmethod
    def failed(self, error: LeapError) -> bytes:
        """What a stream closes with when the generation failed."""

    @abstractmethod
    def _whole(self, complete: Complete) -> JsonObject: ...

    @abstractmethod
    def _text_events(self, text: str) -> Iterable[bytes]: ...

    @abstractmethod
    def _reasoning_events(self, reasoning: str) -> Iterable[bytes]: ...

    @abstractmethod
    def _calls_events(self, calls: Sequence[LeapFunctionCall]) -> Iterable[bytes]: ...

    @abstractmethod
    def _end_events(self, complete: Complete) -> Iterable[bytes]: ...

    def _search_events(self, result: FunctionResult) -> Iterable[bytes]:
        """Of a search for tools, where the protocol has such."""
        return self._other_events(result)

    def _other_events(self, response: MessageResponse) -> Iterable[bytes]:
        return ()


class OpenAIReply(ReplyWriter):
    """The answer to one request in OpenAI's format; ``model`` is how the request named it. ``keep`` gets a message that
    was spoken, with the id that it has for the client. ``prompts``: a request for each prompt where there are
    several."""

    def __init__(
        self,
        request: GenerationRequest,
        model: str,
        keep: Callable[[AudioAnswer, ChatMessage], object] | None = None,
        *,
        prompts: Sequence[GenerationRequest] = (),
    ) -> None:
        super().__init__(request)
        self._prompts = prompts or (request,)
        self._keep = keep
        self._is_chat = request.prompt is None
        self._has_sound = False
        self.id = f"{'chatcmpl' if self._is_chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._head: JsonObject = {"id": self.id, "created": int(time.time()), "model": model}
        self._index = 0
        self._around: list[bytes] = []
        """What comes before and after the text of a chunk."""
        self._event: JsonObject = {}
        """What leap's own client gets beside a piece: the response that it was made of."""

    def whole(self, complete: Complete) -> JsonObject:
        self._kept(complete)
        return super().whole(complete)

    def _whole(self, complete: Complete) -> JsonObject:
        if self._is_chat:
            return whole_chat(self._head, complete, self._request.audio)
        return whole_text(self._head, complete, self._echo, self._request.first_token)

    def several(self, completes: Sequence[Complete]) -> JsonObject:
        """Several answers to one request."""
        bodies = [self.of_choice(n).whole(complete) for n, complete in enumerate(completes)]
        return joined(bodies, completes, self._request.choices)

    def of_choice(self, index: int) -> OpenAIReply:
        """The writer of one of several answers to the same request: its chunks have this index, and no usage."""
        prompt = self._prompts[index // self._request.choices]
        reply = OpenAIReply(replace(prompt, include_usage=False), "", self._keep)
        reply.id, reply._head, reply._index = self.id, self._head, index
        return reply

    def end_of_several(self, completes: Sequence[Complete]) -> bytes:
        """What a stream of several answers closes with."""
        counted = _usage_of_all(completes, self._request.choices)
        counts = frame({**self._chunk_head, "choices": [], "usage": counted})
        return (counts if self._request.include_usage else b"") + DONE

    def begin(self) -> bytes:
        if self._is_chat:
            return self._chunk({"role": "assistant", "content": ""})
        return self._chunk(self._echo) if self._echo else b""

    def progress(self, progress: PromptProgress) -> bytes:
        """An event that says how far the prompt is read, in llama-server's words."""
        return self._chunk({} if self._is_chat else "", more={"prompt_progress": progress.to_json()})

    def end(self) -> bytes:
        return DONE

    def failed(self, error: LeapError) -> bytes:
        _, kind, code = status_of(error)
        return frame({"error": error_object(error, kind, code)}) + DONE

    def pieces(self, response: MessageResponse) -> Iterable[bytes]:
        self._event = {}
        if self._request.events:
            self._event["leap"] = response.to_json()
            if isinstance(response, Complete) and response.facts is not None:
                self._event["leap"]["facts"] = response.facts.to_json()
        if not isinstance(response, Complete):
            return super().pieces(response)
        self._kept(response)
        counts = frame({**self._chunk_head, "choices": [], "usage": usage(response.stats)})
        return (*super().pieces(response), *([counts] if self._request.include_usage else []))

    def _text_events(self, text: str) -> Iterable[bytes]:
        if self._request.audio is not None:
            yield self._chunk({"audio": {"id": self._request.audio.id, "transcript": text}})
        else:
            text = "" if self._request.silent else text
            yield self._chunk({"content": text} if self._is_chat else text) if self._event else self._text_event(text)

    def _text_event(self, text: str) -> bytes:
        """A chunk of text: around the text they are all the same."""
        if not self._around:
            instead = f"text of {self.id}"  # which nobody could have named the model
            whole = self._chunk({"content": instead} if self._is_chat else instead)
            self._around = whole.split(_encode(instead).encode("ascii"))
        return _encode(text).encode("ascii").join(self._around)

    def _reasoning_events(self, reasoning: str) -> Iterable[bytes]:
        yield self._chunk({"reasoning_content": reasoning})

    def _calls_events(self, calls: Sequence[LeapFunctionCall]) -> Iterable[bytes]:
        first = self._called - len(calls)
        written = [{"index": first + n, **with_id(call).to_json()} for n, call in enumerate(calls)]
        if written or self._event:
            yield self._chunk({"tool_calls": written})

    def _other_events(self, response: MessageResponse) -> Iterable[bytes]:
        audio = self._request.audio
        if isinstance(response, AudioSample) and audio is not None:
            yield self._chunk({"audio": {"id": audio.id, "data": self._sound(response, audio)}})
        elif self._event:
            yield self._chunk({})

    def _end_events(self, complete: Complete) -> Iterable[bytes]:
        if self._is_chat:
            logprobs = logprobs_of(complete)
        else:
            logprobs = text_logprobs(complete, self._echo, self._request.first_token)
        self._event = self._event or {"leap": complete.reported()}
        yield self._chunk({} if self._is_chat else "", finish_reason(complete), logprobs)

    def _kept(self, complete: Complete) -> None:
        if self._keep is not None and self._request.audio is not None:
            self._keep(self._request.audio, complete.full_message)

    @property
    def _echo(self) -> str | None:
        return self._request.prompt if self._request.echo else None

    def _sound(self, sample: AudioSample, audio: AudioAnswer) -> str:
        """Base64 of a piece of sound; a WAV's header, of unknown length, comes with the first."""
        is_first, self._has_sound = not self._has_sound, True
        header = wav_header(UNKNOWN_LENGTH, sample.sample_rate) if is_first and audio.format == "wav" else b""
        return base64.b64encode(header + pcm16(sample.samples)).decode("ascii")

    @property
    def _chunk_head(self) -> JsonObject:
        return {**self._head, "object": "chat.completion.chunk" if self._is_chat else "text_completion"}

    def _chunk(
        self,
        delta: object,
        reason: str | None = None,
        logprobs: JsonObject | None = None,
        more: JsonObject | None = None,
    ) -> bytes:
        key = "delta" if self._is_chat else "text"
        choice = {"index": self._index, key: delta, "logprobs": logprobs, "finish_reason": reason}
        return frame({**self._chunk_head, "choices": [choice], **(more or self._event)})


def frame(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + _encode(value).encode("ascii") + b"\n\n"


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode  # ``json.dumps`` would make one for each event
