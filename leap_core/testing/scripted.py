"""A ModelRunner that plays scripts instead of running a model, and keeps the same contract.

    runner = ScriptedModelRunner("Paris.", [ReasoningChunk("hm"), "Well", Stall(), LeapGenerationError("broken")])

Each script is one reply, played in the order given. A script is a text, or a list of steps: a string is a Chunk, an
event is delivered as it is, an exception is raised, a Stall waits, a PromptProgress is what ``progress`` says from
then on. Complete is added at the end unless the script has its own. It knows nothing of tokens: a chunk counts as one,
and a prompt has as many as it has words. Of the options it keeps ``max_tokens`` and ``stop``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from ..conversation.conversation import messages_of
from ..conversation.generator import Functions, Generation, MaybeOptions, Messages, PromptProgress, RenderedPrompt
from ..conversation.messages import ChatMessage, ChatMessageRole, LeapFunctionCall
from ..conversation.options import GenerationOptions, check_options
from ..conversation.responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
)
from ..conversation.runner import ModelRunner
from ..errors import GenerationStats, LeapGenerationError, LeapGenerationPromptExceedContextLengthError
from ..inference.template.reply import StopStrings
from ..system.dataclass import dataclass

if TYPE_CHECKING:
    from ..conversation.calls import LeapFunction

UNLOADED = "the model was unloaded"


@dataclass
class Stall:
    """A step that waits: until ``release()``, until the generation is stopped or closed, or the model unloaded.

    ``seconds`` bounds the wait. ``reached`` is set once a generation waits here.
    """

    seconds: float | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let the generation continue."""
        self.released.set()


Step: TypeAlias = str | MessageResponse | BaseException | Stall | PromptProgress


@dataclass
class Script:
    """The steps of one reply. With ``ignore_stop`` the generation plays on when it is stopped."""

    steps: Sequence[Step]
    ignore_stop: bool = False


@dataclass(frozen=True)
class Request:
    """What one call of ``start`` asked for, or with ``text`` one of ``start_text``."""

    messages: tuple[ChatMessage, ...]
    functions: tuple[LeapFunction, ...]
    options: GenerationOptions
    text: str | tuple[int, ...] | None = None


class ScriptedModelRunner(ModelRunner):
    """Plays its scripts in order; ``requests`` records what was asked. Safe to use from several threads."""

    def __init__(
        self,
        *scripts: str | Iterable[Step] | Script,
        model_id: str = "scripted",
        context_size: int = 4096,
        speaks: bool = False,
        header_names: Sequence[str] = (),
    ) -> None:
        self._model_id = model_id
        self._header_names = tuple(header_names)
        self._speaks = speaks
        self._context_size = context_size
        self._scripts: deque[Script] = deque()
        self._running: set[ScriptedGeneration] = set()
        self._guard = threading.Lock()
        self.requests: list[Request] = []
        self.is_unloaded = False
        for script in scripts:
            self.add(script)

    def add(self, script: str | Iterable[Step] | Script) -> None:
        """Queue one more reply."""
        if isinstance(script, str):
            script = Script([script])
        elif not isinstance(script, Script):
            script = Script(list(script))
        self._scripts.append(script)

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def context_size(self) -> int:
        return self._context_size

    @property
    def header_names(self) -> tuple[str, ...]:
        return self._header_names

    @property
    def speaks(self) -> bool:
        return self._speaks

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        check_options(options)
        return self._start(Request(tuple(messages), tuple(functions), options or GenerationOptions()))

    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
        prompt = text if isinstance(text, str) else tuple(text)
        return self._start(Request((), (), options or GenerationOptions(), prompt))

    def _start(self, request: Request) -> Generation:
        request.options.validate()
        with self._guard:
            if self.is_unloaded:
                raise LeapGenerationError(UNLOADED)
            self.requests.append(request)
            text = request.text
            if text is None:
                prompt_tokens = _count(request.messages, request.functions)
            else:
                prompt_tokens = 1 + len(text.split()) if isinstance(text, str) else len(text)
            if prompt_tokens > self._context_size:
                raise LeapGenerationPromptExceedContextLengthError(prompt_tokens, self._context_size)
            if not self._scripts:
                raise LeapGenerationError("the scripted runner has no script left for this request")
            generation = ScriptedGeneration(self, self._scripts.popleft(), prompt_tokens, request.options)
            self._running.add(generation)
            return generation

    def render(self, prompt: Messages | str, functions: Functions = (), options: MaybeOptions = None) -> RenderedPrompt:
        """The text is that of the messages, each with its role before it."""
        if self.is_unloaded:
            raise LeapGenerationError(UNLOADED)
        if isinstance(prompt, str):
            return RenderedPrompt(prompt, 1 + len(prompt.split()))
        text = "".join(f"{message.role.value}: {message.text}\n" for message in prompt)
        goes_on = bool(prompt) and prompt[-1].opens_reply
        return RenderedPrompt(text[:-1] if goes_on else f"{text}assistant: ", _count(prompt, functions))

    def get_prompt_tokens_size(
        self, messages: Messages, add_bos_token: bool = True, functions: Functions = (), options: MaybeOptions = None
    ) -> int:
        if self.is_unloaded:
            raise LeapGenerationError(UNLOADED)
        check_options(options)
        return _count(messages_of(messages), functions) - (not add_bos_token)

    def unload(self) -> None:
        with self._guard:
            self.is_unloaded = True
            running, self._running = self._running, set()
        for generation in running:
            generation.unload()

    def _ended(self, generation: ScriptedGeneration) -> None:
        with self._guard:
            self._running.discard(generation)


