"""Ollama's protocol: requests as leap's, leap's responses as lines of JSON."""

from __future__ import annotations

import base64
import json
import secrets
import time
from binascii import Error as NotBase64
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from ..conversation.media.fetching import UrlAccess
from ..conversation.messages import LeapFunctionCall
from ..conversation.options import GENERATION, GenerationOptions
from ..conversation.responses import Complete, TokenLogprob
from ..errors import LeapError, LeapSerializationError
from ..schemas.json_values import JsonObject, list_at, object_at, text_at, whole_number
from ..system.dataclass import dataclass
from .openai.fields import (
    EFFORTS,
    FIELDS,
    BodyFields,
    functions_of,
    notes_on,
    read_keep_alive,
    read_options,
    read_ping_interval,
)
from .openai.replies import ReplyWriter, finish_reason
from .openai.requests import GenerationRequest, options_over, read_messages_of, read_text

OPTIONS = {row.ollama: row.chat[0] for row in GENERATION.values() if row.ollama}
"""Ollama's options by the fields of a chat request; others are for loading, or unknown here."""
KNOWN = {*GENERATION, *FIELDS, *(row.responses for row in GENERATION.values() if row.responses)}
LATEST = ":latest"
PICTURES = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))


@dataclass(frozen=True)
class OllamaRequest:
    """``generation`` is what is asked of the model, None where a model is only to be loaded or let go of. ``chat``:
    the answer is a message, otherwise a text. Without a ``model`` the default one answers."""

    model: str | None
    chat: bool
    keep_alive: float | None
    generation: GenerationRequest | None


@dataclass(frozen=True)
class OllamaEmbedding:
    """Texts to make vectors of. ``single``: the older endpoint asks, for one."""

    model: str
    texts: list[str]
    cut: bool
    dimensions: int | None
    keep_alive: float | None
    single: bool


def read_ollama_chat(body: object, *, urls: UrlAccess = UrlAccess.DATA) -> OllamaRequest:
    """A request to /api/chat. Raises LeapSerializationError or LeapOptionsError."""
    fields = BodyFields(body)
    common, values = _read_common(fields)
    messages, tools = fields.take("messages"), fields.take("tools") or None
    asked = _chat(common, values, _messages(list_at(messages, "messages")), tools, urls) if messages else None
    return OllamaRequest(common["model"], True, common["keep_alive"], asked and _noting(fields, body, asked))


def read_ollama_generate(body: object, *, urls: UrlAccess = UrlAccess.DATA) -> OllamaRequest:
    """A request to /api/generate. Raises LeapSerializationError or LeapOptionsError."""
    fields = BodyFields(body)
    common, values = _read_common(fields)
    prompt, system, suffix = fields.text("prompt"), fields.text("system"), fields.text("suffix")
    images = fields.take("images")
    if not prompt and not images:
        asked = None
    elif fields.boolean("raw", False) or suffix:
        values = {name: value for name, value in values.items() if name not in OF_CHATS}
        asked = replace(read_text(prompt, values, suffix or None), **common)
    else:
        opening = [{"role": "system", "content": system}] if system else []
        last = _with_pictures({"role": "user", "content": prompt or ""}, images, "images")
        asked = _chat(common, values, [*opening, last], None, urls)
    return OllamaRequest(common["model"], False, common["keep_alive"], asked and _noting(fields, body, asked))


def _chat(
    common: JsonObject, values: JsonObject, messages: list[JsonObject], tools: object, urls: UrlAccess
) -> GenerationRequest:
    read, said, notes = read_messages_of(messages, urls)
    options, functions = options_over(read_options(values), GenerationOptions(), functions_of(tools))
    return GenerationRequest(
        options=options, messages=read, functions=functions, notes=notes, document_notes=said, **common
    )


def _noting(fields: BodyFields, body: Any, request: GenerationRequest) -> GenerationRequest:
    """The request with a note on each option of leap's that this protocol has not, or has elsewhere."""
    options = body.get("options") or {}
    left = [
        f"options.{name}" for name in options if options[name] is not None and name in KNOWN and name not in OPTIONS
    ]
    left += [name for name in sorted(KNOWN) if name in fields]
    notes = notes_on(f"the field {name!r} is unknown and was ignored" for name in left)
    return replace(request, notes=(*notes, *request.notes)) if notes else request


