"""Sound between the model that makes it and the loudspeaker that takes it, so that it can be stopped at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .hearing import QUIETEST

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

RATE = 24_000
"""Hz of the sound that models make."""
LEAD = 1.0
"""Seconds that may wait to be played: then the model waits too, so that an answer which is stopped was not made for
nothing, and its history holds little more than was heard."""
REMEMBERED = 0.6
"""Seconds for which a loudspeaker's sound may still come back through the microphone."""


class Playback:
    """One answer's sound at a time. ``write`` and ``finish`` are for the one who makes it, ``read`` for the one who
    plays it, ``drop`` for anybody."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._lead = round(LEAD * RATE)
        self._pieces: deque[NDArray[float32]] = deque()
        self._waiting = 0
        self._accepts = False
        self.is_closed = False
        """Whether nobody plays any more."""
        self._played = 0
        self._levels: deque[tuple[int, float]] = deque()

    def begin(self) -> None:
        """An answer begins."""
        with self.changed:
            self._accepts, self._played = not self.is_closed, 0
            self.changed.notify_all()

    def write(self, samples: Sequence[float]) -> bool:
        """Let these be played; waits while enough is to be played. False: the answer was dropped."""
        import numpy as np

        with self.changed:
            while self._accepts and self._waiting >= self._lead:
                self.changed.wait()
            if self._accepts:
                self._pieces.append(np.asarray(samples, np.float32))
                self._waiting += len(samples)
                self.changed.notify_all()
            return self._accepts

    def finish(self) -> None:
        """No more comes; waits until all was played or dropped."""
        with self.changed:
            self._accepts = False
            self.changed.notify_all()
            while self._waiting and not self.is_closed:
                self.changed.wait()

    def drop(self) -> float:
        """Forget what waits and what still comes of this answer; the seconds of it that were played."""
        with self.changed:
            self._pieces.clear()
            self._waiting, self._accepts = 0, False
            self.changed.notify_all()
            return self._played / RATE

    def close(self) -> None:
        """Nobody plays any more."""
        self.is_closed = True
        self.drop()

    @property
    def has_all(self) -> bool:
        """Whether the answer's end is among what waits."""
        return not self._accepts

    @property
    def waiting(self) -> int:
        """Samples that wait to be played."""
        return self._waiting

    def read(self, count: int) -> NDArray[float32]:
        """The next samples; silence where there are none."""
        import numpy as np

        sound = np.zeros(count, np.float32)
        with self.changed:
            filled = 0
            while filled < count and self._pieces:
                piece = self._pieces.popleft()
                taken = piece[: count - filled]
                sound[filled : filled + len(taken)] = taken
                filled += len(taken)
                if len(taken) < len(piece):
                    self._pieces.appendleft(piece[len(taken) :])
            self._waiting -= filled
            self._played += filled
            self._remember(count, 10 * float(np.log10(np.mean(np.square(sound)) + 1e-12)) if filled else QUIETEST)
            if filled:
                self.changed.notify_all()
        return sound

    @property
    def level(self) -> float:
        """The loudest that was played in the last moments, in decibels of full scale."""
        with self.changed:
            return max((level for _, level in self._levels), default=QUIETEST)

    def _remember(self, count: int, level: float) -> None:
        self._levels.append((count, level))
        total = sum(each for each, _ in self._levels)
        while total - self._levels[0][0] > REMEMBERED * RATE:
            total -= self._levels.popleft()[0]
