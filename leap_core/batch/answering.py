"""What answers the lines of a batch: threads over a model, at a pace, or one call for the texts of several lines."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from typing import Protocol, TypeAlias

from ..conversation.calls import LeapFunction
from ..conversation.embedding import EmbeddingRunner
from ..conversation.generator import Generation, wanting_whole
from ..conversation.messages import ChatMessage
from ..conversation.options import GenerationOptions
from ..conversation.priority import BATCH
from ..conversation.responses import Complete, GenerationFinishReason
from ..conversation.runner import ModelRunner
from ..conversation.streams import last_of
from ..errors import (
    LeapEndpointError,
    LeapError,
    LeapOptionsError,
    LeapQueueFullError,
    LeapUnavailableError,
)
from ..protocols.openai.replies import with_one_call
from ..protocols.openai.requests import options_of_choice
from ..system.dataclass import dataclass
from ..tasks.task import RecipeTask
from .input.line_index import InputChangedError, LineIndex, read_again
from .input.lines import EmbeddingLine, LineRequest, RequestReader
from .journal.line_result import Embedded
from .options import BatchLimits

TEXTS_AT_ONCE = 32

Named = tuple[int, str, EmbeddingLine]
"""A line's place, its name, and what it asks."""


class EmbeddingAnswers:
    """Answers lines one call after the other: the model's arithmetic takes turns anyway. A context manager."""

    def __init__(self, runner: EmbeddingRunner, reader: RequestReader, stop: threading.Event) -> None:
        self._runner, self._reader, self._stop = runner, reader, stop

    def answers(
        self, work: Iterator[tuple[int, LineIndex]], _count: int
    ) -> Iterator[tuple[int, str, Embedded | LeapError]]:
        """Place, name and outcome of each line, in order; it ends early once ``stop`` is set. Raises InputChangedError
        for a line that is no longer what was checked."""
        held: list[Named] = []
        for n, lines in work:
            if self._stop.is_set():
                return
            custom_id, line = read_again(self._reader, lines, n)
            assert isinstance(line, EmbeddingLine), "a line for an answer"
            texts = sum(len(each.request.texts) for _, _, each in held)
            if held and (texts >= TEXTS_AT_ONCE or line.request.options != held[0][2].request.options):
                yield from self._embed(held)
                held = []
            held.append((n, custom_id, line))
        if held:
            yield from self._embed(held)

    def __enter__(self) -> EmbeddingAnswers:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def _embed(self, held: Sequence[Named]) -> Iterator[tuple[int, str, Embedded | LeapError]]:
        """Outcomes of lines with equal options; of one alone where their texts together are refused."""
        if self._stop.is_set():
            return
        request = held[0][2].request
        try:
            texts = self._runner.texts_of([text for _, _, line in held for text in line.request.texts])
            counts = self._runner.count_tokens(texts, request.options.kind)
            vectors = self._runner.embed(texts, cancelled=self._stop, **request.options.to_json())
        except LeapUnavailableError:
            raise
        except LeapError as error:
            if self._stop.is_set():
                return
            if isinstance(error, LeapOptionsError) and len(held) > 1:  # one text is too long: the others are not
                for each in held:
                    yield from self._embed([each])
                return
            yield from ((n, custom_id, error) for n, custom_id, _ in held)
            return
        most, place = self._runner.most_tokens, 0
        for n, custom_id, line in held:
            part = slice(place, place + len(line.request.texts))
            tokens = sum(min(most, count) for count in counts[part])
            yield n, custom_id, Embedded(vectors[part], tokens, line.request.as_base64)
            place = part.stop


def _was_broken_off(error: LeapError) -> bool:
    """Whether an endpoint or a warm model began an answer, and did not come to its end."""
    if isinstance(error, LeapEndpointError):
        return error.of_request and error.may_pass and error.status is None
    return error.host_ended


WINDOW = 60.0


