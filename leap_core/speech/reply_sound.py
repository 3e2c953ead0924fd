"""The sound of one reply, made a few frames at a time: five in one pass cost two thirds of five passes.

How many go together depends on their number alone, so that equal frames sound equal, and grows with the sound that is
out already: made in at most 0.88 s a second, it never lets a loudspeaker wait.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from .detokenizer import Detokenizer
from .frame_maker import Frame
from .speaker import Speaker

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Samples = NDArray[float32]

MOST_TOGETHER = 5
"""Frames of one pass; each is 80 ms, and comes that much later."""
ONE_MORE_AFTER = 8
"""Frames of a sound after which one more goes with the others."""


class ReplySound:
    """One thread adds frames, another takes their sound; either may make it."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._guard = threading.Lock()
        self._detokenizer: Detokenizer | None = None
        self._group: list[Frame] = []
        self._due: deque[list[Frame]] = deque()
        self._ready: deque[Samples] = deque()
        self._sounding = 0
        """Frames of this sound that are in a group that is due or made."""
        self._heard = self._given = self._samples_due = 0
        """Frames that the reader has; pieces that it got, one a frame; samples that its frames still stand for."""

    def add(self, frame: Frame, *, last: bool) -> None:
        """A frame of the reply; after the ``last`` one there is text, or nothing."""
        is_end = frame[0] == self._speaker.end_code
        if not is_end:
            self._group.append(frame)
        if is_end or last or len(self._group) >= min(MOST_TOGETHER, 1 + self._sounding // ONE_MORE_AFTER):
            self._close_group()
        if is_end:
            self._due.append([])
            self._sounding = 0

    def make(self, threads: int) -> None:
        """Make the sound that is due, with so many threads."""
        with self._guard:
            while self._due:
                group = self._due.popleft()
                if group:
                    self._feed(group, threads)
                else:
                    self._end()

    def take(self, frame: Frame) -> list[Samples]:
        """The reader has a further frame: the sound that there is of its frames, one piece for each. What is due and
        not made yet is made now."""
        self._heard += 1
        if frame[0] != self._speaker.end_code:
            self._samples_due += self._speaker.frame_samples
        self.make(1)
        pieces = []
        while self._ready and self._given < self._heard:
            pieces.append(self._ready.popleft())
            self._given += 1
            self._samples_due -= len(pieces[-1])
        return pieces

    def finish(self) -> Samples:
        """The rest of what the reader's frames stand for: nothing is added any more. Frames that were made ahead of a
        reader who stopped are not heard."""
        import numpy as np

        self._close_group()
        self._due.append([])
        self.make(1)
        return np.concatenate([*self._ready, np.zeros(0, np.float32)])[: self._samples_due]

    def close(self) -> None:
        """The reply is given up; nothing is added any more."""
        with self._guard:
            self._give_back()

    def _close_group(self) -> None:
        if self._group:
            self._sounding += len(self._group)
            self._due.append(self._group)
            self._group = []

    def _feed(self, group: list[Frame], threads: int) -> None:
        import numpy as np

        if self._detokenizer is None:
            self._detokenizer = self._speaker.borrow_detokenizer()
        self._ready.extend(np.split(self._detokenizer.feed(group, threads), len(group)))

    def _end(self) -> None:
        import numpy as np

        tail = np.zeros(0, np.float32) if self._detokenizer is None else self._detokenizer.end()
        self._ready.append(tail)
        self._give_back()

    def _give_back(self) -> None:
        detokenizer, self._detokenizer = self._detokenizer, None
        if detokenizer is not None:
            self._speaker.give_back(detokenizer)
