"""Work that nobody waits for any more is given up while a request is prepared, before there is a generation to stop.

Who starts requests for others says in the thread at hand how to find out that they left; what takes long asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import LeapGenerationError

_is_given_up: ContextVar[Callable[[], bool] | None] = ContextVar("is_given_up", default=None)


@contextmanager
def given_up_when(is_given_up: Callable[[], bool]) -> Iterator[None]:
    """Within the block ``check_wanted`` raises as soon as ``is_given_up`` returns true."""
    token = _is_given_up.set(is_given_up)
    try:
        yield
    finally:
        _is_given_up.reset(token)


def check_wanted() -> None:
    """Raises LeapGenerationError when nobody waits for the work at hand."""
    is_given_up = _is_given_up.get()
    if is_given_up is not None and is_given_up():
        raise LeapGenerationError("the request was given up")
