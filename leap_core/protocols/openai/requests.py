"""OpenAI's requests as leap's: messages, functions and options out of a JSON body.

The one reader of such bodies, for ``leap serve`` and for the lines of ``leap batch``. Beside OpenAI's fields a request
may have ``top_k``, ``min_p``, ``repetition_penalty``, ``repeat_last_n``, ``enable_thinking`` (also in
``chat_template_kwargs``), and an object ``leap`` with ``options`` (as ``GenerationOptions.to_json`` writes them; they
win) and ``events`` (true: every chunk of a stream also carries the MessageResponse it was made of).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from ...conversation.calls import LeapFunction
from ...conversation.media.fetching import UrlAccess, fetch
from ...conversation.messages import ChatMessage, messages_from_json
from ...conversation.options import CONSTRAINTS, GENERATION, GenerationOptions, check_tool_choice
from ...conversation.request import Request
from ...errors import LeapOptionsError, LeapSerializationError
from ...schemas.json_values import JsonObject, object_at, text_at, whole_number
from ...system.dataclass import dataclass
from .fields import (
    ANY_OBJECT,
    FIELDS,
    HARMLESS,
    NOTE,
    ONLY_VALUE,
    READERS,
    REFUSE,
    BodyFields,
    Unknown,
    allowed_tools,
    functions_of,
    notes_on,
    options_in,
    read_keep_alive,
    read_options,
    read_parameters,
    read_ping_interval,
)
from .speech import AudioAnswer, asked_to_speak, read_audio

if TYPE_CHECKING:
    from ...documents.reading import ReadingBudget

SEEDS = 2**64
MOST_CHOICES = 16
"""Answers to one prompt."""
MOST_ANSWERS = 128
"""Answers to one request, all its prompts together: each is a thread of the server."""
KNOWN_FIELDS = frozenset(
    (*FIELDS, *READERS, *ONLY_VALUE, *HARMLESS, "messages", "model", "tools", "tool_choice", "parallel_tool_calls")
) | {"n", "modalities", "audio", "stream", "stream_options", "enable_thinking", "chat_template_kwargs", "leap"}
KNOWN_FIELDS -= {name for name, row in FIELDS.items() if not row.line}
"""The fields of a chat request that mean something in a line of a batch."""


@dataclass(frozen=True)
class GenerationRequest(Request):
    """What a body asks for. ``prompt`` is the text to continue, for completions without a chat; then ``messages`` is
    empty. ``prompt_tokens``: it was given as these token ids, and ``prompt`` is empty until who knows the model fills
    it in; ``first_token`` is the text of the first of them.

    ``audio``: the answer is to be spoken. ``events``: the client is leap's own. ``single_call``: deliver one
    function call at most. ``return_progress``: a stream also says how far the prompt is read. ``choices``: how many
    answers are wanted. ``echo``: repeat the prompt before the completion; ``silent``: and then say nothing, only how
    likely the prompt is. ``suffix``: what follows the text that is to be filled in. ``notes`` name the fields that were
    ignored; ``document_notes`` say what of the documents could not be read.
    """

    model: str | None = None
    prompt: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    first_token: str | None = None
    stream: bool = False
    return_progress: bool = False
    include_usage: bool = False
    events: bool = False
    single_call: bool = False
    choices: int = 1
    echo: bool = False
    silent: bool = False
    suffix: str | None = None
    notes: tuple[str, ...] = ()
    document_notes: tuple[str, ...] = ()
    keep_alive: float | None = None
    """Seconds without use after which the model may go; 0 never."""
    ping_interval: float | None = None
    """Seconds without data until a stream sends a keep-alive; 0 never, None as the server does."""
    audio: AudioAnswer | None = None
    search: str | None = None
    """The protocol's own tool that finds tools, where the client has put some off and wants to see the searches."""

    def to_line(self, messages: list[JsonObject]) -> JsonObject:
        """The body of a batch's line that asks for this answer to ``messages``, as ``read_messages_of`` reads them."""
        body: JsonObject = {"model": self.model, "messages": messages, "leap": {"options": self.options.to_json()}}
        if self.functions:
            body["tools"] = [function.to_json() for function in self.functions]
        if self.single_call:
            body["parallel_tool_calls"] = False
        return body


