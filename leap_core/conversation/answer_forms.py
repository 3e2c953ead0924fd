"""The form in which answers to a prompt are wanted: how many, and which part of each."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..system.dataclass import dataclass
from .messages import ChatMessage, Text
from .options import GenerationOptions
from .responses import Chunk, Complete, FunctionCalls, MessageResponse, ReasoningChunk
from .streams import PassingStream, Stream

LOOK_SECONDS = 0.1
"""A Ctrl-C that comes just before a wait does not end it; its handler runs when this is over."""
SEPARATOR = "---"
"""The line between two answers in text."""
BLOCK = r"(?ms)^[ ]{0,3}(`{3,}(?=[^`\n]*$)|~{3,})[^\n]*\n(.*?)(?:^[ ]{0,3}\1[`~]*[ ]*$|\Z)"
"""A block of CommonMark: a fence with an info string, lines, and a fence of the same sign that is no shorter, or the
end of the text."""


@dataclass(frozen=True)
class AnswerForm:
    """``count``: how many answers; with a seed S theirs are S, S+1 and so on. ``fenced``: ``first`` or ``last``, the
    fenced block that takes the place of the text. ``reasoning_only``: the reasoning does."""

    count: int = 1
    fenced: str | None = None
    reasoning_only: bool = False

    def options(self, options: GenerationOptions) -> list[GenerationOptions]:
        """Those of each answer."""
        seed = options.rng_seed
        return [options if seed is None else replace(options, rng_seed=seed + n) for n in range(self.count)]

    def part_of(self, stream: Stream) -> Stream:
        """The stream of an answer with the wanted part of it as its text."""
        if self.fenced is not None:
            stream = FencedBlock(stream, last=self.fenced == "last")
        return ReasoningOnly(stream) if self.reasoning_only else stream


class ReasoningOnly(PassingStream):
    """The stream of an answer with its reasoning in place of its text."""

    def __next__(self) -> MessageResponse:
        response = super().__next__()
        while isinstance(response, (Chunk, FunctionCalls)):
            response = super().__next__()
        if isinstance(response, ReasoningChunk):
            return Chunk(response.reasoning)
        if not isinstance(response, Complete):
            return response
        reasoning = response.full_message.reasoning_content or ""
        warnings = response.warnings if reasoning else (*response.warnings, "the model gave no reasoning")
        return replace(response, full_message=ChatMessage("assistant", reasoning), warnings=warnings)


class FencedBlock(PassingStream):
    """The stream of an answer with the content of its first fenced block, or of the last one, in place of its text. An
    answer without such a block stays whole, with a warning."""

    def __init__(self, stream: Stream, *, last: bool = False) -> None:
        super().__init__(stream)
        self._last = last
        self._complete: Complete | None = None

    def __next__(self) -> MessageResponse:
        if self._complete is not None:
            complete, self._complete = self._complete, None
            return complete
        response = super().__next__()
        while isinstance(response, Chunk):
            response = super().__next__()
        if not isinstance(response, Complete):
            return response
        blocks = [match[2] for match in re.finditer(BLOCK, response.full_message.text)]
        if not blocks:
            self._complete = replace(response, warnings=(*response.warnings, "the answer has no fenced block"))
            return Chunk(response.full_message.text)
        block = blocks[-1 if self._last else 0]
        self._complete = replace(response, full_message=replace(response.full_message, content=(Text(block),)))
        return Chunk(block)


class ReadAhead:
    """A stream that a thread of its own reads, so that it continues while others are shown. ``stop`` stops them all."""

    def __init__(self, stream: Stream, stop: Callable[[], object]) -> None:
        self._stream = stream
        import queue  # here, because every single answer would pay for it

        self._received: queue.SimpleQueue[MessageResponse | BaseException | None] = queue.SimpleQueue()
        self._stop_all = stop
        self._thread = threading.Thread(target=self._read, name="leap-answer", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[MessageResponse]:
        return self

    def __next__(self) -> MessageResponse:
        import queue

        received: MessageResponse | BaseException | None
        while True:
            try:
                received = self._received.get(timeout=LOOK_SECONDS)
                break
            except queue.Empty:
                continue
        if received is None:
            raise StopIteration
        if isinstance(received, BaseException):
            raise received
        return received

    def stop(self) -> None:
        self._stop_all()

    def close(self) -> None:
        """Give it up, and wait for the thread."""
        self._stream.stop()
        self._thread.join()

    def _read(self) -> None:
        try:
            for response in self._stream:
                self._received.put(response)
        except BaseException as error:
            self._received.put(error)
        else:
            self._received.put(None)
        finally:
            self._stream.close()
