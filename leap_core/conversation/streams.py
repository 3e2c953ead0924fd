"""The stream of one reply, read with ``for`` or ``async for``, and the check of its finished text."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Protocol

from ..errors import LeapConstraintError, LeapGenerationPromptExceedContextLengthError
from ..system.dataclass import dataclass
from .generator import Generation, PassingGeneration, PromptProgress
from .messages import ChatMessage, ChatMessageRole
from .request_facts import RequestFacts
from .responses import Chunk, Complete, GenerationFinishReason, MessageResponse, require_complete


class Stream(Protocol):
    """A conversation's response stream, or a run with functions."""

    def __iter__(self) -> Iterator[MessageResponse]: ...
    def __next__(self) -> MessageResponse: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


def last_of(stream: Stream, on_text: Callable[[str], object] | None = None) -> Complete:
    """Read a stream to its end and close it; how it ended. ``on_text`` gets each piece of text. Raises
    LeapGenerationError where the generation failed."""
    complete = None
    with closing(stream):
        for response in stream:
            if isinstance(response, Complete):
                complete = response
            elif isinstance(response, Chunk) and on_text is not None:
                on_text(response.text)
    return require_complete(complete)


class PassingStream:
    """Passes on the responses of another stream; subclasses change or note some of them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[MessageResponse]:
        return self

    def __next__(self) -> MessageResponse:
        return self._stream.__next__()

    def stop(self) -> None:
        self._stream.stop()

    def close(self) -> None:
        self._stream.close()


READER_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class ResponseReader:
    """Who iterates a stream: a thread, and the asyncio task that runs in it (None outside of tasks). ``blocks``: while
    it waits for a response, nothing else runs in its thread."""

    thread: int
    task: weakref.ref[object] | None
    blocks: bool

    @staticmethod
    def current(*, blocks: bool) -> ResponseReader:
        """The reader that calls this."""
        task = None
        if (asyncio := sys.modules.get("asyncio")) is not None:
            with suppress(RuntimeError):  # no event loop runs in this thread
                task = asyncio.current_task()
        # A strong reference would close a circle: a task holds the streams that it reads.
        return ResponseReader(threading.get_ident(), None if task is None else weakref.ref(task), blocks)

    def waits_for_itself(self, holder: ResponseReader) -> bool:
        """Whether this reader keeps ``holder``, whose end it waits for, from continuing."""
        if self.blocks or holder.task is None:
            return self.thread == holder.thread
        return self.task == holder.task or _awaits(holder.task(), None if self.task is None else self.task())


def _awaits(task: object, other: object, depth: int = 8) -> bool:
    """Whether an asyncio task cannot continue before another one, by itself or in a gathering of several."""
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is None or other is None or depth == 0:
        return False
    if waiter is other:
        return True
    return any(
        child is other or _awaits(child, other, depth - 1) for child in (waiter, *getattr(waiter, "_children", ()))
    )


class ResponseStream:
    """The responses of one generation, ending with Complete. It can be iterated once."""

    def __init__(self, run: Callable[[ResponseStream], Iterator[MessageResponse]]) -> None:
        self._run = run
        self._guard = threading.Lock()
        self._generation: Generation | None = None
        self._started = False
        self._own: Generator[MessageResponse, None, None] | None = None
        self._reader = threading.Condition()
        self._unread = 0
        self._is_gone: Callable[[], bool] = lambda: False
        self._generating: threading.Thread | None = None
        """Generates for an asynchronous reader."""
        self.reader: ResponseReader | None = None
        """Who took the last response."""
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

    @property
    def progress(self) -> PromptProgress | None:
        """How far the prompt is read, from any thread; None before it begins and where the runner does not know."""
        generation = self._generation
        return None if generation is None else generation.progress

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
                self._own.close()

    def __iter__(self) -> Generator[MessageResponse, None, None]:
        if self._own is not None:  # goes on where next() was
            return self._own
        with self._guard:
            if self._started:
                raise RuntimeError("a response stream can be iterated only once")
            self._started = True
        return self._iterate()

    def _iterate(self) -> Generator[MessageResponse, None, None]:
        is_asynchronous = self.reader is not None
        reader = self.reader = self.reader or ResponseReader.current(blocks=True)
        try:
            for response in self._run(self):
                # A stream may be handed from thread to thread, and from task to task.
                if not is_asynchronous and (reader.thread != threading.get_ident() or "asyncio" in sys.modules):
                    reader = self.reader = ResponseReader.current(blocks=True)
                yield response
        except GeneratorExit:
            self._abandon()
            raise

    def _abandon(self) -> None:
        with self._reader:
            self.abandoned = True
            self._reader.notify_all()

    def __next__(self) -> MessageResponse:
        if self._own is None:
            self._own = iter(self)
        return next(self._own)

    async def aclose(self) -> None:
        """``close`` without blocking the event loop, as ``contextlib.aclosing`` calls it."""
        import asyncio

        def close() -> None:
            self.close()
            if self._generating is not None:
                self._generating.join()

        await asyncio.to_thread(close)

    def __enter__(self) -> ResponseStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[MessageResponse]:
        """Iterate without blocking the event loop: a thread generates, the loop receives."""
        import asyncio  # here, because every start of a command would pay for it

        loop = asyncio.get_running_loop()
        received: asyncio.Queue[MessageResponse | BaseException | None] = asyncio.Queue()
        self.reader = ResponseReader.current(blocks=False)
        responses = iter(self)
        self._is_gone = loop.is_closed

        def hand_over(item: MessageResponse | BaseException | None) -> None:
            with self._reader:
                self._unread += 1
            try:
                loop.call_soon_threadsafe(received.put_nowait, item)
            except RuntimeError:  # the loop is closed, and so is its reader
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

        thread = self._generating = threading.Thread(target=generate, name="leap-async", daemon=True)
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


MOST_REPAIRS = 2
"""Times that an answer which does not fit is generated anew, with what is wrong with it shown to the model."""

CUT = {
    GenerationFinishReason.MAX_TOKENS: "the answer was cut at max_tokens before it was complete",
    GenerationFinishReason.EXCEED_CONTEXT: "the answer was cut at the end of the context before it was complete",
    GenerationFinishReason.REPETITION: "the answer repeated itself and was stopped before it was complete",
}

UNCHECKED = {GenerationFinishReason.INTERRUPTED, GenerationFinishReason.ERROR}


class TextCheck(Protocol):
    """What a finished text is held to; see ``CompiledConstraint``, which is one."""

    @property
    def exact(self) -> bool: ...

    @property
    def calls(self) -> bool: ...

    @property
    def validate(self) -> Callable[[str], list[str]]: ...

    @property
    def remarks(self) -> Callable[[str], list[str]]: ...

    def problems_of_cut(self, text: str, called: bool) -> list[str]: ...


class CheckedGeneration(PassingGeneration):
    """Passes a generation on and checks its text at the end.

    Where the constraint is exact, the text is passed on as it comes, and only one that was cut short can be wrong.
    Otherwise it is held back until it was found right; ``again`` starts a generation with more messages for another
    try, ``repairs`` times at most. When the last try is wrong, LeapConstraintError has the text and what is wrong with
    it. A reply that the user stopped, or that calls functions instead of answering, is not checked.
    """

    def __init__(
        self,
        generation: Generation,
        constraint: TextCheck,
        again: Callable[[Sequence[ChatMessage]], Generation],
        repairs: int | None = None,
    ) -> None:
        super().__init__(generation)
        self._constraint = constraint
        self._passes = constraint.exact and not constraint.calls
        self._again = again
        self._most = MOST_REPAIRS if repairs is None else repairs
        self._repairs = 0
        self._first: tuple[float, RequestFacts | None] | None = None
        """When the first answer that did not fit was there, and how its request went."""
        self._held: list[MessageResponse] = []

    def _receive(self) -> None:
        response = self._read()
        if isinstance(response, Complete):
            held, self._held = self._held, []
            self._settle(response, held)
        elif self._passes or not isinstance(response, Chunk):
            self._ready.append(response)
        else:
            self._held.append(response)

    def _settle(self, complete: Complete, held: list[MessageResponse]) -> None:
        """Let a reply that is right, or that need not be, out; otherwise try again or fail."""
        text = complete.full_message.text
        problems, cut = self._problems(complete), CUT.get(complete.finish_reason)
        if not problems:
            if self._repairs:
                note = f"the answer did not fit its constraint at first and was generated {self._repairs + 1} times"
                complete = replace(complete, warnings=(*complete.warnings, note), facts=self._facts())
            if complete.finish_reason not in UNCHECKED and (remarks := self._constraint.remarks(text) if text else []):
                complete = replace(complete, warnings=(*complete.warnings, *remarks))
            self._ready.extend([*held, complete])
            return
        if cut is not None or self._constraint.exact or self._repairs >= self._most:
            raise self._error(complete, problems, cut)
        self._first = self._first or (time.monotonic(), complete.facts)
        try:
            if not self._begin(lambda: self._again(_shown(text, problems))):
                self._ready.extend([*held, replace(complete, finish_reason=GenerationFinishReason.INTERRUPTED)])
        except LeapGenerationPromptExceedContextLengthError:  # there is no room to show what is wrong
            raise self._error(complete, problems, None) from None
        self._repairs += 1

    def _facts(self) -> RequestFacts | None:
        """Those of the first try, with the time that the others took."""
        ended, facts = self._first or (0.0, None)
        return facts and replace(facts, repairs=self._repairs, repairing=time.monotonic() - ended)

    def _problems(self, complete: Complete) -> list[str]:
        text, called = complete.full_message.text, bool(complete.full_message.function_calls)
        if complete.finish_reason in UNCHECKED or (called and not text.strip()):
            return []
        if complete.finish_reason in CUT:
            return self._constraint.problems_of_cut(text, called)
        return self._constraint.validate(text)

    def _error(self, complete: Complete, problems: list[str], cut: str | None) -> LeapConstraintError:
        text, stats = complete.full_message.text, complete.stats
        facts = self._facts() if self._repairs else complete.facts
        if cut is not None:
            hint = "allow more tokens, ask for less, or let the answer end in time (--complete-json)"
            return LeapConstraintError(
                f"{cut}: {problems[0]}",
                text=text,
                problems=[cut, *problems],
                hint=hint,
                stats=stats,
                cut_by=complete.finish_reason.value,
                facts=facts,
            )
        tries = f" after {self._repairs + 1} tries" if self._repairs else ""
        return LeapConstraintError(
            f"the answer does not fit its constraint{tries}: {'; '.join(problems[:3])}",
            text=text,
            problems=problems,
            hint="describe the wanted JSON in the prompt, or use a larger model",
            stats=stats,
            facts=facts,
        )


def _shown(text: str, problems: Sequence[str]) -> list[ChatMessage]:
    """The failed answer and what is wrong with it."""
    listed = "\n".join(f"- {problem}" for problem in problems[:5])
    return [
        ChatMessage(ChatMessageRole.ASSISTANT, text),
        ChatMessage(ChatMessageRole.USER, f"That does not fit:\n{listed}\nAnswer again with the corrected JSON only."),
    ]
