"""A model elsewhere as a ModelRunner."""

from __future__ import annotations

from ..json_fields import JsonObject
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from ..errors import LeapError, LeapGenerationError, LeapModelNotFoundError, LeapOptionsError
from ..models.references.endpoints import Endpoint, refuse_offline
from ..options import GenerationOptions
from ..options.adapters import LoraAdapter, adapters_of
from ..options.generation import check_options, check_tool_choice
from ..runner.checked_generation import CheckedGeneration
from ..runner.contract import Generation, ModelRunner, RenderedPrompt
from ..runner.conversation import messages_of
from ..runner.generator import Functions, MaybeOptions, Messages
from .connection import Connection
from .generation import EndpointGeneration, Way, shape_check
from .models import only_model
from .requests import chat_body, check_held, text_body
from .responses_api import PATH, ResponsesReader, responses_body
from .retries import Patience


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
    """The runner of a model elsewhere. Nothing is sent yet. Raises LeapEndpointError where the user wants nothing to
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
        self._unloaded = False
        self._running: WeakSet[EndpointGeneration] = WeakSet()

    @property
    def model_id(self) -> str:
        return self._model or self._endpoint.label

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
        options = self._checked(options)
        check_tool_choice(options.tool_choice, [function.name for function in functions])
        check = shape_check(options)

        def begin(more: Messages = ()) -> Generation:
            asked, name = [*messages, *more], self._model_name()
            chat = chat_body(asked, functions, options)
            failure = self._connection.words.of_event
            ways = (
                Way("/chat/completions", lambda: {"model": name, **chat}),
                Way(
                    PATH,
                    lambda: {"model": name, **responses_body(asked, functions, options)},
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
        options = self._checked(options)
        check = shape_check(options)
        if check is not None:
            raise LeapOptionsError("shape", "an endpoint goes on from a text without one; give it as a message")
        body = {"model": self._model_name(), **text_body(text, options)}
        return self._begin((Way("/completions", lambda: body),), options)

    def _checked(self, options: MaybeOptions) -> GenerationOptions:
        self._check_loaded()
        check_options(options)
        options = (options or GenerationOptions()).with_extras()
        options.validate()
        check_held(options)
        return options

    def _begin(self, ways: Sequence[Way], options: GenerationOptions) -> Generation:
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
            listed = self._connection.ask("GET", f"{self._endpoint.url}/models").get("data", ())
            entry: JsonObject = next((each for each in listed if each.get("id") == self._model_name()), {})
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
        for adapter in adapters_of(adapters):
            if not adapter.path.exists():
                raise LeapModelNotFoundError(f"there is no adapter {adapter.path}")
        if adapters:
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
