"""How loud the loudspeaker's sound comes back through the microphone, so that an answer does not interrupt itself.

Geigel's rule: what is louder than the echo of anything played within the last moments is said by somebody. How much of
the loudspeaker comes back is measured while answers sound; until then it is taken for all of it.
"""

from __future__ import annotations

from .speech_detector import QUIETEST

LEARNING_FRAMES = 15
"""Frames of 20 ms after which the loudest echo is known."""
AUDIBLE = -50.0
"""Decibels of full scale from which on what is played can be heard."""
MARGIN = 6.0
"""Decibels by which a voice exceeds the echo."""
FORGETTING = 0.02
"""Decibels by which the echo is taken for weaker with every frame: 1 dB a second."""


class Echo:
    """Gets of each frame what is played and what is heard."""

    def __init__(self) -> None:
        self._frames = 0
        self._loudest = QUIETEST
        self._return = 0.0

    def hear(self, played: float, heard: float) -> None:
        """A frame of the microphone while the loudspeaker plays; both in decibels of full scale."""
        if played < AUDIBLE:
            return
        self._frames += 1
        back = min(0.0, heard - played)
        self._loudest = max(self._loudest, back)
        if self._frames == LEARNING_FRAMES:
            self._return = self._loudest
        elif self._frames > LEARNING_FRAMES:
            # A voice over the answer would be taken for its echo, so one frame counts little.
            self._return += FORGETTING * 5 if back > self._return else -FORGETTING

    def drowned_out_from(self, played: float) -> float:
        """The level that a voice has to exceed while this is played."""
        return played + self._return + MARGIN if played >= AUDIBLE else QUIETEST
