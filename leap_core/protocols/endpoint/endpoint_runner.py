"""A remote model as a ModelRunner: one answer, the check of its shape, and the list of models."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from weakref import WeakSet

from ...conversation.conversation import messages_of
from ...conversation.generator import Functions, Generation, MaybeOptions, Messages, RenderedPrompt, is_whole_wanted
from ...conversation.loading_options import LoraAdapter, existing_adapters
from ...conversation.options import AUTO, GenerationOptions, check_options, check_tool_choice, with_source
from ...conversation.page_pictures import UnseenPagesGeneration, without_pages
from ...conversation.request import Request
from ...conversation.responses import Complete, MessageResponse
from ...conversation.runner import ModelRunner
from ...conversation.streams import CheckedGeneration
from ...errors import LeapEndpointError, LeapError, LeapGenerationError, LeapModelNotFoundError, LeapOptionsError
from ...models.aliases_and_endpoints import Endpoint, refuse_offline
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from .bodies import OF_LEAP, ReplyReader, chat_body, check_held, in_one_piece, text_body
from .connection import Connection, Reads
from .errors import NoSuchPathError
from .responses_api import PATH, ResponsesReader, responses_body
from .retries import Patience


@dataclass(frozen=True)
class RequestForm:
    """One of the addresses that answer a request: its body, and what reads its answer for a chat's reader."""

    path: str
    body: Callable[[], JsonObject]
    reader: Callable[[ReplyReader], Reads] = lambda reply: reply


class EndpointGeneration(Generation):
    """The responses of one answer, as the connection's loop brings them."""

    def __init__(
        self,
        connection: Connection,
        ways: Sequence[RequestForm],
        options: GenerationOptions,
        on_end: Callable[[EndpointGeneration], object],
    ) -> None:
        self._connection, self._on_end = connection, on_end
        self._reply = ReplyReader(options, time.monotonic())
        self._events: queue.SimpleQueue[MessageResponse | LeapError | None] = queue.SimpleQueue()
        self._ready: deque[MessageResponse | LeapError | None] = deque()
        self._delivered: list[MessageResponse] = []
        self._stopped = self._ended = False
        self._cut: LeapError | None = None
        self._task: Future[None] = connection.submit(_exchange(connection, ways, self._reply, self._events.put))

    def wait(self, seconds: float) -> None:
        """Wait until the answer has begun, at most so long. Raises the error that came instead."""
        with suppress(queue.Empty):
            first = self._events.get(timeout=seconds)
            if isinstance(first, LeapError):
                self.close()
                raise self._cut or first
            self._ready.append(first)

    def __next__(self) -> MessageResponse:
        while not self._ended:
            if self._cut is not None:
                self.close()
                raise self._cut
            if self._stopped:
                self.close()
                return self._reply.interrupted(self._delivered)
            response = self._ready.popleft() if self._ready else self._events.get()
            if self._stopped or self._cut is not None or response is None:
                continue  # None: who stops or cuts wakes the reader
            if isinstance(response, LeapError):
                self.close()
                raise response
            if isinstance(response, Complete):
                self.close()
            else:
                self._delivered.append(response)
            return response
        raise StopIteration

    def stop(self) -> None:
        self._stopped = True
        self._wake()

    def cut(self, error: LeapGenerationError) -> None:
        """From any thread: give the answer up, and let its reader see this error."""
        self._cut = error
        self._wake()

    def _wake(self) -> None:
        self._task.cancel()
        self._events.put(None)

    def close(self) -> None:
        self._ended = True
        self._task.cancel()
        self._on_end(self)

    def __del__(self) -> None:
        with suppress(Exception):
            self._task.cancel()


