"""Whether somebody speaks, frame by frame, by energy with hysteresis above a floor of noise that is measured all along.

The floor is the quietest moment of the last seconds: speech has gaps, and noise that lasts has none, so a fan that is
switched on becomes the floor. ``benchmarks/speech_detector.py`` measures it on speech under noise.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING

from ..media.audio import RATE

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

FRAME = RATE // 50
"""Samples of a frame of 20 ms."""
FRAMES_A_SECOND = RATE // FRAME
LOWEST, HIGHEST = 150, 4000
"""Hz between which speech has its energy: the hum of the mains and of fans is below."""
QUIETEST = -90.0
"""Decibels of full scale; nothing counts as quieter."""
BEGINS_ABOVE, GOES_ON_ABOVE = 8.0, 5.0
"""Decibels above the floor at which speech begins, and down to which it goes on."""
LEAST_LEVEL = -55.0
"""Decibels of full scale that speech has at least."""
BLOCK_FRAMES, FLOOR_BLOCKS = 25, 10
"""The floor is the least of so many blocks: of the last five seconds."""
SMOOTHED_FRAMES = 3
ASSUMED_FLOOR = -50.0
"""The highest floor within the first second: whoever speaks at once is heard."""


class SpeechDetector:
    """Judges one frame after the other."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=SMOOTHED_FRAMES)
        self._blocks: deque[float] = deque(maxlen=FLOOR_BLOCKS)
        self._lowest = 0.0
        self._frames = 0
        self.floor = ASSUMED_FLOOR
        """Decibels of full scale of what is heard while nobody speaks."""

    def hear(self, frame: NDArray[float32]) -> float:
        """Take note of a frame's level, which is returned in decibels of full scale."""
        level = level_of(frame)
        self._recent.append(level)
        smooth = sum(self._recent) / len(self._recent)
        self._lowest = min(self._lowest, smooth)
        self._frames += 1
        if self._frames % BLOCK_FRAMES == 0:
            self._blocks.append(self._lowest)
            self._lowest = 0.0
        floor = min(*self._blocks, self._lowest) if self._blocks else self._lowest
        self.floor = min(floor, ASSUMED_FLOOR) if self._frames < FRAMES_A_SECOND else floor
        return level

    def begins(self, level: float, at_least: float = QUIETEST) -> bool:
        """Whether a level is speech where there was none; ``at_least``: what else has to be drowned out."""
        return level > max(self.floor + BEGINS_ABOVE, LEAST_LEVEL, at_least)

    def goes_on(self, level: float) -> bool:
        """Whether a level is speech within speech."""
        return level > max(self.floor + GOES_ON_ABOVE, LEAST_LEVEL - BEGINS_ABOVE + GOES_ON_ABOVE)


def level_of(samples: NDArray[float32]) -> float:
    """The energy of a frame at the frequencies of speech, in decibels of full scale."""
    import numpy as np

    window, first, last, scale = _analysis(len(samples))
    spectrum = np.fft.rfft(samples * window)[first:last]
    energy = float(np.vdot(spectrum, spectrum).real) * scale
    return max(QUIETEST, 10 * float(np.log10(max(energy, 1e-12))))


@cache
def _analysis(count: int) -> tuple[NDArray[float32], int, int, float]:
    import numpy as np

    window = np.hanning(count).astype(np.float32)
    first, last = (round(hertz * count / RATE) for hertz in (LOWEST, HIGHEST))
    return window, first, last + 1, 2.0 / (count * float(np.square(window).sum()))
