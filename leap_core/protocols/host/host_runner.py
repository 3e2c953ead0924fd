"""A model that the host holds, as a ModelRunner or an EmbeddingRunner: nothing is lost on the way."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from ...conversation.conversation import messages_of
from ...conversation.embedding import EmbeddingKind, EmbeddingOptions, EmbeddingRequest, EmbeddingRunner, parts_of
from ...conversation.generator import (
    DecisionModel,
    Functions,
    Generation,
    MaybeOptions,
    Messages,
    PromptProgress,
    RenderedPrompt,
)
from ...conversation.loading_options import LoraAdapter, existing_adapters
from ...conversation.options import GenerationOptions, check_options, check_tool_choice
from ...conversation.responses import Complete, MessageResponse
from ...conversation.runner import ModelRunner
from ...errors import LeapError, LeapGenerationError, LeapModelNotFoundError, LeapOptionsError, LeapUnavailableError
from ...schemas.json_values import JsonObject, error_from_json
from .host_http import HostAnswer
from .model_host import ModelHost

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

LoadAgain = Callable[[ModelHost, JsonObject], tuple[ModelHost, JsonObject]]


LOADS = 2
"""For one request the model is loaded again so often."""


class HeldModel:
    """``description``: the model as the host describes it. ``load_again`` has it loaded once more. For any thread."""

    def __init__(self, host: ModelHost, description: JsonObject, load_again: LoadAgain) -> None:
        self.host, self.description = host, description
        self._load_again = load_again
        self._guard = threading.Lock()

    def open(self, path: str, request: JsonObject, *, timeout: float | None) -> HostAnswer:
        """A request to this model. Raises what the host answers, LeapGenerationError when it cannot be loaded again."""
        for loads in range(LOADS):
            try:
                return self._open(path, request, timeout)
            except (LeapModelNotFoundError, LeapUnavailableError) as error:  # it went, or its host did
                if loads and not error.host_ended:
                    raise
            self._revive()
        return self._open(path, request, timeout)

    def _open(self, path: str, request: JsonObject, timeout: float | None) -> HostAnswer:
        return self.host.open("POST", path, {"model": self.description["key"], **request}, timeout=timeout)

    def _revive(self) -> None:
        for left in reversed(range(LOADS)):
            try:
                host, description = self._load_again(self.host, self.description)
            except LeapError as error:
                if left and error.host_ended:
                    continue
                message = f"the model is no longer warm and cannot be loaded again: {error.message}"
                failed = LeapGenerationError(message, hint=error.hint)
                failed.host_ended = error.host_ended
                raise failed from None
            with self._guard:
                self.host, self.description = host, description
            return


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
    def header_names(self) -> tuple[str, ...]:
        return tuple(self._model.description.get("header_names") or ())

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
        streamed: JsonObject = {"stream": True, "return_progress": True, "leap": _extension(options)}
        answer = self._model.open(path, {**body, **streamed}, timeout=None)
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
        self._adapters = existing_adapters(adapters)

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
        body["tools"] = [function.to_json() for function in functions]
    return body


def _extension(options: MaybeOptions) -> JsonObject:
    check_options(options)
    options = options or GenerationOptions()
    options.validate()
    parser = options.function_call_parser
    if parser is not None and not isinstance(parser, str):
        from ...conversation.calls.parsers import is_own_parser  # here: every start of a command would pay for it

        if not is_own_parser(parser):
            reason = f"{parser.name!r} is an object of this program, which a model host cannot run"
            raise LeapOptionsError("function_call_parser", reason)
    return {"events": True, "options": options.to_json()}


class RemoteGeneration(Generation):
    """The events of one stream. Closing its connection gives the generation up."""

    def __init__(self, host: ModelHost, answer: HostAnswer) -> None:
        self._host = host
        self._answer = answer
        self._id = answer.headers.get("x-leap-generation", "")
        self._events = self._read()
        self._cut: LeapGenerationError | None = None
        self._ended = False
        self._progress: PromptProgress | None = None

    @property
    def progress(self) -> PromptProgress | None:
        return self._progress

    def __next__(self) -> MessageResponse:
        return next(self._events)

    def _read(self) -> Generator[MessageResponse, None, None]:
        try:
            for line in self._answer.lines():
                if not line.startswith(b"data: {"):
                    continue
                value = json.loads(line[6:])
                if "error" in value:
                    raise self._cut or error_from_json(value["error"].get("leap"))
                if counts := value.get("prompt_progress"):
                    seconds = counts["time_ms"] / 1000
                    self._progress = PromptProgress(counts["total"], counts["cache"], counts["processed"], seconds)
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
        self._events.close()
        self._free()

    def __del__(self) -> None:
        with suppress(Exception):
            self._free()

    def _free(self) -> None:
        self._ended = True
        self._answer.close()


TEXTS_AT_ONCE = 32
MOST_CHARACTERS = 4_000_000
"""The texts of one request have at most these characters together."""
LOOK_SECONDS = 0.05
NUMBERED = r"texts\[(\d+)\]"


class RemoteEmbeddingRunner(EmbeddingRunner):
    """``unload`` only lets go of the model: the host keeps it for others."""

    def __init__(self, model: HeldModel) -> None:
        self._model = model
        self._unloaded = threading.Event()

    @property
    def model_id(self) -> str:
        return str(self._model.description["model"])

    @property
    def fingerprint(self) -> bytes:
        return bytes.fromhex(self._about["fingerprint"])

    @property
    def dimensions(self) -> int:
        return int(self._about["dimensions"])

    @property
    def most_tokens(self) -> int:
        return int(self._about["most_tokens"])

    @property
    def pools(self) -> bool:
        return bool(self._about["pools"])

    @property
    def is_late(self) -> bool:
        return bool(self._about["is_late"])

    @property
    def _about(self) -> JsonObject:
        about: JsonObject = self._model.description["embedding"]
        return about

    def count_tokens(self, texts: Sequence[str], kind: EmbeddingKind | str = EmbeddingKind.DOCUMENT) -> list[int]:
        counts: list[int] = []
        for part in parts_of(texts, TEXTS_AT_ONCE, MOST_CHARACTERS):
            counts += self._ask("/leap/count", {"texts": part, "kind": EmbeddingOptions(kind).kind})["tokens"]
        return counts

    def _embed(self, request: EmbeddingRequest) -> NDArray[float32]:
        import numpy as np

        rows = self._rows(request)
        return (
            np.concatenate(rows) if rows else np.zeros((0, request.options.dimensions or self.dimensions), np.float32)
        )

    def _embed_tokens(self, request: EmbeddingRequest) -> list[NDArray[float32]]:
        return self._rows(request, each_token=True)

    def unload(self) -> None:
        self._unloaded.set()

    def _rows(self, request: EmbeddingRequest, **more: bool) -> list[NDArray[float32]]:
        """The rows of each text."""
        import numpy as np

        fields = {**request.options.to_json(), **more}
        done: list[NDArray[float32]] = []
        for part in parts_of(request.texts, TEXTS_AT_ONCE, MOST_CHARACTERS):
            try:
                answered = self._ask("/leap/embed", {"texts": part, **fields}, request.cancelled)
            except LeapGenerationError as error:
                if not error.host_ended:
                    raise
                answered = self._ask("/leap/embed", {"texts": part, **fields}, request.cancelled)
            if "error" in answered:
                raise _renumbered(error_from_json(answered["error"]), len(done))
            from ..openai.embeddings import decoded  # here, because every start of a command would pay for it

            rows = decoded(answered["vectors"])
            rows = rows.reshape(sum(answered["rows"]), -1) if len(rows) else rows.reshape(0, self.dimensions)
            done += np.split(rows, np.cumsum(answered["rows"])[:-1])
            if request.on_progress is not None:
                request.on_progress(len(done))
        return done

    def _ask(self, path: str, request: JsonObject, cancelled: threading.Event | None = None) -> JsonObject:
        """What the host answers. When the call is cancelled or the model unloaded, the connection ends, and with it the
        work there: LeapGenerationError."""
        if self._unloaded.is_set():
            raise LeapGenerationError("the model is unloaded", hint="load it again")
        done = threading.Event()
        with self._model.open(path, request, timeout=None) as answer:
            threading.Thread(target=self._watch, args=(answer, done, cancelled), daemon=True).start()
            try:
                answered: JsonObject = answer.json()
                return answered
            except OSError:
                if cancelled is not None and cancelled.is_set():
                    raise LeapGenerationError("the embedding was cancelled") from None
                if self._unloaded.is_set():
                    raise LeapGenerationError("the model was unloaded during the embedding") from None
                raise self._model.host.lost(LeapGenerationError, "during the embedding") from None
            finally:
                done.set()

    def _watch(self, answer: HostAnswer, done: threading.Event, cancelled: threading.Event | None) -> None:
        """End the connection when the answer is not wanted any more."""
        while not done.wait(LOOK_SECONDS):
            if self._unloaded.is_set() or (cancelled is not None and cancelled.is_set()):
                answer.shut()
                return


def _renumbered(error: LeapError, first: int) -> LeapError:
    """An error about a text, which has its number in the request, with its number in the call."""
    if not isinstance(error, LeapOptionsError) or (match := re.fullmatch(NUMBERED, error.option)) is None:
        return error
    return LeapOptionsError(f"texts[{int(match[1]) + first}]", error.reason)
