"""What every kind of model does: two methods, ``start`` and ``start_text``, and what is built over them.

Who starts requests for others says in the thread at hand how to find out that they left; what takes long asks.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..errors import LeapGenerationError, LeapOptionsError, LeapUnsupportedMediaError
from ..system.dataclass import dataclass
from .loading_options import LoraAdapter
from .messages import ChatMessage
from .options import GenerationOptions
from .responses import MessageResponse

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from .calls import LeapFunction

Messages: TypeAlias = Sequence[ChatMessage]
Functions: TypeAlias = "Sequence[LeapFunction]"
MaybeOptions: TypeAlias = "GenerationOptions | None"


@dataclass(frozen=True)
class PromptProgress:
    """How far a prompt is read: ``processed`` of ``total`` tokens, ``seconds`` after the request was made. ``cached``
    of them came from the cache, and count as processed."""

    total: int
    cached: int
    processed: int
    seconds: float

    def to_json(self) -> dict[str, int]:
        """The counts in llama-server's words."""
        counts = {"total": self.total, "cache": self.cached, "processed": self.processed}
        return {**counts, "time_ms": round(self.seconds * 1000)}


STALLED_SECONDS = 30.0


@dataclass(frozen=True)
class OnGpu:
    """What of a model is on GPUs: ``layers``, of which the output is one, -1 for all; ``memory`` in bytes, about."""

    layers: int = 0
    memory: int = 0


@dataclass(frozen=True)
class Activity:
    """What a model's engine does: requests that wait and that have one of the ``slots``; the ``step`` that runs (None
    for none) and for how many seconds; ``still_seconds`` since a step was completed or the first of the requests came;
    whether decodes are being aborted; how many requests of each level wait (``conversation.priority``), and how often
    one gave its slot to a request of a higher level; how far the prompts are that are being read."""

    waiting: int
    running: int
    slots: int
    step: str | None
    step_seconds: float
    still_seconds: float
    aborting: bool
    waiting_by_level: Mapping[str, int] = field(default_factory=dict)
    preemptions: int = 0
    reading: tuple[PromptProgress, ...] = ()

    @property
    def is_stalled(self) -> bool:
        """Whether requests are there and nothing is computed, or again and again without a result. One long step is
        none of that."""
        has_work = bool(self.waiting or self.running)
        return has_work and self.still_seconds - self.step_seconds >= STALLED_SECONDS


class Generation(ABC):
    """One running generation: an iterator of responses that ends with Complete. Not shared between threads, except
    for ``stop``."""

    prompt_tokens: int | None = None
    """Its prompt has so many, computed or restored; None where the runner knows that only at the end."""

    @property
    def progress(self) -> PromptProgress | None:
        """How far its prompt is read; after that it stays at all of it. From any thread. None where the runner does
        not know, or not yet."""
        return None

    def __iter__(self) -> Iterator[MessageResponse]:
        return self

    @abstractmethod
    def __next__(self) -> MessageResponse:
        """The next response. Raises LeapGenerationError when the generation fails, StopIteration after Complete."""

    @abstractmethod
    def stop(self) -> None:
        """End within one token, from any thread. The iterator continues to Complete with INTERRUPTED."""

    @abstractmethod
    def close(self) -> None:
        """Give the generation up and free its slot; nothing more is delivered. Harmless after the end."""


