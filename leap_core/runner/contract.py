"""The contract of a loaded model, kept alike by the runner in process, the warm host's client and the scripted fake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import LeapError, LeapGenerationError
from ..messages import ChatMessage, ChatMessageRole
from ..options import GenerationOptions
from ..responses import MessageResponse
from .conversation import Conversation
from .generator import Generation as Generation
from .generator import Generator
from .generator import RenderedPrompt as RenderedPrompt
from .response_stream import ResponseStream


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
        """A conversation that goes on from these messages; objects of their JSON form are read."""
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
        raises is called no more: ``on_error`` hears of it, and the conversation still gets the reply.
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
