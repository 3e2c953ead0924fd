"""What both sides of a talk said, in one file: the user on the left, the model on the right."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from leap_core.errors import LeapError
from leap_core.media.audio import RATE as HEARD
from leap_core.responses import AudioSample
from leap_core.speech.spoken_file import SpokenFile
from leap_core.talk.playback import RATE as PLAYED

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

MOST_APART = PLAYED // 4
"""Samples by which one side may be ahead before the other is filled with silence: a device has stopped."""


class Recording:
    """A WAV at 24 kHz, written while it comes. ``heard`` is called by one thread, ``played`` by any."""

    def __init__(self, path: Path) -> None:
        import soxr

        self._file = SpokenFile(path, channels=2)
        self._resampler = soxr.ResampleStream(HEARD, PLAYED, 1, dtype="float32")
        self._guard = threading.Lock()
        self._sides: list[list[NDArray[float32]]] = [[], []]
        self._has_failed = False

    def heard(self, samples: NDArray[float32]) -> None:
        """The user's side: mono, 16 kHz."""
        self._sides[0].append(self._resampler.resample_chunk(samples))
        self._write()

    def played(self, samples: NDArray[float32]) -> None:
        """The model's side: mono, 24 kHz."""
        with self._guard:
            self._sides[1].append(samples)

    def finish(self) -> bool:
        """Put the file in its place. False where nothing came, or not all could be written."""
        if self._has_failed:
            return False
        self._write(to_the_end=True)
        return self._file.finish()

    def _write(self, *, to_the_end: bool = False) -> None:
        import numpy as np

        with self._guard:
            left, right = (np.concatenate([np.zeros(0, np.float32), *side]) for side in self._sides)
            longer, shorter = max(len(left), len(right)), min(len(left), len(right))
            count = longer if to_the_end else max(shorter, longer - MOST_APART)
            self._sides = [[left[count:]], [right[count:]]]
        both = np.zeros((count, 2), np.float32)
        both[: len(left[:count]), 0] = left[:count]
        both[: len(right[:count]), 1] = right[:count]
        if count:
            try:
                self._file.write(AudioSample(tuple(both.ravel().tolist()), PLAYED))
            except LeapError:
                self._has_failed = True
                raise