class PassingGeneration(Generation):
    """Passes on what another generation gives. Subclasses change some of it, or begin another one in its place.

    ``stop`` and ``close`` reach the generation at hand, also one that is being started meanwhile, and never wait for a
    start.
    """

    def __init__(self, generation: Generation | None = None) -> None:
        """Without ``generation`` a subclass begins one."""
        self._current = generation
        self.prompt_tokens = None if generation is None else generation.prompt_tokens
        self._ready: deque[MessageResponse] = deque()
        self._ended = self._stopped = self._closed = False
        self._guard = threading.Lock()

    @property
    def progress(self) -> PromptProgress | None:
        return None if self._current is None else self._current.progress

    def __next__(self) -> MessageResponse:
        while True:
            with self._guard:  # another thread may close it just now
                if self._ready and not self._closed:
                    return self._ready.popleft()
                if self._ended or self._closed:
                    raise StopIteration
            self._receive()

    def _receive(self) -> None:
        """Read on, and put what is delivered of it into ``_ready``; ``_ended`` where nothing follows."""
        self._ready.append(self._read())

    def _read(self) -> MessageResponse:
        """The next response of the generation at hand."""
        if self._current is None:
            raise StopIteration
        return next(self._current)

    def _begin(self, start: Callable[[], Generation]) -> bool:
        """Close the generation at hand and continue with another; False where this one was stopped: nothing is
        started."""
        if self._stopped:
            return False
        if self._current is not None:
            self._current.close()
        generation = start()
        with self._guard:
            self._current = generation
            stopped, closed = self._stopped, self._closed
        if closed:
            generation.close()
        elif stopped:
            generation.stop()
        return True

    def stop(self) -> None:
        with self._guard:
            self._stopped = True
            current = self._current
        if current is not None:
            current.stop()

    def close(self) -> None:
        with self._guard:
            self._stopped = self._closed = True
            current = self._current
        if current is not None:
            current.close()


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt as the model gets it: its whole text, special tokens spelled out, and its length in tokens."""

    text: str
    tokens: int


@dataclass(frozen=True)
class TokenizerInfo:
    """What programs that prepare prompts themselves ask of a tokenizer: the texts of the tokens that open and close a
    text (empty for none), whether the first opens every text, and the model's chat template."""

    bos_token: str
    eos_token: str
    adds_bos: bool
    chat_template: str | None


@dataclass(frozen=True)
class DecisionModel:
    """What a model is for decisions. ``kind``: how a GGUF that was made for them is asked (``lfm2-d1``), empty for any
    other. ``temperatures`` of its file, by kind of question and number of options. ``fingerprint`` names the weights,
    in hexadecimal; empty where the runner does not know it."""

    kind: str = ""
    temperatures: Mapping[str, float] = field(default_factory=dict)
    fingerprint: str = ""


class Generator(ABC):
    """What a loaded model can do, conversations aside."""

    @property
    @abstractmethod
    def model_id(self) -> str:
        """The name of the model, for people and records."""

    @property
    @abstractmethod
    def context_size(self) -> int:
        """Most tokens of one conversation, prompt and answer together."""

    @property
    def speaks(self) -> bool:
        """Whether the model can answer aloud, in AudioSamples; its system prompt makes it do so (``voices``)."""
        return False

    @property
    def reads_ahead(self) -> bool:
        """Whether requests beyond those that are answered at once are better sent early, to be made ready."""
        return True

    @property
    def hides_deferred(self) -> bool:
        """Whether calls of deferred functions can be written although its prompts do not declare them."""
        return True

    @property
    def priority(self) -> int | None:
        """That of requests whose options give none; None: that of the engine."""
        return None

    @property
    def header_names(self) -> tuple[str, ...]:
        """What the header of the model's file calls it, for choices by name that a renamed file must not change;
        empty where the header is unknown."""
        return ()

    @property
    def decision_model(self) -> DecisionModel:
        """What the model is for decisions."""
        return DecisionModel()

    @property
    def on_gpu(self) -> OnGpu | None:
        """What of the model is on GPUs; None where it is not loaded here."""
        return None

    def activity(self) -> Activity | None:
        """What the model's engine does at the moment. From any thread. None where the runner does not know."""
        return None

    @abstractmethod
    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        """Start generating the reply to ``messages``. Raises LeapGenerationPromptExceedContextLengthError before any
        work is done, LeapSchemaError for an unusable constraint, LeapGenerationError after ``unload``."""

    @abstractmethod
    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
        """Start continuing from ``text`` as it is: no chat template, and special tokens where it spells them. Token
        ids are taken as they are, without an opening token that they do not have.

        Raises what ``start`` raises. Reasoning and calls are separated from the reply's text as the options say.
        """

    @abstractmethod
    def render(self, prompt: Messages | str, functions: Functions = (), options: MaybeOptions = None) -> RenderedPrompt:
        """The prompt that ``start`` would make of messages with these options, or ``start_text`` of a text. It may be
        longer than the context. Generates nothing."""

    @abstractmethod
    def get_prompt_tokens_size(
        self, messages: Messages, add_bos_token: bool = True, functions: Functions = (), options: MaybeOptions = None
    ) -> int:
        """Tokens of the prompt that ``messages`` make with these options, the opening of the reply included. Objects of
        the messages' JSON form are read. Raises LeapSerializationError for what is no message."""

    def set_adapters(self, adapters: Sequence[LoraAdapter]) -> None:
        """Compute later generations with these LoRA adapters, where their options name none; an empty list clears
        them. Running generations continue with theirs. Raises LeapModelLoadingError for a file that does not fit the
        model, and LeapGenerationError where the runner cannot have adapters."""
        raise LeapGenerationError(
            "a model in another process takes no adapters", hint="load the model into this process (--no-host)"
        )

    def hidden_states(self, text: str, adapters: Sequence[LoraAdapter] | None = None) -> HiddenStates:
        """The model's hidden states for ``text`` as it is: no chat template, the opening token that the model
        wants. ``adapters`` None takes those that are set. Raises LeapGenerationError for a text longer than the
        context, and where the runner has no hidden states to give."""
        raise LeapGenerationError(
            "a model in another process gives no hidden states", hint="load the model into this process (--no-host)"
        )

    async def hidden_states_async(self, text: str, adapters: Sequence[LoraAdapter] | None = None) -> HiddenStates:
        """``hidden_states`` without blocking the event loop."""
        import asyncio  # here, because every start of a command would pay for it

        return await asyncio.to_thread(self.hidden_states, text, adapters)

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The tokens of a text; with ``parse_special`` special tokens where it spells them. Raises
        LeapGenerationError where the runner does not know."""
        raise LeapGenerationError(f"{self.model_id} cannot tokenize a text")

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens. Raises LeapGenerationError where the runner does not know, LeapOptionsError for a number
        that is no token of the model."""
        raise LeapGenerationError(f"{self.model_id} cannot detokenize tokens")

    def tokenizer_info(self) -> TokenizerInfo:
        """The tokenizer's special tokens and chat template. Raises LeapGenerationError where the runner does not know
        them."""
        raise LeapGenerationError(f"{self.model_id} cannot list its special tokens")

    def infill_prompt(self, before: str, after: str) -> str:
        """The text from which ``start_text`` fills in what is between two texts. Raises LeapOptionsError for a
        model that was not trained to fill in, and where the runner does not know."""
        raise LeapOptionsError("suffix", f"{self.model_id} cannot fill in a text")

    @abstractmethod
    def unload(self) -> None:
        """Free the model. Running generations end with LeapGenerationError. Harmless when repeated."""

    async def unload_async(self) -> None:
        """``unload`` without blocking the event loop."""
        import asyncio  # here, because every start of a command would pay for it

        await asyncio.to_thread(self.unload)


