"""Texts that wait to become vectors, in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import LeapGenerationError
from ..llama.embedding_context import EmbeddingContext
from .compute_loop import FORKED, compute_loop
from .request import Adapters
from .threads import free_cores

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


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