def read_ollama_embedding(body: object, *, single: bool = False) -> OllamaEmbedding:
    """A request to /api/embed, or with ``single`` to /api/embeddings. Raises LeapSerializationError."""
    fields = BodyFields(body)
    model = model_of(fields.take("model"))
    value = fields.take("prompt") if single else fields.take("input")
    texts = [value] if isinstance(value, str) else list_at(value, "prompt" if single else "input")
    for n, text in enumerate(texts):
        text_at(text, f"input[{n}]")
    dimensions = whole_number(fields.take("dimensions"))
    if dimensions is not None and (not isinstance(dimensions, int) or isinstance(dimensions, bool)):
        raise LeapSerializationError("expected a whole number", path="dimensions")
    keep_alive = read_keep_alive(fields.take("keep_alive"))
    return OllamaEmbedding(model, texts, fields.boolean("truncate", True), dimensions, keep_alive, single)


def model_of(value: object) -> str:
    """The model that a request names; a tag that says nothing is left out. Raises LeapSerializationError."""
    name = text_at(value, "model")
    if not name:
        raise LeapSerializationError("expected a model's name", path="model")
    return name[: -len(LATEST)] if name.lower().endswith(LATEST) else name


OF_CHATS = ("enable_thinking", "reasoning_effort", "response_format", "logprobs", "top_logprobs")
"""What a text that is continued does not take."""


def _read_common(fields: BodyFields) -> tuple[JsonObject, JsonObject]:
    """What both kinds of request have, and their options, see ``read_options``."""
    common = {
        "model": None if "model" not in fields else model_of(fields.take("model")),
        "stream": fields.boolean("stream", True),
        "keep_alive": read_keep_alive(fields.take("keep_alive")),
        "ping_interval": read_ping_interval(fields.take("sse_ping_interval")),
    }
    options = object_at(fields.take("options") or {}, "options")
    values = {name: options[own] for own, name in OPTIONS.items() if options.get(own) is not None}
    most = whole_number(options.get("num_predict"))
    if isinstance(most, int) and most > 0:  # -1 and -2 are as many as there is room for
        values["max_tokens"] = most
    shape = fields.take("format")
    if shape:
        schema = {} if shape == "json" else {"schema": object_at(shape, "format")}
        values["response_format"] = {"type": "json_object", **schema}
    think = fields.take("think")
    if think is not None:
        values |= {"enable_thinking": bool(think), **({"reasoning_effort": think} if think in EFFORTS else {})}
    values |= {name: value for name in ("logprobs", "top_logprobs") if (value := fields.take(name)) is not None}
    return common, values


