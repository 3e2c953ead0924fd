"""Places in which documents are read: quick ones for the first seconds of each, and a few slow ones for what takes
longer, so that documents which take long keep no others waiting.

A document that takes longer moves to a slow place. Where there is none, and another document waits for a quick place,
it loses its place, and is read again in a slow one when it is its turn.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_SECONDS = 0.1


class LostPlace(Exception):  # noqa: N818 - the reading begins again, and nothing is wrong
    """A document was read for long, and others wait."""


class Place:
    """What one document holds. ``is_lost`` is to be asked again and again while it is read."""

    def __init__(self, places: Places, *, is_slow: bool) -> None:
        self._places, self.is_slow = places, is_slow
        self.was_lost = False
        self._begun = places.clock()

    def is_lost(self) -> bool:
        """Whether the reading is to end, because another document needs the place."""
        self.was_lost = self.was_lost or self._places.judge(self, self._places.clock() - self._begun)
        return self.was_lost


class Places:
    """``quick`` and ``slow`` places; a document may have a quick one for so many ``seconds``."""

    def __init__(self, quick: int, slow: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._free = {False: quick, True: slow}
        self._waiting: dict[bool, deque[object]] = {False: deque(), True: deque()}
        """Who waits for a quick place, and for a slow one, in the order in which they came."""
        self._seconds = seconds
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, check: Callable[[], object], *, is_slow: bool = False) -> Iterator[Place]:
        """A place for the block. ``check`` is called while it is waited for, and raises what ends that."""
        me = object()
        with self._changed:
            waiting = self._waiting[is_slow]
            waiting.append(me)
            try:
                while waiting[0] is not me or not self._free[is_slow]:
                    self._changed.wait(LOOK_SECONDS)
                    check()
                self._free[is_slow] -= 1
            finally:
                waiting.remove(me)
                self._changed.notify_all()
        place = Place(self, is_slow=is_slow)
        try:
            yield place
        finally:
            with self._changed:
                self._free[place.is_slow] += 1
                self._changed.notify_all()

    def judge(self, place: Place, seconds: float) -> bool:
        """Whether a document that has been read for so long has lost its place; it may get a slow one."""
        with self._changed:
            if place.is_slow or seconds < self._seconds:
                return False
            if self._free[True] and not self._waiting[True]:
                self._free[True] -= 1
                self._free[False] += 1
                place.is_slow = True
                self._changed.notify_all()
                return False
            return bool(self._waiting[False]) and not self._free[False]