OF_TEXTS: JsonObject = {"function_call_parser": None, "inline_thinking_tags": True}
"""Options of a text that is continued without a chat template."""


def read_chat(
    body: object,
    *,
    unknown: Unknown = NOTE,
    defaults: GenerationOptions | None = None,
    functions: Sequence[LeapFunction] = (),
    urls: UrlAccess = UrlAccess.FILES,
) -> GenerationRequest:
    """A request to /v1/chat/completions. ``defaults`` and ``functions`` hold where the body says nothing. ``urls``:
    what the URLs of pictures may reach.

    Raises LeapSerializationError (``path`` is the field) or LeapOptionsError (``option`` is the field).
    """
    fields = BodyFields(body)
    if fields.text("suffix"):
        raise LeapSerializationError("only a completion of a text has one", path="suffix")
    messages, tools = fields.take("messages"), fields.take("tools")
    declared = list(functions) if tools is None else functions_of(tools)
    choice = body.get("tool_choice") if isinstance(body, dict) else None
    parameters = read_parameters(fields)
    if tools == []:
        parameters.setdefault("tool_choice", None)  # the functions of ``defaults.tool_choice`` are not there
    further = {**_of_openai(fields), "single_call": not fields.boolean("parallel_tool_calls", True)}
    audio = further["audio"] = read_audio(fields, unknown)
    request = read_conversation(
        fields, messages, declared, parameters, choice, unknown=unknown, defaults=defaults, urls=urls, **further
    )
    return request if audio is None else replace(request, messages=asked_to_speak(request.messages))


def read_conversation(
    body: BodyFields,
    messages: object,
    functions: Sequence[LeapFunction],
    parameters: JsonObject,
    choice: object = None,
    *,
    urls: UrlAccess,
    unknown: Unknown = NOTE,
    defaults: GenerationOptions | None = None,
    **further: Any,
) -> GenerationRequest:
    """The request of any protocol, once it has taken what is its own out of ``body``: ``messages`` in OpenAI's shape,
    options as ``read_parameters`` has them, the tool ``choice``, and ``further`` fields of the request. Raises
    LeapSerializationError or LeapOptionsError."""
    extension = body.object("leap")
    events = extension.take("events") is True
    read, said, notes = read_messages_of(messages, urls, may_be_none=events)
    parameters = {**parameters, **options_in(extension)}
    options, declared = options_over(parameters, defaults or GenerationOptions(), functions, allowed_tools(choice))
    further |= {"messages": read, "functions": declared, "events": events, "document_notes": said}
    return GenerationRequest(options=options, **further, **_common(body, unknown, notes))


def read_messages_of(
    value: object, urls: UrlAccess, *, may_be_none: bool = False
) -> tuple[list[ChatMessage], tuple[str, ...], tuple[str, ...]]:
    """The messages of a request, what of their documents could not be read, and notes on what was read in another way.
    Raises LeapSerializationError."""
    read, said = with_documents(value, urls)
    given, notes = with_arguments(read)
    messages = messages_from_json(given, urls=urls)
    if not messages and not may_be_none:
        raise LeapSerializationError("there must be at least one message", path="messages")
    return messages, said, notes


def options_over(
    parameters: JsonObject,
    defaults: GenerationOptions,
    declared: Sequence[LeapFunction] = (),
    allowed: Container[str] | None = None,
) -> tuple[GenerationOptions, list[LeapFunction]]:
    """The options of a chat, ``parameters`` over ``defaults``, and those of the functions that are ``allowed``. Raises
    LeapOptionsError."""
    functions = [function for function in declared if allowed is None or function.name in allowed]
    if parameters.get("json_schema_constraint") == ANY_OBJECT and defaults.inject_schema_into_prompt:
        parameters.setdefault("inject_schema_into_prompt", False)  # the schema says nothing that the request does not
    options = _options(parameters, defaults)
    check_tool_choice(options.tool_choice, [function.name for function in functions])
    return options, functions


def read_text(prompt: object, values: Mapping[str, Any], suffix: str | None) -> GenerationRequest:
    """A text to continue, with options of ``values`` (see ``read_options``). Raises LeapSerializationError or
    LeapOptionsError."""
    (text,) = _prompts(prompt)
    options = _options({**OF_TEXTS, **read_options(values)}, GenerationOptions())
    return GenerationRequest(options=options, prompt=str(text), suffix=suffix)