def _messages(messages: list[Any]) -> list[JsonObject]:
    """OpenAI's messages. Ollama's calls have no ids: results belong to them by name, or else in order."""
    read: list[JsonObject] = []
    unanswered: OrderedDict[str, str] = OrderedDict()
    by_name: dict[str, deque[str]] = {}
    for n, value in enumerate(messages):
        path = f"messages[{n}]"
        message = object_at(value, path)
        role = text_at(message.get("role"), f"{path}.role")
        one: JsonObject = {"role": role, "content": message.get("content") or ""}
        if role == "assistant" and message.get("thinking"):
            one["reasoning_content"] = message["thinking"]
        calls = []
        for m, call in enumerate(list_at(message.get("tool_calls") or [], f"{path}.tool_calls")):
            function = object_at(object_at(call, path).get("function"), f"{path}.tool_calls[{m}].function")
            name, id = text_at(function.get("name"), f"{path}.tool_calls[{m}].function.name"), f"call_{n}_{m}"
            given = function.get("arguments") or {}
            arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            calls.append({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
            unanswered[id] = name
            by_name.setdefault(name, deque()).append(id)
        if calls:
            one["tool_calls"] = calls
        if role == "tool":
            named = message.get("tool_name") or message.get("name")
            if unanswered:
                ids = by_name.get(str(named)) or by_name[next(iter(unanswered.values()))]
                one["tool_call_id"] = ids.popleft()
                del unanswered[one["tool_call_id"]]
        read.append(_with_pictures(one, message.get("images"), f"{path}.images"))
    return read


def _with_pictures(message: JsonObject, images: object, path: str) -> JsonObject:
    if not images:
        return message
    parts: list[JsonObject] = [{"type": "text", "text": message["content"]}] if message["content"] else []
    for n, image in enumerate(list_at(images, path)):
        text = text_at(image, f"{path}[{n}]")
        try:
            head = base64.b64decode(text[:64], validate=True)
        except (NotBase64, ValueError):
            raise LeapSerializationError("expected a picture in base64", path=f"{path}[{n}]") from None
        kind = next((kind for start, kind in PICTURES if head.startswith(start)), "image/png")
        parts.append({"type": "image_url", "image_url": {"url": f"data:{kind};base64,{text}"}})
    return {**message, "content": parts}


NANOSECONDS = 1e9


def now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def error_text(error: LeapError) -> JsonObject:
    """Ollama's error object."""
    return {"error": error.message if error.hint is None else f"{error.message} ({error.hint})"}


OWN_NAMES = ("finish_reason", "stats")
"""Of a reply's ``leap`` in other protocols: this one has fields for them."""


class OllamaReply(ReplyWriter):
    """The answer to one request; ``model`` is how the request named it. ``chat``: a message, otherwise a text."""

    media_type = "application/x-ndjson"

    def __init__(self, request: GenerationRequest, model: str | None, *, chat: bool) -> None:
        super().__init__(request)
        self._model, self._chat = model, chat
        self.id = f"ollama_{secrets.token_hex(12)}"
        self._begun = self._loaded = time.monotonic()

    def begun(self, model: str) -> OllamaReply:
        """This, once the ``model`` is there and the answer begins."""
        self._model, self._loaded = self._model or model, time.monotonic()
        return self

    def _whole(self, complete: Complete) -> JsonObject:
        message = complete.full_message
        calls = message.function_calls or ()
        body = self._body(message.text, message.reasoning_content, calls, complete.logprobs)
        return {**body, **self._end(complete)}

    def _text_events(self, text: str) -> Iterator[bytes]:
        yield _line({**self._body(text), "done": False})

    def _reasoning_events(self, reasoning: str) -> Iterator[bytes]:
        yield _line({**self._body("", reasoning), "done": False})

    def _calls_events(self, calls: Sequence[LeapFunctionCall]) -> Iterator[bytes]:
        yield _line({**self._body("", None, calls), "done": False})

    def _end_events(self, complete: Complete) -> Iterator[bytes]:
        yield _line({**self._body("", logprobs=complete.logprobs), **self._end(complete)})

    def ping(self) -> bytes:
        """A keep-alive in a stream: a piece without text, because lines of JSON have no comments."""
        return _line({**self._body(""), "done": False})

    def failed(self, error: LeapError) -> bytes:
        return _line(error_text(error))

    def without_answer(self, reason: str) -> JsonObject:
        """What is said where a model was only loaded or let go of."""
        return {**self._body(""), "done": True, "done_reason": reason}

    def _body(
        self,
        text: str,
        reasoning: str | None = None,
        calls: Sequence[LeapFunctionCall] = (),
        logprobs: Sequence[TokenLogprob] | None = None,
    ) -> JsonObject:
        body: JsonObject = {"model": self._model, "created_at": now()}
        thinking = {"thinking": reasoning} if reasoning else {}
        if self._chat:
            message: JsonObject = {"role": "assistant", "content": text, **thinking}
            if calls:
                functions = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
                message["tool_calls"] = [{"function": function} for function in functions]
            body["message"] = message
        else:
            body |= {"response": text, **thinking}
        if logprobs:
            body["logprobs"] = [_logprob(each) for each in logprobs]
        return body

    def _end(self, complete: Complete) -> JsonObject:
        end: JsonObject = {"done": True, "done_reason": "length" if finish_reason(complete) == "length" else "stop"}
        total, loading = time.monotonic() - self._begun, self._loaded - self._begun
        end |= {"total_duration": int(total * NANOSECONDS), "load_duration": int(loading * NANOSECONDS)}
        if complete.stats is not None:
            stats = complete.stats
            answering = total - loading
            reading = min(stats.time_to_first_token, answering)
            end |= {
                "prompt_eval_count": stats.prompt_tokens,
                "prompt_eval_duration": int(reading * NANOSECONDS),
                "eval_count": stats.completion_tokens,
                "eval_duration": int((answering - reading) * NANOSECONDS),
            }
        notes = {name: said for name, said in complete.reported().items() if name not in OWN_NAMES}
        return end | ({"leap": notes} if notes else {})


def _logprob(each: TokenLogprob) -> JsonObject:
    text = each.token.decode("utf-8", "replace")
    top = [{"token": token.decode("utf-8", "replace"), "logprob": value} for token, value in each.top]
    return {"token": text, "logprob": each.logprob, "bytes": list(each.token), **({"top_logprobs": top} if top else {})}


def _line(value: JsonObject) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"
