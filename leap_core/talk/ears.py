"""What a microphone hears, cut into utterances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..media.audio import LEAST_SECONDS, RATE, RELIABLE_SECONDS
from .events import Utterance
from .speech_detector import BEGINS_ABOVE, FRAME, LEAST_LEVEL, QUIETEST, SpeechDetector

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

ONSET_FRAMES, ONSET_WINDOW = 4, 5
"""Speech begins when so many frames of the last ones are loud: 0.1 s, which a click does not last."""
LASTING_FRAMES = 3
"""So many loud frames in a row are speech that goes on."""
PAUSE = 0.7
"""Seconds of quiet that end an utterance."""
BEFORE, AFTER = 0.3, 0.2
"""Seconds of quiet that an utterance keeps before its beginning and after its end."""
LEAST_SPEECH = 0.12
"""Seconds of loud sound; what has less is a noise."""


@dataclass
class _Heard:
    """A frame that is kept."""

    samples: NDArray[float32]
    level: float


class Ears:
    """Cuts sound at 16 kHz into utterances, frame by frame of 20 ms. Not for several threads at once.

    ``pause``: seconds of quiet that end an utterance.
    """

    def __init__(self, pause: float = PAUSE) -> None:
        self._detector = SpeechDetector()
        self._pause_frames = round(pause * RATE / FRAME)
        self._kept: list[_Heard] = []
        self._onset: list[bool] = []
        self._quiet = self._loud = 0
        self._frames = 0
        self.level = QUIETEST
        """Of the last frame, in decibels of full scale."""
        self.is_hearing = False
        """Whether somebody speaks."""
        self.is_pressed = False
        """Whether everything is an utterance until ``release``."""

    @property
    def seconds(self) -> float:
        """How much was heard."""
        return self._frames * FRAME / RATE

    def hear(self, frame: NDArray[float32], *, opens: bool = True, at_least: float = QUIETEST) -> Utterance | None:
        """The utterance that ends with this frame. ``opens``: whether one may begin; ``at_least``: the level that its
        beginning has to exceed."""
        self.level = level = self._detector.hear(frame)
        self._frames += 1
        self._kept.append(_Heard(frame, level))
        if self.is_pressed:
            return None
        if not self.is_hearing:
            self._onset = [*self._onset[1 - ONSET_WINDOW :], opens and self._detector.begins(level, at_least)]
            self.is_hearing = sum(self._onset) >= ONSET_FRAMES
            self._quiet = 0
            del self._kept[: -(round(BEFORE * RATE / FRAME) + ONSET_WINDOW)]
            return None
        self._loud = self._loud + 1 if self._detector.goes_on(level) else 0
        self._quiet = 0 if self._loud >= LASTING_FRAMES else self._quiet + 1
        return self._end() if self._quiet >= self._pause_frames else None

    def press(self) -> None:
        """An utterance begins here, whatever is heard."""
        self.is_pressed = self.is_hearing = True
        self._kept = []

    def end(self) -> Utterance | None:
        """The utterance ends here, because the key was released or the sound is over."""
        return self._end() if self.is_hearing else None

    def forget(self) -> None:
        """Nothing of what was heard so far is an utterance."""
        self._kept, self._onset, self._quiet = [], [], 0
        self.is_hearing = self.is_pressed = False

    def _end(self) -> Utterance | None:
        import numpy as np

        was_pressed, kept, quiet, surplus = self.is_pressed, self._kept, self._quiet, 0
        self.forget()
        if was_pressed and all(each.level < LEAST_LEVEL for each in kept):
            return None
        if not was_pressed:
            # The floor may have risen to what began this: then it was a noise that lasts.
            loud = sum(each.level > self._detector.floor + BEGINS_ABOVE for each in kept)
            if loud * FRAME < LEAST_SPEECH * RATE:
                return None
            # Models understand less than a second badly, so a short word keeps more of the quiet after it.
            surplus = min(quiet - round(AFTER * RATE / FRAME), len(kept) - round(RELIABLE_SECONDS * RATE / FRAME))
            surplus = max(0, surplus)
            kept = kept[: len(kept) - surplus]
        if len(kept) * FRAME < LEAST_SECONDS * RATE:
            return None
        end = (self._frames - surplus) * FRAME / RATE
        samples = np.concatenate([each.samples for each in kept])
        return Utterance(end - len(samples) / RATE, end, samples)
