"""A conversation: its history and its functions."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..messages import ChatMessage, ChatMessageRole
from ..options import GenerationOptions
from ..responses import Complete, GenerationFinishReason, MessageResponse
from .contract import ModelRunner
from .response_stream import ResponseStream

if TYPE_CHECKING:
    from ..functions import LeapFunction

TURN_POLL_SECONDS = 0.05


class Conversation:
    """Messages and functions over a runner. Safe to use from several threads; generations take turns."""

    def __init__(self, model_runner: ModelRunner, history: Iterable[ChatMessage] = ()) -> None:
        self.model_runner = model_runner
        self._history = list(history)
        self._functions: list[LeapFunction] = []
        self._guard = threading.Lock()
        self._turn = threading.Lock()

    @property
    def history(self) -> list[ChatMessage]:
        """A copy of the messages so far. A running generation's messages are not among them yet."""
        with self._guard:
            return [_with_own_arguments(message) if message.function_calls else message for message in self._history]

    @property
    def functions(self) -> list[LeapFunction]:
        """A copy of the registered functions."""
        with self._guard:
            return list(self._functions)

    @property
    def is_generating(self) -> bool:
        """Whether a generation is running; the same for all threads."""
        return self._turn.locked()

    def register_function(self, function: LeapFunction) -> None:
        """Let the model call ``function``; one of the same name is replaced."""
        self.register_functions([function])

    def register_functions(self, functions: Iterable[LeapFunction]) -> None:
        """Register several functions."""
        with self._guard:
            for function in functions:
                self._functions = [known for known in self._functions if known.name != function.name] + [function]

    def append_to_history(self, message: ChatMessage) -> None:
        """Add a message without generating, such as a function's result or a replayed turn."""
        with self._guard:
            self._history.append(message)

    def remove_last_message(self) -> None:
        """Drop the newest message; nothing happens when there is none."""
        with self._guard:
            if self._history:
                self._history.pop()

    def export_to_json(self) -> list[dict[str, Any]]:
        """The history as OpenAI chat-completions messages."""
        return [message.to_json() for message in self.history]

    def generate_response(
        self, message: ChatMessage | str | None, options: GenerationOptions | None = None
    ) -> ResponseStream:
        """The stream of the reply to ``message`` (a string is the user's text; None replies to the history as it is).

        The stream is cold: nothing happens until it is iterated, with ``for`` or ``async for``, once. The history
        gains the message and the reply before Complete is seen. An error, or closing the stream early, leaves the
        history as it was; ``stop()`` ends the reply early and keeps it.
        """
        if isinstance(message, str):
            message = ChatMessage(ChatMessageRole.USER, message)
        return ResponseStream(lambda stream: self._generate(stream, message, options))

    def _generate(
        self, stream: ResponseStream, message: ChatMessage | None, options: GenerationOptions | None
    ) -> Iterator[MessageResponse]:
        while stream.stopped or not self._turn.acquire(timeout=TURN_POLL_SECONDS):
            if stream.abandoned:
                return
            if stream.stopped:  # before its turn came: nothing was said, so nothing is kept
                yield Complete(ChatMessage(ChatMessageRole.ASSISTANT), GenerationFinishReason.INTERRUPTED)
                return
        with self._guard:
            messages = list(self._history)
        new = [] if message is None else [message]
        complete = None
        try:
            generation = self.model_runner.start(messages + new, self.functions, options)
            stream.attach(generation)
            try:
                for response in generation:
                    if isinstance(response, Complete):
                        complete = response
                        break
                    yield response
            finally:
                generation.close()
            if complete and complete.finish_reason is not GenerationFinishReason.ERROR and stream.was_read():
                with self._guard:
                    self._history += [*new, complete.full_message]
        finally:
            self._turn.release()
        if complete and not stream.abandoned:
            yield complete


def _with_own_arguments(message: ChatMessage) -> ChatMessage:
    """Arguments are the one part of a message that can be changed."""
    return replace(message, function_calls=copy.deepcopy(message.function_calls))
