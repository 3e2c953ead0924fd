"""The one thread that computes, for all models of the process; texts that wait to become vectors.

Each thread that calls llama.cpp gets a pool of OpenMP threads of its own, and as soon as the pools together have more
threads than there are cores, libgomp stops spinning between operations: decoding then runs at half its speed, also when
the other model is idle. One thread for all keeps one pool, and models take turns step by step.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ...errors import LeapGenerationError
from ..llama.embedding_context import EmbeddingContext
from .request import Adapters
from .threads import free_cores

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

FORKED = "the model was loaded before this process was forked from another"


class Steps(Protocol):
    """Work that is done in steps."""

    def has_work(self) -> bool:
        """Whether a step would do anything. Called with the loop's lock held, or after a step without it: then a no may
        come too early."""
        ...

    def step(self) -> None:
        """Do the next step; raises nothing."""
        ...

    def interrupt(self) -> None:
        """End the step that runs as soon as possible. From any thread."""
        ...

    def close(self) -> None:
        """End all work and leave the loop."""
        ...

    def disown(self) -> None:
        """This process is a forked child, and the work its parent's: end it here, touch nothing of llama.cpp's."""
        ...


class ComputeLoop:
    """Runs the steps of every registered scheduler in turn. ``changed`` is the lock of their queues: notify it when
    work has come."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._members: list[Steps] = []
        self._current: Steps | None = None
        self._thread: threading.Thread | None = None
        self._ended = False

    def add(self, member: Steps) -> None:
        """Let a scheduler take part."""
        with self.changed:
            self._members.append(member)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leap-compute", daemon=True)
                self._thread.start()
                atexit.register(self._end)

    def _end(self) -> None:
        """A thread that comes back from llama.cpp's C++ while the interpreter ends would end the process with
        std::terminate."""
        with self.changed:
            self._ended = True
            for member in self._members:
                member.interrupt()
            self.changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        for member in list(self._members):
            member.close()  # its readers would wait for ever

    def closed_error(self, text: str) -> BaseException:
        """The error for a reader of closed work: LeapGenerationError, or, while the interpreter ends, SystemExit, which
        ends a thread without a traceback."""
        if self._ended:
            return SystemExit(f"{text}: the program ends")
        return LeapGenerationError(text, hint="load it again")

    def remove(self, member: Steps) -> None:
        """Take a scheduler out; returns when none of its steps runs any more."""
        with self.changed:
            if member in self._members:
                self._members.remove(member)
            self.changed.wait_for(lambda: self._current is not member)

    def begin_anew(self) -> None:
        """In a forked child, which has neither the thread nor whoever held the lock."""
        members, self._members = self._members, []
        self.changed = threading.Condition()
        self._thread = self._current = None
        for member in members:
            member.disown()

    def _run(self) -> None:
        while True:
            with self.changed:
                self._current = None
                self.changed.notify_all()
                while (member := next((each for each in self._members if each.has_work()), None)) is None:
                    if self._ended:
                        return
                    self.changed.wait()
                if self._ended:
                    return
                self._members.append(self._members.pop(self._members.index(member)))  # the others go first next time
                self._current = member
                alone = [member]
            member.step()
            while self._members == alone and member.has_work() and not self._ended:
                member.step()  # the lock and the look at all members would cost a token as much as its delivery


