"""A model that the host holds, as a ModelRunner: nothing is lost on the way, errors keep their class and fields."""

from __future__ import annotations

from ...json_fields import JsonObject
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from ...error_json import error_from_json
from ...errors import LeapError, LeapGenerationError, LeapModelNotFoundError, LeapOptionsError
from ...functions.parsers import PARSERS
from ...options import GenerationOptions
from ...options.adapters import LoraAdapter, adapters_of
from ...options.generation import check_options, check_tool_choice
from ...responses import Complete, MessageResponse
from ...runner.contract import Generation, ModelRunner, RenderedPrompt
from ...runner.conversation import messages_of
from ...runner.generator import DecisionModel, Functions, MaybeOptions, Messages
from .held_model import HeldModel
from .host_connection import ModelHost
from .http import Answer


STOP_SECONDS = 5.0
COUNT_SECONDS = 60.0
UNLOADED = "the model is unloaded"


class RemoteModelRunner(ModelRunner):
    """``unload`` only lets go of the model: the host keeps it for others."""

    def __init__(self, model: HeldModel) -> None:
        self._model = model
        self._guard = threading.RLock()  # a generation that is collected may let go of itself anywhere
        self._running: WeakSet[RemoteGeneration] = WeakSet()
        self._unloaded = False
        self._adapters: tuple[LoraAdapter, ...] | None = None

    @property
    def model_id(self) -> str:
        return str(self._model.description["model"])

    @property
    def context_size(self) -> int:
        return int(self._model.description["context_size"])

    @property
    def speaks(self) -> bool:
        return bool(self._model.description.get("speaks"))

    @property
    def decision_model(self) -> DecisionModel:
        return DecisionModel(**self._model.description.get("decisions") or {})

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        check_options(options)
        choice = None if options is None else options.tool_choice
        check_tool_choice(choice, [function.name for function in functions])
        return self._start("/v1/chat/completions", _chat(messages, functions), options)

    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
        return self._start("/v1/completions", {"prompt": text if isinstance(text, str) else list(text)}, options)

    def _start(self, path: str, body: JsonObject, options: MaybeOptions) -> Generation:
        self._check_loaded()
        check_options(options)
        options = options or GenerationOptions()
        if options.adapters is None and self._adapters is not None:
            options = replace(options, adapters=self._adapters)
        answer = self._model.open(path, {**body, "stream": True, "leap": _extension(options)}, timeout=None)
        generation = RemoteGeneration(self._model.host, answer)
        with self._guard:
            if not self._unloaded:
                self._running.add(generation)
                return generation
        generation.close()
        raise LeapGenerationError(UNLOADED)

    def get_prompt_tokens_size(
        self, messages: Messages, add_bos_token: bool = True, functions: Functions = (), options: MaybeOptions = None
    ) -> int:
        self._check_loaded()
        body = {**_chat(messages_of(messages), functions), "add_bos_token": add_bos_token, "leap": _extension(options)}
        with self._model.open("/leap/tokens", body, timeout=COUNT_SECONDS) as answer:
            return int(answer.json()["tokens"])

    def render(self, prompt: Messages | str, functions: Functions = (), options: MaybeOptions = None) -> RenderedPrompt:
        self._check_loaded()
        body = {"prompt": prompt} if isinstance(prompt, str) else _chat(prompt, functions)
        with self._model.open("/leap/prompt", {**body, "leap": _extension(options)}, timeout=COUNT_SECONDS) as answer:
            value = answer.json()
        return RenderedPrompt(str(value["text"]), int(value["tokens"]))

    def set_adapters(self, adapters: Sequence[LoraAdapter]) -> None:
        self._check_loaded()
        chosen = adapters_of(adapters)
        for adapter in chosen:
            if not adapter.path.exists():
                raise LeapModelNotFoundError(f"there is no adapter {adapter.path}")
        self._adapters = chosen

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        self._check_loaded()
        with self._model.open(
            "/tokenize", {"content": text, "parse_special": parse_special}, timeout=COUNT_SECONDS
        ) as answer:
            return [int(token) for token in answer.json()["tokens"]]

    def detokenize(self, tokens: Sequence[int]) -> str:
        self._check_loaded()
        for token in tokens:
            if not isinstance(token, int) or token < 0:
                raise LeapOptionsError("tokens", f"{token!r} is no token of {self.model_id}")
        with self._model.open("/detokenize", {"tokens": list(tokens)}, timeout=COUNT_SECONDS) as answer:
            return str(answer.json()["content"])

    def unload(self) -> None:
        with self._guard:
            self._unloaded = True
            running = list(self._running)
        for generation in running:
            generation.cut(LeapGenerationError("the model was unloaded during the generation"))

    def _check_loaded(self) -> None:
        if self._unloaded:
            raise LeapGenerationError(UNLOADED, hint="load it again")


def _chat(messages: Messages, functions: Functions) -> JsonObject:
    body: JsonObject = {"messages": [message.to_json() for message in messages]}
    if functions:
        body["tools"] = [function.to_json_object() for function in functions]
    return body


def _extension(options: MaybeOptions) -> JsonObject:
    check_options(options)
    options = options or GenerationOptions()
    options.validate()
    parser = options.function_call_parser
    if parser is not None and not isinstance(parser, str) and type(parser) is not PARSERS.get(parser.name):
        raise LeapOptionsError(
            "function_call_parser", f"{parser.name!r} is an object of this program, which a model host cannot run"
        )
    return {"events": True, "options": options.to_json()}


class RemoteGeneration(Generation):
    """The events of one stream. Closing its connection gives the generation up."""

    def __init__(self, host: ModelHost, answer: Answer) -> None:
        self._host = host
        self._answer = answer
        self._id = answer.headers.get("x-leap-generation", "")
        self._events = self._read()
        self._cut: LeapGenerationError | None = None
        self._ended = False

    def __next__(self) -> MessageResponse:
        return next(self._events)

    def _read(self) -> Iterator[MessageResponse]:
        try:
            for line in self._answer.lines():
                if not line.startswith(b"data: {"):
                    continue
                value = json.loads(line[6:])
                if "error" in value:
                    raise self._cut or error_from_json(value["error"].get("leap"))
                if "leap" in value:
                    response = MessageResponse.from_json(value["leap"])
                    yield response
                    if isinstance(response, Complete):
                        return
        except (OSError, ValueError) as error:
            if isinstance(error, LeapError):
                raise
        finally:
            self._free()
        raise self._cut or self._host.lost(LeapGenerationError, "during the generation")

    def stop(self) -> None:
        if self._ended:
            return
        try:
            self._host.ask("POST", f"/leap/stop/{self._id}", {}, timeout=STOP_SECONDS)
        except LeapError:
            self._answer.shut()  # nothing else ends it: the reader finds out

    def cut(self, error: LeapGenerationError) -> None:
        """From any thread: end the connection, and let the reader see this error."""
        self._cut = error
        self._answer.shut()

    def close(self) -> None:
        self._events.close()  # type: ignore[attr-defined]
        self._free()

    def __del__(self) -> None:
        with suppress(Exception):
            self._free()

    def _free(self) -> None:
        self._ended = True
        self._answer.close()