async def _exchange(
    connection: Connection,
    ways: Sequence[RequestForm],
    reply: ReplyReader,
    put: Callable[[MessageResponse | LeapError], object],
) -> None:
    """Puts the responses, Complete last, or an error. Knows no generation, so that one that nobody reads is freed."""
    again: list[str] = []
    try:
        await _by_a_way_that_is_there(connection, ways, reply, put, again.append)
        if again:
            reply.warnings.append(f"the endpoint was asked {len(again) + 1} times: {', '.join(dict.fromkeys(again))}")
        for response in reply.finish():
            put(response)
    except LeapError as error:
        put(error)
    except Exception as error:  # what an endpoint sends must not hang its reader
        put(LeapEndpointError(f"the answer could not be read: {type(error).__name__}", of_request=True))


async def _by_a_way_that_is_there(
    connection: Connection,
    ways: Sequence[RequestForm],
    reply: ReplyReader,
    put: Callable[[MessageResponse | LeapError], object],
    on_again: Callable[[str], object],
) -> None:
    """Ask by the first way that the endpoint has, and remember it. Raises what the first one raised where it has
    none."""
    missing: NoSuchPathError | None = None
    for way in ways[connection.way if connection.way < len(ways) else 0 :]:
        try:
            body = way.body()
        except LeapOptionsError as error:
            if missing is None:
                raise
            missing.hint = f"{missing.hint}; if it has the Responses API alone, leave {error.option} out"
            break
        try:
            await connection.exchange(way.path, body, way.reader(reply), put, on_again)
        except NoSuchPathError as error:
            missing = missing or error
            continue
        connection.way = ways.index(way)
        return
    assert missing is not None
    raise missing


@dataclass(frozen=True)
class ShapeCheck:
    """What the finished text of an answer is held to: an endpoint promises nothing."""

    validate: Callable[[str], list[str]]
    exact: bool = False
    calls: bool = False
    remarks: Callable[[str], list[str]] = lambda _text: []

    def problems_of_cut(self, text: str, called: bool) -> list[str]:
        """What is wrong with an answer that was cut."""
        return self.validate(text)


def shape_check(options: GenerationOptions) -> ShapeCheck | None:
    """The check of the shape that the options ask for, None where they ask for none. Raises LeapSchemaError."""
    if options.json_schema_constraint is not None:
        from ...schemas.grounding import Grounding, source_of
        from ...schemas.json_schema import read_schema

        schema, source = read_schema(options.json_schema_constraint), options.grounding
        if not isinstance(source, str):
            return ShapeCheck(schema.problems)
        return ShapeCheck(schema.problems, remarks=Grounding(schema.document, source_of(source)).remarks_on)
    choices = options.choices_constraint
    if choices is None:
        return None

    def validate(text: str) -> list[str]:
        return [] if text in choices else [f"{text[:100]!r} is not one of {', '.join(choices)}"]

    return ShapeCheck(validate)


def only_model(connection: Connection) -> str:
    """The name of the endpoint's only model. Raises LeapModelNotFoundError where it has none, or several."""
    endpoint = connection.endpoint
    value = connection.ask("GET", f"{endpoint.url}/models")
    listed = value.get("data") if isinstance(value, dict) else None
    names = [str(each["id"]) for each in listed or () if isinstance(each, dict) and "id" in each]
    if len(names) == 1:
        return names[0]
    has = f"several models: {', '.join(names[:5])}" if names else "no model that it names"
    raise LeapModelNotFoundError(f"{endpoint.host} has {has}", hint=f"name one: {endpoint.name or endpoint.url}#MODEL")


REFUSAL_SECONDS = 1.0
"""This long ``start`` waits for an answer to begin, so that a refusal is raised by it; then the stream raises it."""
REPAIRS = 1
UNKNOWN_CONTEXT = 128 * 1024
"""Taken where the endpoint does not say how many tokens it holds."""
BYTES_A_TOKEN, TOKENS_A_MESSAGE = 3.5, 8
UNLOADED = "the model is unloaded"


