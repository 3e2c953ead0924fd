"""What one rendering of a chat template may cost: computing time, and characters that it makes, kept or not.

Every loop, call, filter and output of a template reports here (see ``template_sandbox``), so that a rendering ends
within its budget wherever it spends it, and other threads get their turn meanwhile.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 3.0
"""A template may compute this long; the time of its thread counts, so that a busy machine refuses nothing."""
MOST_CHARACTERS = 16_000_000
"""That a template may add to what was said, and that a single value may hold."""
MADE_OF_EACH = 8
"""How often over a template may make that much: trimmed, split and joined texts count each time."""
TICKS_BETWEEN_LOOKS = 64
DEEPEST = 100
WIDE = re.compile(r"%[^A-Za-z%]*?(?:\d{4,}|\*)|\{[^{}]*:[^{}]*(?:\{|\d{4,})")
"""A width in a format, of % or of str.format, that is large or comes from a value."""


class BudgetExceeded(Exception):
    """The template costs too much; the message says what of."""


class Budget:
    """``most``: characters that one value, or the output, may have."""

    def __init__(self, most: int = MOST_CHARACTERS, seconds: float = SECONDS) -> None:
        self.most = most
        self._left = most * MADE_OF_EACH
        self._ends = time.thread_time() + seconds
        self._ticks = 0

    def tick(self, weight: int = 1) -> None:
        """One step of a loop, or a call; ``weight``: characters of the template's own text that it may write."""
        self.charge(weight)
        self._ticks += 1
        if self._ticks % TICKS_BETWEEN_LOOKS == 0 and time.thread_time() > self._ends:
            raise BudgetExceeded("it computes for too long")

    def charge(self, characters: int) -> None:
        """Before, or right after, so many characters are made."""
        if characters > self.most:
            raise BudgetExceeded(f"it makes a value of more than {self.most} characters")
        self._left -= characters
        if self._left < 0:
            raise BudgetExceeded(f"it makes more than {self.most * MADE_OF_EACH} characters")

    def check_format(self, text: object) -> None:
        """Of % or str.format."""
        if isinstance(text, (str, bytes)) and WIDE.search(text if isinstance(text, str) else text.decode("latin-1")):
            raise BudgetExceeded("it formats with a width that is too large")

    def size(self, value: Any) -> int:
        """Characters that the value has, or would have when it is written out. Parts that occur several times count
        each time, because lists in lists may be small and endless to read."""
        return self._size(value, {}, 0)

    def _size(self, value: Any, sizes: dict[int, int], depth: int) -> int:
        if isinstance(value, (str, bytes)):
            return len(value) + 2
        if isinstance(value, dict):
            parts: Any = [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            parts = value
        elif type(value).__name__ == "Namespace":
            parts = list(vars(value).get("_Namespace__attrs", {}).values())
        else:
            return 8
        if id(value) in sizes:
            return sizes[id(value)]
        if depth > DEEPEST:
            raise BudgetExceeded("it nests values too deeply")
        total = 2
        for part in parts:
            total += self._size(part, sizes, depth + 1) + 2
            if total > self.most:
                raise BudgetExceeded(f"it makes a value of more than {self.most} characters")
        sizes[id(value)] = total
        return total

    def counted(self, values: Any, weight: int = 1) -> Iterator[Any]:
        """The same values, each of which is a step."""
        for value in values:
            self.tick(weight)
            yield value


class _Running(threading.local):
    budget: Budget | None = None


_running = _Running()


@contextmanager
def spending(budget: Budget) -> Iterator[Budget]:
    """Within, templates of this thread spend from this budget."""
    outer = _running.budget
    _running.budget = budget
    try:
        yield budget
    finally:
        _running.budget = outer


def current_budget() -> Budget:
    """The budget of the rendering of this thread; a new one where a template is compiled."""
    return _running.budget or Budget()