def read_completion(body: object) -> GenerationRequest:
    """A request to /v1/completions with one prompt: a text, or token ids, that is continued without a chat template.

    Raises LeapSerializationError or LeapOptionsError.
    """
    requests = read_completions(body)
    if len(requests) > 1:
        raise LeapSerializationError("expected one prompt", path="prompt", hint="send one request a prompt")
    return requests[0]


def read_completions(body: object) -> list[GenerationRequest]:
    """A request to /v1/completions: ``prompt`` is a text, token ids, or a list of texts or of lists of token ids; a
    request for each of them.

    Raises LeapSerializationError or LeapOptionsError.
    """
    body_fields = BodyFields(body)
    extension = body_fields.object("leap")
    events = extension.take("events") is True
    prompts = _prompts(body_fields.take("prompt"))
    echo, suffix = body_fields.boolean("echo", False), body_fields.text("suffix") or None
    if echo and suffix is not None:
        raise LeapSerializationError("cannot be combined with suffix", path="echo")
    if suffix is not None and not all(isinstance(prompt, str) for prompt in prompts):
        raise LeapSerializationError("cannot be combined with a prompt of token ids", path="suffix")
    parameters = {**OF_TEXTS, **read_parameters(body_fields), **options_in(extension)}
    if echo and parameters.get("logprobs"):
        parameters["prompt_logprobs"] = True
    silent = echo and parameters.get("max_tokens") == 0
    if silent:
        parameters["max_tokens"] = 1  # one token is made, and not sent
    request = GenerationRequest(
        options=_options(parameters, GenerationOptions()),
        events=events,
        echo=echo,
        silent=silent,
        suffix=suffix,
        **_of_openai(body_fields),
        **_common(body_fields),
    )
    if len(prompts) * request.choices > MOST_ANSWERS:
        raise LeapSerializationError(f"more than {MOST_ANSWERS} answers to one request", path="prompt")
    return [
        replace(request, prompt=prompt)
        if isinstance(prompt, str)
        else replace(request, prompt="", prompt_tokens=prompt)
        for prompt in prompts
    ]


def _prompts(value: object) -> list[str | tuple[int, ...]]:
    """The prompts of a completion. Raises LeapSerializationError."""
    prompts: list[str | tuple[int, ...]] = []
    for each in value if isinstance(value, list) and not _are_tokens(value) else [value]:
        if isinstance(each, str) and each:
            prompts.append(each)
        elif isinstance(each, list) and _are_tokens(each):
            prompts.append(tuple(each))
        else:
            prompts = []
            break
    if not prompts:
        raise LeapSerializationError("expected a text, token ids, or a list of these, none empty", path="prompt")
    return prompts


def _are_tokens(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(each, int) and not isinstance(each, bool) for each in value)


def options_of_choice(options: GenerationOptions, n: int) -> GenerationOptions:
    """The options of the n-th of several answers to one request: with another seed, or all would be one."""
    seed = options.rng_seed
    return options if seed is None or not n else replace(options, rng_seed=(seed + n) % SEEDS)


def _of_openai(body: BodyFields) -> JsonObject:
    """What only OpenAI's chats and completions have."""
    choices = whole_number(body.take("n"))
    if choices is None:
        choices = 1
    if not isinstance(choices, int) or isinstance(choices, bool) or not 1 <= choices <= MOST_CHOICES:
        raise LeapSerializationError(f"{choices!r} is not a number from 1 to {MOST_CHOICES}", path="n")
    return {
        "return_progress": body.boolean("return_progress", False),
        "include_usage": body.object("stream_options").boolean("include_usage", False),
        "choices": choices,
    }


def _common(body: BodyFields, unknown: Unknown = NOTE, notes: tuple[str, ...] = ()) -> JsonObject:
    model = body.text("model")
    if model == "":
        raise LeapSerializationError("expected a model's name", path="model")
    return {
        "model": model,
        "stream": body.boolean("stream", False),
        "keep_alive": None if unknown is REFUSE else read_keep_alive(body.take("keep_alive")),
        "ping_interval": read_ping_interval(body.take("sse_ping_interval")),
        "notes": (*body.finish(unknown), *notes),
    }


