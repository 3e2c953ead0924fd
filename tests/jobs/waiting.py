"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 60.0) -> T:
    """What ``condition`` returns once that is true; looked at once more after so many seconds, for a machine may stand
    still while it is looked at."""
    deadline = time.monotonic() + seconds
    while True:
        over = time.monotonic() > deadline
        if value := condition():
            return value
        assert not over, "it never came"
        time.sleep(0.01)