def open_endpoint(
    endpoint: Endpoint, variables: Mapping[str, str] | None = None, patience: Patience | None = None
) -> EndpointRunner:
    """The runner of a remote model. Nothing is sent yet. Raises LeapEndpointError where the user wants nothing to
    leave the machine, or the key is not where it should be."""
    refuse_offline(variables)
    key = endpoint.read_key(os.environ if variables is None else variables)
    return EndpointRunner(endpoint, key, patience or Patience())


class EndpointRunner(ModelRunner):
    """``unload`` ends the connections to the endpoint; the model is the endpoint's business."""

    def __init__(self, endpoint: Endpoint, key: str | None, patience: Patience) -> None:
        self._endpoint = endpoint
        self._connection = Connection(endpoint, key, patience)
        self._guard = threading.RLock()
        self._model = endpoint.model
        self._context_size: int | None = None
        self._is_leap: bool | None = None
        self._unloaded = False
        self._running: WeakSet[EndpointGeneration] = WeakSet()

    @property
    def model_id(self) -> str:
        return self._model or self._endpoint.label

    @property
    def hides_deferred(self) -> bool:
        return False  # servers know functions by their declarations

    @property
    def reads_ahead(self) -> bool:
        return False

    @property
    def context_size(self) -> int:
        if self._context_size is None:
            self._check_loaded()
            self._context_size = self._asked_context() or UNKNOWN_CONTEXT
        return self._context_size

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        kept, left_out = without_pages(messages)
        if not left_out:
            return self._start(messages, functions, options)
        whole, without = (partial(self._start, asked, functions, options) for asked in (messages, kept))
        return UnseenPagesGeneration(whole, without, left_out)

    def _start(self, messages: Messages, functions: Functions, options: MaybeOptions) -> Generation:
        options = with_source(self._checked(options), messages)
        check_tool_choice(options.tool_choice, [function.name for function in functions])
        check = shape_check(options)
        form = in_one_piece if is_whole_wanted() else dict

        def begin(more: Messages = ()) -> Generation:
            asked, name = Request([*messages, *more], functions, options), self._model_name()
            chat = form(chat_body(asked))
            failure = self._connection.words.of_event
            if self._endpoint.path is not None:
                return self._begin((RequestForm(self._endpoint.path, lambda: {"model": name, **chat}),), options)
            ways = (
                RequestForm("/chat/completions", lambda: {"model": name, **chat}),
                RequestForm(
                    PATH,
                    lambda: {"model": name, **responses_body(asked)},
                    lambda reply: ResponsesReader(reply, failure),
                ),
            )
            return self._begin(ways, options)

        generation = begin()
        if check is None:
            return generation
        repairs = REPAIRS if options.repairs is None else options.repairs
        return CheckedGeneration(generation, check, begin, repairs)

    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
        options = self._checked(options, of_text=True)
        check = shape_check(options)
        if check is not None:
            raise LeapOptionsError(
                "constraint", "a remote model completes plain text only without a schema; send a message instead"
            )
        body = {"model": self._model_name(), **text_body(text, options)}
        return self._begin((RequestForm("/completions", lambda: body),), options)

    def _checked(self, options: MaybeOptions, *, of_text: bool = False) -> GenerationOptions:
        self._check_loaded()
        check_options(options)
        options = (options or GenerationOptions()).with_extras()
        options.validate()
        check_held(replace(options, function_call_parser=AUTO) if of_text else options)  # a text has no calls
        if any(getattr(options, name) != default for name, default in OF_LEAP.items()) and not self._asks_leap():
            options = replace(options, **OF_LEAP)
        return options

    def _asks_leap(self) -> bool:
        """Whether the endpoint is another leap, as its list of models says."""
        if self._is_leap is None:
            with suppress(LeapError, TimeoutError):
                self._is_leap = any(each.get("owned_by") == "leap" for each in self._listed())
        return bool(self._is_leap)

    def _listed(self) -> list[JsonObject]:
        """The endpoint's list of models. Raises LeapError or TimeoutError."""
        value = self._connection.ask("GET", f"{self._endpoint.url}/models")
        listed = value.get("data") if isinstance(value, dict) else None
        return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []

    def _begin(self, ways: Sequence[RequestForm], options: GenerationOptions) -> Generation:
        with self._guard:
            self._check_loaded()
            generation = EndpointGeneration(self._connection, ways, options, self._running.discard)
            self._running.add(generation)
        generation.wait(REFUSAL_SECONDS)
        return generation

    def _model_name(self) -> str:
        """The model's name; where none was given, that of the endpoint's only one."""
        if self._model is None:
            self._model = only_model(self._connection)
        return self._model

    def _asked_context(self) -> int | None:
        """What the endpoint says in its list of models, or as vLLM and leap do beside tokens; None where it does not
        say."""
        with suppress(LeapError, TimeoutError):
            entry: JsonObject = next((each for each in self._listed() if each.get("id") == self._model_name()), {})
            for name in ("max_model_len", "context_length", "context_window"):
                if isinstance(entry.get(name), int):
                    return int(entry[name])
        with suppress(LeapError, TimeoutError):
            value = self._beside("/tokenize", {"model": self._model_name(), "prompt": "a"}).get("max_model_len")
            return value if isinstance(value, int) and value > 0 else None
        return None

    def _beside(self, path: str, body: JsonObject) -> JsonObject:
        """The answer of an address that vLLM, llama.cpp and leap have beside the protocol's."""
        value = self._connection.ask("POST", self._endpoint.url.removesuffix("/v1") + path, body)
        return value if isinstance(value, dict) else {}

    def render(self, prompt: Messages | str, functions: Functions = (), options: MaybeOptions = None) -> RenderedPrompt:
        self._check_loaded()
        if not isinstance(prompt, str):
            raise LeapGenerationError(f"{self._endpoint.host} makes the prompt of messages, and does not show it")
        return RenderedPrompt(prompt, len(self.tokenize(prompt, parse_special=True)))

    def get_prompt_tokens_size(
        self, messages: Messages, add_bos_token: bool = True, functions: Functions = (), options: MaybeOptions = None
    ) -> int:
        """Estimated: only the endpoint knows how its model counts."""
        self._check_loaded()
        check_options(options)
        known = messages_of(messages)
        texts = [message.text for message in known] + [str(each.to_json_object()) for each in functions]
        size = sum(len(text.encode("utf-8")) for text in texts)
        return int(size / BYTES_A_TOKEN) + TOKENS_A_MESSAGE * len(known) + bool(add_bos_token)

    def set_adapters(self, adapters: Sequence[LoraAdapter]) -> None:
        if existing_adapters(adapters):
            raise LeapGenerationError(f"{self._endpoint.host} takes no adapters of this machine")

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        self._check_loaded()
        value = self._beside(
            "/tokenize", {"model": self._model_name(), "content": text, "parse_special": parse_special}
        )
        return [int(token) for token in value.get("tokens", ())]

    def detokenize(self, tokens: Sequence[int]) -> str:
        self._check_loaded()
        for token in tokens:
            if not isinstance(token, int) or token < 0:
                raise LeapOptionsError("tokens", f"{token!r} is no token of {self.model_id}")
        value = self._beside("/detokenize", {"model": self._model_name(), "tokens": list(tokens)})
        return str(value.get("content", value.get("prompt", "")))

    def unload(self) -> None:
        with self._guard:
            self._unloaded = True
            running = list(self._running)
        for generation in running:
            generation.cut(LeapGenerationError("the model was unloaded during the generation"))
        self._connection.close()

    def __del__(self) -> None:
        with suppress(Exception):
            self._connection.close()

    def _check_loaded(self) -> None:
        if self._unloaded:
            raise LeapGenerationError(UNLOADED, hint="load it again")