def _options(parameters: JsonObject, defaults: GenerationOptions) -> GenerationOptions:
    """``parameters`` over ``defaults``. An answer has one shape: one of ``parameters`` replaces the default's."""
    try:
        read = GenerationOptions.from_json(parameters)
        merged = {each.name: getattr(defaults, each.name) for each in fields(defaults)}
        if any(name in parameters for name in CONSTRAINTS):
            merged.update(dict.fromkeys(CONSTRAINTS))
        merged.update({name: getattr(read, name) for name in parameters})
        return GenerationOptions(**merged)
    except LeapOptionsError as error:
        option = error.option.removeprefix("options.")
        row = GENERATION.get(option)
        raise LeapOptionsError(row.chat[0] if row is not None and row.chat else option, error.reason) from None


_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def reading_until(stop: threading.Event) -> Iterator[None]:
    """Within the block documents are read no further once ``stop`` is set."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def with_documents(messages: object, urls: UrlAccess) -> tuple[object, tuple[str, ...]]:
    """The messages with the texts of documents, and pictures of pages that are scans, in the places of file parts; and
    notes of what could not be read. All documents of a request have one budget. Raises LeapSerializationError."""
    if not isinstance(messages, list):
        return messages, ()
    read = _DocumentParts(urls)
    found = [
        {**message, "content": read.parts(message["content"], f"messages[{n}].content")}
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        else message
        for n, message in enumerate(messages)
    ]
    return found, notes_on(read.notes)


class _DocumentParts:
    """Reads the documents of one request."""

    def __init__(self, urls: UrlAccess) -> None:
        self.urls = urls
        self.notes: list[str] = []
        self._budget: ReadingBudget | None = None

    def parts(self, parts: list[Any], path: str) -> list[Any]:
        """The parts of a message, documents as texts and pictures."""
        found: list[Any] = []
        for n, part in enumerate(parts):
            is_file = isinstance(part, Mapping) and part.get("type") == "file"
            found += self._parts_of(part, f"{path}[{n}].file") if is_file else [part]
        return found

    def _parts_of(self, part: Mapping[str, Any], where: str) -> list[Any]:
        from ...documents.reading import ReadingBudget, notes_of, parts_of, read_document

        file = object_at(part.get("file"), where)
        if file.get("file_id") is not None:
            raise LeapSerializationError("files of the server are not read", path=where, hint="send its file_data")
        name = text_at(file.get("filename") or "document", f"{where}.filename")
        url = text_at(file.get("file_url") or file.get("file_data"), f"{where}.file_data")
        scheme = url.partition(":")[0].lower()
        url = url if scheme in ("data", "file", "http", "https") else f"data:;base64,{url}"
        self._budget = self._budget or ReadingBudget()
        try:
            document = read_document(fetch(url, self.urls), name, stop=_stop.get(), budget=self._budget)
            self.notes += [f"{name}: {note}" for note in notes_of(document)]
            return parts_of(document, name, stop=_stop.get())
        except LeapSerializationError as error:
            raise LeapSerializationError(error.message, path=where, hint=error.hint) from None


def with_arguments(messages: object) -> tuple[object, tuple[str, ...]]:
    """The messages with the arguments of their calls as objects: what a model wrote wrongly is an argument of its own,
    on which there is a note, or the conversation could never continue."""
    notes: list[str] = []

    def read(call: object, path: str) -> object:
        function = call.get("function") if isinstance(call, dict) else None
        text = function.get("arguments") if isinstance(function, dict) else None
        if not (isinstance(call, dict) and isinstance(function, dict) and isinstance(text, str)):
            return call
        try:
            arguments = json.loads(text or "{}")
        except (ValueError, RecursionError):
            arguments = text
        if not isinstance(arguments, dict):
            notes.append(f"{path}.function.arguments is no JSON object and was taken as text")
            arguments = {"arguments": arguments if isinstance(arguments, str) else text}
        return {**call, "function": {**function, "arguments": arguments}}

    given = list(messages) if isinstance(messages, list) else []
    for n, message in enumerate(given):
        if isinstance(message, dict) and isinstance(message.get("tool_calls"), list):
            calls = [read(call, f"messages[{n}].tool_calls[{m}]") for m, call in enumerate(message["tool_calls"])]
            given[n] = {**message, "tool_calls": calls}
    return given or messages, notes_on(notes)
