"""A model that a program holds, and a runner that passes everything on to another one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar, cast

from ..errors import LeapError, LeapGenerationError
from .conversation import Conversation
from .generator import Functions, Generator, MaybeOptions, Messages
from .generator import Generation as Generation
from .generator import RenderedPrompt as RenderedPrompt
from .messages import ChatMessage, ChatMessageRole
from .options import GenerationOptions
from .responses import MessageResponse
from .streams import ResponseStream


class GenerationHandler:
    """Stops a generation that was started with ``generate_from_conversation``."""

    def __init__(self, stream: ResponseStream, thread: threading.Thread) -> None:
        self._stream = stream
        self._thread = thread

    def stop(self) -> None:
        """End within one token; the callback still receives Complete, with INTERRUPTED."""
        self._stream.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most ``timeout`` seconds; True when it has come."""
        self._thread.join(timeout)
        return not self._thread.is_alive()


class ModelRunner(Generator):
    """A loaded model. Its conversations stay readable after ``unload``; generating then raises LeapGenerationError."""

    def create_conversation(self, system_prompt: str | None = None) -> Conversation:
        """A new conversation, opened by the system prompt if there is one."""
        history = [] if system_prompt is None else [ChatMessage(ChatMessageRole.SYSTEM, system_prompt)]
        return self.create_conversation_from_history(history)

    def create_conversation_from_history(self, history: Iterable[ChatMessage | Mapping[str, Any]]) -> Conversation:
        """A conversation that continues from these messages; objects of their JSON form are read."""
        return Conversation(self, history)

    def generate_from_conversation(
        self,
        conversation: Conversation,
        callback: Callable[[MessageResponse], object],
        options: GenerationOptions | None = None,
        on_error: Callable[[LeapError], object] | None = None,
    ) -> GenerationHandler:
        """Generate the reply to the conversation as it is, in a thread of its own that calls ``callback``.

        ``Conversation.generate_response`` is the usual way; this one serves code built on callbacks. A callback that
        raises is called no more: ``on_error`` is called with it, and the conversation still gets the reply.
        """
        stream = conversation.generate_response(None, options)

        def deliver() -> None:
            try:
                heard = True
                for response in stream:
                    try:
                        if heard:
                            callback(response)
                    except Exception as error:
                        heard = False
                        if on_error is None:
                            raise
                        on_error(LeapGenerationError(f"the callback failed: {type(error).__name__}: {error}"))
            except LeapError as error:
                if on_error is not None:
                    on_error(error)

        thread = threading.Thread(target=deliver, name="leap-callback", daemon=True)
        handler = GenerationHandler(stream, thread)
        thread.start()
        return handler

    def __enter__(self) -> ModelRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()


def _passed(name: str) -> Any:
    """A property that is the runner's."""
    return property(attrgetter(f"_runner.{name}"))


Method = TypeVar("Method", bound=Callable[..., Any])


def _forwarded(method: Method) -> Method:
    """A method that is the runner's."""
    return cast(Method, property(attrgetter(f"_runner.{method.__name__}")))


class PassingRunner(ModelRunner):
    """``runner`` answers."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner

    model_id = _passed("model_id")
    context_size = _passed("context_size")
    header_names = _passed("header_names")
    decision_model = _passed("decision_model")
    reads_ahead = _passed("reads_ahead")
    hides_deferred = _passed("hides_deferred")
    speaks = _passed("speaks")
    on_gpu = _passed("on_gpu")
    priority = _passed("priority")

    activity = _forwarded(ModelRunner.activity)
    start = _forwarded(ModelRunner.start)
    start_text = _forwarded(ModelRunner.start_text)
    render = _forwarded(ModelRunner.render)
    get_prompt_tokens_size = _forwarded(ModelRunner.get_prompt_tokens_size)
    set_adapters = _forwarded(ModelRunner.set_adapters)
    hidden_states = _forwarded(ModelRunner.hidden_states)
    tokenize = _forwarded(ModelRunner.tokenize)
    detokenize = _forwarded(ModelRunner.detokenize)
    tokenizer_info = _forwarded(ModelRunner.tokenizer_info)
    infill_prompt = _forwarded(ModelRunner.infill_prompt)
    unload = _forwarded(ModelRunner.unload)


class PrioritizedRunner(PassingRunner):
    """``runner`` with this ``priority`` for requests whose options give none."""

    def __init__(self, runner: ModelRunner, priority: int) -> None:
        super().__init__(runner)
        self._priority = priority

    @property
    def priority(self) -> int:
        return self._priority

    def start(self, messages: Messages, functions: Functions = (), options: MaybeOptions = None) -> Generation:
        return super().start(messages, functions, self._with_priority(options))

    def start_text(self, text: str | Sequence[int], options: MaybeOptions = None) -> Generation:
        return super().start_text(text, self._with_priority(options))

    def _with_priority(self, options: MaybeOptions) -> MaybeOptions:
        options = options or GenerationOptions()
        return options if options.priority is not None else replace(options, priority=self._priority)