@dataclass
class Pace:
    """Limits of one minute, None where there is none. Tokens of an answer are known when it has come, so its request
    was allowed by those before it."""

    requests: int | None = None
    tokens: int | None = None
    window: float = WINDOW
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _sent: deque[float] = field(default_factory=deque, repr=False)
    _spent: deque[tuple[float, int]] = field(default_factory=deque, repr=False)

    @staticmethod
    def of(limits: BatchLimits) -> Pace:
        """The pace of a batch."""
        return Pace(limits.requests_per_minute, limits.tokens_per_minute)

    def wait(self, leaving: threading.Event) -> bool:
        """Wait until one more request may be sent; False when ``leaving`` was set meanwhile."""
        while True:
            with self._guard:
                rest = self._rest(time.monotonic())
                if rest <= 0:
                    if self.requests is not None:
                        self._sent.append(time.monotonic())
                    return True
            if leaving.wait(min(rest, 1.0)):
                return False

    def spend(self, tokens: int) -> None:
        """Count the tokens of a request and its answer."""
        if self.tokens is not None:
            with self._guard:
                self._spent.append((time.monotonic(), tokens))

    def _rest(self, now: float) -> float:
        """Seconds until the limits allow one more request."""
        while self._sent and now - self._sent[0] >= self.window:
            self._sent.popleft()
        while self._spent and now - self._spent[0][0] >= self.window:
            self._spent.popleft()
        rest = 0.0
        if self.requests is not None and len(self._sent) >= self.requests:
            rest = self._sent[0] + self.window - now
        if self.tokens is not None and sum(count for _, count in self._spent) >= self.tokens:
            rest = max(rest, self._spent[0][0] + self.window - now)
        return rest


Answers: TypeAlias = "list[Complete]"
AHEAD = 2
"""Requests that wait, tokenized, for the next free slot: none of the slots idles while a prompt is made."""
TRIES = 3
"""An answer that an endpoint, or the end of a warm model's process, broke off is asked for so often."""
QUEUE_SECONDS = 0.1
"""This long a line waits before it tries a warm model again whose queue is full."""


class _StoppedError(Exception):
    """The batch was stopped while a task was at work."""


