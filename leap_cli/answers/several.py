"""``-n``: several answers to one prompt. They are generated at the same time, and shown one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from leap_core.errors import LeapError
from leap_core.responses import Complete, MessageResponse
from leap_core.runner.streams import Stream

from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.output import Format, Output

if TYPE_CHECKING:
    from leap_core.options import GenerationOptions

Show: TypeAlias = "Callable[[Stream, Output, Callable[[], object] | None], Complete]"

LOOK_SECONDS = 0.1
"""A Ctrl-C that comes just before a wait does not end it; its handler runs when this is over."""
SEPARATOR = "---"
"""The line between two answers in text."""


def seeded(options: GenerationOptions, index: int) -> GenerationOptions:
    """The options of one of the answers: its seed is the given one plus its index; without one each draws its own."""
    return options if options.rng_seed is None else replace(options, rng_seed=options.rng_seed + index)


def show_answers(
    streams: Sequence[Stream], env: Environment, format: str, show: Show, before_first: Callable[[], object]
) -> list[Complete]:
    """Show every answer with ``show``; json is one array, and each document or event has the ``index`` of its answer.
    Ctrl-C stops them all and keeps what has come.

    An answer that fails does not keep the others from being shown; then its error is raised.
    """

    def stop() -> None:
        for stream in streams:
            stream.stop()

    finished: list[Complete] = []
    failures: list[LeapError] = []
    documents: list[object] = []
    with stopping_on_interrupt(stop), ExitStack() as running:
        ahead = [running.enter_context(closing(ReadAhead(stream, stop))) for stream in streams]
        for index, stream in enumerate(ahead):
            output = IndexedOutput(env, format, index, documents)
            if index and output.format is Format.TEXT:
                output.text(f"{SEPARATOR}\n")
            try:
                finished.append(show(stream, output, None if index else before_first))
            except LeapError as error:
                failures.append(error)
                output.failed(error)
    if documents:
        Output(env, format).document(documents)
    if failures:
        if len(failures) < len(ahead):
            failures[0].message = f"{len(failures)} of {len(ahead)} answers failed: {failures[0].message}"
        raise failures[0]
    return finished


class ReadAhead:
    """A stream that a thread of its own reads, so that it goes on while others are shown. ``stop`` stops them all."""

    def __init__(self, stream: Stream, stop: Callable[[], object]) -> None:
        self._stream = stream
        self._received: queue.SimpleQueue[MessageResponse | BaseException | None] = queue.SimpleQueue()
        self._stop_all = stop
        self._thread = threading.Thread(target=self._read, name="leap-answer", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[MessageResponse]:
        return self

    def __next__(self) -> MessageResponse:
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
            with closing(self._stream):
                for response in self._stream:
                    self._received.put(response)
        except BaseException as error:
            self._received.put(error)
        else:
            self._received.put(None)


class IndexedOutput(Output):
    """Output in which everything for programs has the index of its answer. ``documents`` collects those of json."""

    def __init__(self, env: Environment, format: str, index: int, documents: list[object]) -> None:
        super().__init__(env, format)
        self._index, self._documents = index, documents

    def document(self, value: object) -> None:
        self._documents.append(self._with_index(value))

    def event(self, value: object) -> None:
        super().event(self._with_index(value) if self.format is Format.JSONL else value)

    def failed(self, error: LeapError) -> None:
        """Say to programs that this answer has failed; people read it on stderr."""
        if self.format is Format.JSON:
            self.document({"error": error.message})
        elif self.format is Format.JSONL:
            self.event({"type": "error", "error": error.message})

    def _with_index(self, value: object) -> object:
        return {"index": self._index, **value} if isinstance(value, dict) else value
