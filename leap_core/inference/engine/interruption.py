"""Who may end a decode that is running, and when.

llama.cpp leaves some of an aborted decode behind: positions of the sequences that took part, and in recurrent layers
states of other sequences that it was about to move. So only a decode of one sequence is interrupted: when its request
is cancelled, or to make way for another one, after which it is computed again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..llama.context import LlamaContext
from .compute_loop import compute_loop
from .request import Request

MUCH_SHORTER = 4
"""A prompt that is so many times shorter than what is left of the one that is read does not wait for its chunk."""
SHARE_LOST = 4
"""A chunk is interrupted after so many times as long as the last interrupted one had run."""
LEAST_PAUSE = 0.5
WAITS = 0.5
"""Seconds that another prompt of the same level waits for the end of a chunk."""


class Interruption:
    """The one owner of a context's abort flag. The flag is set while the context is closed, or while a decode runs
    whose request is cancelled or makes way; it has no effect on a later decode."""

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self._request: Request | None = None
        self.is_closed = False
        self.makes_way = False
        """Whether the last decode that could be interrupted was, for another request."""
        self._begun = self._ends = self._not_before = 0.0

    @property
    def may_make_way(self) -> bool:
        """Whether a decode that begins now could make way for another request; for a while after one that did not."""
        return not self._context.model.on_gpu and time.perf_counter() >= self._not_before

    @contextmanager
    def allowed(self, request: Request, seconds: float = 0.0) -> Iterator[None]:
        """Within the block the running decode, which takes about ``seconds``, ends when ``request`` is cancelled, also
        when it was before."""
        self.makes_way, self._begun = False, time.perf_counter()
        self._ends = self._begun + seconds
        self._set(request)
        try:
            yield
        finally:
            self._set(None)

    def update(self, request: Request) -> None:
        """``request`` was cancelled. From any thread."""
        with compute_loop.changed:
            if request is self._request:
                self._context.abort()

    def make_way(self, other: Request) -> None:
        """``other`` was submitted, and there is or will be a slot for it: end the running decode where waiting for it
        would take long and computing it again costs little. Called with the loop's lock held."""
        request, now = self._request, time.perf_counter()
        if request is None or request.cancelled or self.is_closed or now < self._not_before:
            return
        left = len(request.target) - max(request.read, request.cached)
        waits_long = now + WAITS < self._ends or MUCH_SHORTER * len(other.prompt) <= left
        if other.priority > request.priority or (other.priority == request.priority and waits_long):
            self.makes_way = True
            self._not_before = now + max(LEAST_PAUSE, SHARE_LOST * (now - self._begun))
            self._context.abort()

    def close(self) -> None:
        """End the running decode and each later one. From any thread."""
        with compute_loop.changed:
            self.is_closed = True
            self._context.abort()

    def reset(self) -> None:
        """Set the flag as it has to be."""
        self._set(self._request)

    def _set(self, request: Request | None) -> None:
        with compute_loop.changed:
            self._request = request
            self._context.abort(self.is_closed or (request is not None and request.cancelled))