class Named(Protocol):
    """A model, wherever it runs."""

    @property
    def model_id(self) -> str: ...


def require_voice(runner: Named) -> None:
    """Raises LeapUnsupportedMediaError for a model that cannot answer aloud."""
    if not getattr(runner, "speaks", False):
        raise LeapUnsupportedMediaError(
            f"the model {runner.model_id} does not speak", hint="use a model that speaks, such as LFM2.5-Audio-1.5B"
        )


_is_given_up: ContextVar[Callable[[], bool] | None] = ContextVar("is_given_up", default=None)


@contextmanager
def given_up_when(is_given_up: Callable[[], bool]) -> Iterator[None]:
    """Within the block ``check_wanted`` raises as soon as ``is_given_up`` returns true."""
    token = _is_given_up.set(is_given_up)
    try:
        yield
    finally:
        _is_given_up.reset(token)


def check_wanted() -> None:
    """Raises LeapGenerationError when nobody waits for the work at hand."""
    is_given_up = _is_given_up.get()
    if is_given_up is not None and is_given_up():
        raise LeapGenerationError("the request was given up")


_is_whole: ContextVar[bool] = ContextVar("is_whole", default=False)


@contextmanager
def wanting_whole() -> Iterator[None]:
    """Within the block answers are started whose reader waits for their end: a remote model sends such a one in one
    piece."""
    token = _is_whole.set(True)
    try:
        yield
    finally:
        _is_whole.reset(token)


def is_whole_wanted() -> bool:
    """Whether the reader of an answer that is started now waits for its end alone."""
    return _is_whole.get()


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """The output of a model's last layer for each token of a text, normalised as the model does before its vocabulary.

    ``data``: float32, shape [token_count, embedding_dim]; neither pooled nor of unit length.
    """

    data: NDArray[float32]

    @property
    def token_count(self) -> int:
        """Tokens of the text, the opening one included."""
        return int(self.data.shape[0])

    @property
    def embedding_dim(self) -> int:
        """The width of the model."""
        return int(self.data.shape[1])
