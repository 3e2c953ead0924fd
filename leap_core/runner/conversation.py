"""A conversation: its history, its functions, and the stream of one reply."""

from __future__ import annotations

import copy
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..messages import ChatMessage, ChatMessageRole
from ..options import GenerationOptions
from ..responses import Complete, GenerationFinishReason, MessageResponse
from .contract import Generation, ModelRunner

if TYPE_CHECKING:
    from ..functions import LeapFunction

TURN_POLL_SECONDS = 0.05
READER_POLL_SECONDS = 0.5


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


class ResponseStream:
    """The responses of one generation, ending with Complete. It can be iterated once."""

    def __init__(self, run: Callable[[ResponseStream], Iterator[MessageResponse]]) -> None:
        self._run = run
        self._guard = threading.Lock()
        self._generation: Generation | None = None
        self._started = False
        self._own: Iterator[MessageResponse] | None = None
        self._reader = threading.Condition()
        self._unread = 0
        self._is_gone: Callable[[], bool] = lambda: False
        self.stopped = False
        """True once ``stop()`` was called."""
        self.abandoned = False
        """True once the stream was closed early: its reply is not kept."""

    def attach(self, generation: Generation) -> None:
        """Called by the conversation when generation has begun."""
        with self._guard:
            self._generation = generation
            stopped = self.stopped
        if stopped:
            generation.stop()

    def was_read(self) -> bool:
        """Called by the conversation before it keeps the reply: whether its reader stayed to the end of it.

        An asynchronous reader lags behind the thread that generates, so this waits until it has caught up or left.
        """
        with self._reader:
            while not self._reader.wait_for(lambda: self._unread == 0 or self.abandoned, READER_POLL_SECONDS):
                if self._is_gone():
                    self.abandoned = True
            return not self.abandoned

    def stop(self) -> None:
        """End the reply within one token, from any thread; Complete follows with INTERRUPTED and the partial reply."""
        with self._guard:
            self.stopped = True
            generation = self._generation
        if generation is not None:
            generation.stop()

    def close(self) -> None:
        """Give the reply up: generation stops and the history stays as it was."""
        self._abandon()
        self.stop()
        if self._own is not None:
            with suppress(ValueError):  # the stream is being iterated by another thread, which ends it
                self._own.close()  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[MessageResponse]:
        if self._own is not None:  # goes on where next() was
            return self._own
        with self._guard:
            if self._started:
                raise RuntimeError("a response stream can be iterated only once")
            self._started = True
        return self._iterate()

    def _iterate(self) -> Iterator[MessageResponse]:
        inner = self._run(self)
        try:
            yield from inner
        except GeneratorExit:
            self._abandon()
            raise

    def _abandon(self) -> None:
        with self._reader:
            self.abandoned = True
            self._reader.notify_all()

    def __next__(self) -> MessageResponse:
        if self._own is None:
            own = iter(self)
            self._own = own
        return next(self._own)

    def __enter__(self) -> ResponseStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[MessageResponse]:
        """Iterate without blocking the event loop: a thread generates, the loop receives."""
        import asyncio  # here, because every start of a command would pay for it

        loop = asyncio.get_running_loop()
        received: asyncio.Queue[MessageResponse | BaseException | None] = asyncio.Queue()
        responses = iter(self)
        self._is_gone = loop.is_closed

        def hand_over(item: MessageResponse | BaseException | None) -> None:
            with self._reader:
                self._unread += 1
            try:
                loop.call_soon_threadsafe(received.put_nowait, item)
            except RuntimeError:  # the loop is gone, and with it whoever listened
                self.close()

        def generate() -> None:
            try:
                for response in responses:
                    hand_over(response)
                    if not isinstance(response, Complete) and not self.was_read():
                        self.close()  # never ahead of the reader, so that stop() ends what it sees
            except BaseException as error:
                hand_over(error)
            else:
                hand_over(None)

        thread = threading.Thread(target=generate, name="leap-async", daemon=True)
        thread.start()
        finished = False
        try:
            while (item := await received.get()) is not None:
                if isinstance(item, BaseException):
                    finished = True
                    raise item
                finished = isinstance(item, Complete)
                yield item
                with self._reader:  # the reader came back for more
                    self._unread -= 1
                    self._reader.notify_all()
        finally:
            if not finished:
                self._abandon()
            await asyncio.to_thread(self.stop)  # which asks the host, where the model is warm
            await asyncio.to_thread(thread.join)