class ScriptedGeneration(Generation):
    """One script being played."""

    def __init__(
        self, runner: ScriptedModelRunner, script: Script, prompt_tokens: int, options: GenerationOptions
    ) -> None:
        self._runner = runner
        self._script = script
        self._steps = iter(script.steps)
        self._prompt_tokens = self.prompt_tokens = prompt_tokens
        self._options = options
        self._stop_strings = StopStrings(options.stop)
        self._ready: deque[MessageResponse] = deque()
        self._said: list[MessageResponse] = []
        self._begun = time.monotonic()
        self._first: float | None = None
        self._woken = threading.Event()
        self._stopped = self._closed = self._unloaded = False
        self._progress: PromptProgress | None = None

    @property
    def progress(self) -> PromptProgress | None:
        return self._progress

    def __next__(self) -> MessageResponse:
        while True:
            if self._unloaded:
                raise LeapGenerationError(UNLOADED)
            if self._closed:
                raise StopIteration
            if self._stopped:
                return self._complete(GenerationFinishReason.INTERRUPTED)
            if self._options.max_tokens is not None and self._tokens >= self._options.max_tokens:
                return self._complete(GenerationFinishReason.MAX_TOKENS)
            if self._prompt_tokens + self._tokens > self._runner.context_size:
                return self._complete(GenerationFinishReason.EXCEED_CONTEXT)
            if self._ready:
                return self._deliver(self._ready.popleft())
            if self._stop_strings.met:
                return self._complete(GenerationFinishReason.STOP)
            step = next(self._steps, None)
            if step is None:
                if held := self._stop_strings.finish():
                    return self._deliver(Chunk(held))
                return self._complete(GenerationFinishReason.STOP)
            if isinstance(step, Stall):
                self._wait(step)
                continue
            if isinstance(step, PromptProgress):
                self._progress = step
                continue
            if isinstance(step, BaseException):
                self.close()
                raise step
            self._ready.extend(self._texts_of(step))

    def _texts_of(self, step: str | MessageResponse) -> Iterator[MessageResponse]:
        """What a step gives to be delivered: its text up to a stop string, or what came before it and the event."""
        if isinstance(step, (str, Chunk)):
            if text := self._stop_strings.feed(step if isinstance(step, str) else step.text):
                yield Chunk(text)
            return
        if held := self._stop_strings.finish():
            yield Chunk(held)
        yield step

    def stop(self) -> None:
        if not self._script.ignore_stop:
            self._stopped = True
            self._woken.set()

    def close(self) -> None:
        self._closed = True
        self._woken.set()
        self._runner._ended(self)

    def unload(self) -> None:
        """End with an error, because the model goes away."""
        self._unloaded = True
        self._woken.set()

    @property
    def _tokens(self) -> int:
        return sum(isinstance(event, (Chunk, ReasoningChunk)) for event in self._said)

    def _wait(self, stall: Stall) -> None:
        stall.reached.set()
        deadline = None if stall.seconds is None else time.monotonic() + stall.seconds
        while not stall.released.is_set() and not self._woken.is_set():
            if deadline is not None and time.monotonic() >= deadline:
                return
            self._woken.wait(0.005)

    def _deliver(self, event: MessageResponse) -> MessageResponse:
        if self._first is None:
            self._first = time.monotonic()
        if isinstance(event, Complete):
            self.close()
        else:
            self._said.append(event)
        return event

    def _complete(self, reason: GenerationFinishReason) -> Complete:
        self.close()
        calls: list[LeapFunctionCall] = []
        for event in self._said:
            if isinstance(event, FunctionCalls):
                calls += event.function_calls
        text = "".join(event.text for event in self._said if isinstance(event, Chunk))
        reasoning = "".join(event.reasoning for event in self._said if isinstance(event, ReasoningChunk))
        message = ChatMessage(ChatMessageRole.ASSISTANT, text or (), reasoning or None, calls or None)
        now = time.monotonic()
        first = self._first if self._first is not None else now
        speed = self._tokens / max(now - first, 1e-6) if self._tokens >= 2 else 0.0
        total = self._prompt_tokens + self._tokens
        stats = GenerationStats(self._prompt_tokens, self._tokens, total, speed, 0, first - self._begun)
        return Complete(message, reason, stats, stop_string=self._stop_strings.met)


def _count(messages: Messages, functions: Functions) -> int:
    """One for the beginning, one a role, a word and a function, one for the opening of the reply."""
    return 1 + sum(1 + len(message.text.split()) for message in messages) + len(functions) + 1