compute_loop = ComputeLoop()
"""The process's own."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=compute_loop.begin_anew)


class EmbeddingWork:
    """``texts`` as tokens, and in ``vectors`` what came of them (see ``EmbeddingContext.embed``)."""

    def __init__(
        self,
        context: EmbeddingContext,
        texts: Sequence[Sequence[int]],
        on_progress: Callable[[int], object] | None = None,
        cancelled: threading.Event | None = None,
        adapters: Adapters = (),
    ) -> None:
        self.context = context
        self.adapters = adapters
        self.texts = texts
        self.vectors: dict[int, NDArray[float32]] = {}
        self.error: BaseException | None = None
        self._on_progress = on_progress
        self._cancelled = cancelled
        self._order = deque(sorted(range(len(texts)), key=lambda n: -len(texts[n])))
        """The longest first, so that texts of like length share a call."""
        self._ended = threading.Event()
        if not texts:
            self._ended.set()

    def next_texts(self) -> list[int]:
        """The texts of the next call: as many as fit."""
        chosen: list[int] = []
        room = self.context.most_tokens
        while self._order and len(chosen) < self.context.most_texts and len(self.texts[self._order[0]]) <= room:
            chosen.append(self._order.popleft())
            room -= len(self.texts[chosen[-1]])
        return chosen

    @property
    def was_cancelled(self) -> bool:
        """Whether the caller wants it no more."""
        return self._cancelled is not None and self._cancelled.is_set()

    def take(self, numbers: Sequence[int], vectors: Sequence[NDArray[float32]]) -> None:
        """Keep the vectors of these texts."""
        self.vectors.update(zip(numbers, vectors, strict=True))
        if self._on_progress is not None:
            self._on_progress(len(self.vectors))
        if not self._order:
            self._ended.set()

    def fail(self, error: BaseException) -> None:
        """Nothing more comes."""
        self.error = error
        self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether all vectors are there, or an error."""
        return self._ended.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end; whether it has come."""
        return self._ended.wait(seconds)


class EmbeddingQueue:
    """Work in the order in which it came. ``threads`` at most for one call."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._works: deque[EmbeddingWork] = deque()
        self._running: EmbeddingWork | None = None
        self._closing = ""
        compute_loop.add(self)

    def submit(self, work: EmbeddingWork) -> None:
        """Queue work. Raises LeapGenerationError after ``close``."""
        with compute_loop.changed:
            if self._closing:
                raise compute_loop.closed_error(self._closing)
            if not work.has_ended:
                self._works.append(work)
                compute_loop.changed.notify_all()

    def cancel(self, work: EmbeddingWork) -> None:
        """Its caller wants it no more: end it, and the call that runs for it."""
        with compute_loop.changed:
            if work in self._works and work is not self._running:
                self._works.remove(work)
                work.fail(LeapGenerationError("the embedding was cancelled"))
            elif work is self._running:
                work.context.abort()

    def has_work(self) -> bool:
        """Whether anything waits."""
        return bool(self._works)

    def step(self) -> None:
        """Compute the next few texts of the oldest work. For the compute loop."""
        with compute_loop.changed:
            work = self._running = self._works[0]
        try:
            self._compute(work)
        except Exception as error:
            work.fail(error if isinstance(error, LeapGenerationError) else LeapGenerationError(f"embedding: {error}"))
        finally:
            with compute_loop.changed:
                self._running = None
                work.context.abort(bool(self._closing))
                if work.has_ended and work in self._works:
                    self._works.remove(work)

    def _compute(self, work: EmbeddingWork) -> None:
        numbers = work.next_texts()
        work.context.set_threads(free_cores(self._threads))
        work.context.set_adapters(work.adapters)
        vectors = None if work.was_cancelled else work.context.embed([work.texts[n] for n in numbers])
        if vectors is None:
            work.fail(LeapGenerationError("the embedding was cancelled"))
        else:
            work.take(numbers, vectors)

    def interrupt(self) -> None:
        """End the running call at once. From any thread."""
        running = self._running
        if running is not None:
            running.context.abort()

    def close(self) -> None:
        """End everything with an error. Returns when no context is in use."""
        with compute_loop.changed:
            self._closing = self._closing or "the model is unloaded"
            self.interrupt()
        compute_loop.remove(self)
        self._end_all("the model was unloaded during the embedding")

    def disown(self) -> None:
        """In a forked child: end everything."""
        self._closing = FORKED
        self._end_all(FORKED)

    def _end_all(self, text: str) -> None:
        while self._works:
            self._works.popleft().fail(compute_loop.closed_error(text))
