"""Who may end a decode that is running, and when.

llama.cpp leaves some of an aborted decode behind: positions of the sequences that took part, and in recurrent layers
states of other sequences that it was about to move. So only a decode of one sequence is interrupted, and only for the
request that it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..llama.context import LlamaContext
from .compute_loop import compute_loop
from .request import Request


class Interruption:
    """The one owner of a context's abort flag. The flag is set while the context is closed, or while a decode runs
    whose request is cancelled; no cancel has an effect on a later decode."""

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self._request: Request | None = None
        self.is_closed = False

    @contextmanager
    def allowed(self, request: Request) -> Iterator[None]:
        """Within the block the running decode ends when ``request`` is cancelled, also when it was before."""
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