class AnsweringThreads:
    """Threads that each answer one line at a time over the same runner. A context manager: leaving it stops them."""

    def __init__(
        self,
        runner: ModelRunner,
        reader: RequestReader,
        concurrency: int,
        stop: threading.Event,
        pace: Pace | None = None,
    ) -> None:
        self._runner, self._reader, self._stop = runner, reader, stop
        self._pace = pace or Pace()
        self._size = concurrency + (AHEAD if runner.reads_ahead else 0)
        self._guard = threading.Lock()
        self._running: set[Generation] = set()
        self._leaving = threading.Event()
        self._outcomes: queue.SimpleQueue[tuple[int, str, Answers | BaseException] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def answers(
        self, work: Iterator[tuple[int, LineIndex]], count: int
    ) -> Iterator[tuple[int, str, Answers | LeapError]]:
        """Place, name and outcome (the answers, or why there are none) of each of the ``count`` lines, as they come; it
        ends early once ``stop`` is set. Lines are read when their turn comes. Raises InputChangedError for one that is
        no longer what was checked."""
        size = min(self._size, count)
        watch = threading.Thread(target=self._watch, name="leap-batch-stop", daemon=True)
        watch.start()
        self._threads = [
            threading.Thread(target=self._work, args=(work,), name=f"leap-batch-{n}", daemon=True) for n in range(size)
        ]
        for thread in self._threads:
            thread.start()
        while size:
            outcome = self._outcomes.get()
            if outcome is None:
                size -= 1
                continue
            n, custom_id, answer = outcome
            of_line = isinstance(answer, LeapEndpointError) and answer.of_request
            if isinstance(answer, (LeapUnavailableError, InputChangedError)) and not of_line:
                raise answer
            if not isinstance(answer, (list, LeapError)):
                raise answer
            yield n, custom_id, answer

    def __enter__(self) -> AnsweringThreads:
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._stop_all()
        for thread in self._threads:
            thread.join()

    def _work(self, work: Iterator[tuple[int, LineIndex]]) -> None:
        custom_id = ""
        try:
            while not self._ending():
                with self._guard:
                    line = next(work, None)
                if line is None:
                    return
                n, lines = line
                try:
                    custom_id, request = read_again(self._reader, lines, n)
                    assert isinstance(request, LineRequest), "a line for vectors"
                    self._reader.check_model(request.model)
                    answers = self._answers_to(request, custom_id)
                except LeapError as error:
                    if not self._ending():
                        self._outcomes.put((n, custom_id, error))
                except BaseException as error:
                    self._outcomes.put((n, custom_id, error))
                    return
                else:
                    if answers is not None:
                        self._outcomes.put((n, custom_id, answers))
        finally:
            self._outcomes.put(None)

    def _answers_to(self, request: LineRequest, custom_id: str) -> Answers | None:
        """The replies to one line, one after the other, so that the others restore the prompt of the first; None when
        it was stopped on the way."""
        if request.task is not None:
            return self._do_task(request, request.task, custom_id)
        answers: Answers = []
        for n in range(request.choices):
            options = options_of_choice(request.options, n)
            if options.complete_json is None:  # a line that is cut would be a line lost
                options = replace(options, complete_json=True)
            answer = self._answer(request.messages, request.functions, options)
            if answer is None:
                return None
            answers.append(with_one_call(answer) if request.single_call else answer)
        return answers

    def _do_task(self, request: LineRequest, task: RecipeTask, custom_id: str) -> Answers | None:
        """The reply of a task, which may ask the model several times; None when it was stopped on the way."""
        (message,) = request.messages

        def ask(messages: Sequence[ChatMessage], options: GenerationOptions, _on_text: object = None) -> Complete:
            complete = self._answer(messages, [], options)
            if complete is None:
                raise _StoppedError
            return complete

        try:
            return [task.complete(self._runner, message, ask, name=custom_id, overrides=request.options)]
        except _StoppedError:
            return None

    def _answer(
        self, messages: Sequence[ChatMessage], functions: Sequence[LeapFunction], options: GenerationOptions
    ) -> Complete | None:
        """One reply; None when it was stopped on the way. One that was broken off is asked for again."""
        for left in reversed(range(TRIES)):
            try:
                return self._answer_once(messages, functions, options)
            except LeapError as error:
                if not (left and _was_broken_off(error)) or self._ending():
                    raise
        return None

    def _answer_once(
        self, messages: Sequence[ChatMessage], functions: Sequence[LeapFunction], options: GenerationOptions
    ) -> Complete | None:
        generation = self._start(messages, functions, options)
        if generation is None:
            return None
        with self._guard:
            self._running.add(generation)
        try:
            if self._ending():
                return None
            complete = last_of(generation)
            if complete.stats is not None:
                self._pace.spend(complete.stats.total_tokens)
            return None if complete.finish_reason is GenerationFinishReason.INTERRUPTED else complete
        finally:
            with self._guard:
                self._running.discard(generation)
            generation.close()

    def _start(
        self, messages: Sequence[ChatMessage], functions: Sequence[LeapFunction], options: GenerationOptions
    ) -> Generation | None:
        """Waits while others fill the queue of a warm model; None when stopped meanwhile."""
        if options.priority is None and self._runner.priority is None:
            options = replace(options, priority=BATCH)
        while True:
            if not self._pace.wait(self._leaving) or self._ending():
                return None
            try:
                with wanting_whole():
                    return self._runner.start(messages, functions, options)
            except LeapQueueFullError:
                if self._leaving.wait(QUEUE_SECONDS) or self._ending():
                    return None

    def _ending(self) -> bool:
        return self._stop.is_set() or self._leaving.is_set()

    def _watch(self) -> None:
        while not self._leaving.is_set():
            if self._stop.wait(0.05):
                self._stop_all()
                return

    def _stop_all(self) -> None:
        with self._guard:
            running = list(self._running)
        for generation in running:
            generation.stop()


Answer: TypeAlias = "Answers | Embedded"


class LineAnswers(Protocol):
    """Answers lines as they come."""

    def answers(
        self, work: Iterator[tuple[int, LineIndex]], count: int, /
    ) -> Iterator[tuple[int, str, Answer | LeapError]]:
        """Place, name and outcome of each of the ``count`` lines, in any order; it ends early once it is stopped."""
        ...


class LineWorkers(ABC):
    """Models of other processes that answer lines. A context manager."""

    model_id: str
    speaks: bool

    @abstractmethod
    def answering(self, stop: threading.Event) -> AbstractContextManager[LineAnswers]:
        """What answers lines until ``stop`` is set."""

    @abstractmethod
    def __enter__(self) -> LineWorkers: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...


Runner = ModelRunner | EmbeddingRunner | LineWorkers


def answering(
    runner: Runner, reader: RequestReader, concurrency: int, stop: threading.Event, pace: Pace | None = None
) -> AbstractContextManager[LineAnswers]:
    """A context manager whose ``answers`` gives the outcomes of lines. All lines are of the runner's kind."""
    if isinstance(runner, LineWorkers):
        return runner.answering(stop)
    if isinstance(runner, EmbeddingRunner):
        return EmbeddingAnswers(runner, reader, stop)
    return AnsweringThreads(runner, reader, concurrency, stop, pace)
