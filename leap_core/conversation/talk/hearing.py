"""A microphone's audio, cut into utterances: speech found by energy, the loudspeaker's echo kept out.

The floor is the quietest moment of the last seconds: speech has gaps, and noise that lasts has none, so a fan that is
switched on becomes the floor. ``benchmarks/speech_detector.py`` measures it on speech under noise.

Geigel's rule: what is louder than the echo of anything played within the last moments is said by somebody. How much of
the loudspeaker comes back is measured while answers sound; until then it is taken for all of it.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from ...system.dataclass import dataclass
from ..media.audio import LEAST_SECONDS, MOST_SECONDS, RATE, RELIABLE_SECONDS, wav_of_integers
from ..media.silences import cut_at_silences
from ..messages import Audio, ChatMessage, ChatMessageRole

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
"""Decibels above the floor at which speech begins, and down to which it continues."""
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


LEARNING_FRAMES = 15
"""Frames of 20 ms after which the loudest echo is known."""
AUDIBLE = -50.0
"""Decibels of full scale from which on what is played can be heard."""
MARGIN = 6.0
"""Decibels by which a voice exceeds the echo."""
FORGETTING = 0.02
"""Decibels by which the echo is taken for weaker with every frame: 1 dB a second."""


class Echo:
    """Gets of each frame what is played and what is recorded."""

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


class TalkState(str, Enum):
    """``idle``: nobody speaks. ``listening``: the user does. ``responding``: the model answers, or plays its answer."""

    IDLE = "idle"
    LISTENING = "listening"
    RESPONDING = "responding"


@dataclass(frozen=True)
class StateChange:
    """The talk is in another state from now on."""

    state: TalkState
    at: float


@dataclass(frozen=True)
class Utterance:
    """What the user said from ``start`` to ``end``: mono samples at 16 kHz."""

    start: float
    end: float
    samples: NDArray[float32]

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    def parts(self) -> list[Audio]:
        """The sound as parts of a message; more than a model takes at once is cut at its pauses."""
        pieces = cut_at_silences(self.samples, longest=MOST_SECONDS)
        return [Audio(wav_of_integers(self.samples[piece.start : piece.end])) for piece in pieces]

    def message(self) -> ChatMessage:
        """The utterance as the user's message."""
        return ChatMessage(ChatMessageRole.USER, self.parts())


@dataclass(frozen=True)
class Interrupted:
    """The user spoke while the answer sounded, and it was stopped after ``heard`` seconds."""

    at: float
    heard: float


TalkEvent = StateChange | Utterance | Interrupted


ONSET_FRAMES, ONSET_WINDOW = 4, 5
"""Speech begins when so many frames of the last ones are loud: 0.1 s, which a click does not last."""
LASTING_FRAMES = 3
"""So many loud frames in a row are speech that continues."""
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
        """Seconds that were played."""
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
        """An utterance begins here, whatever the input is."""
        self.is_pressed = self.is_hearing = True
        self._kept = []

    def end(self) -> Utterance | None:
        """The utterance ends here, because the key was released or the sound is over."""
        return self._end() if self.is_hearing else None

    def forget(self) -> None:
        """No input so far is an utterance."""
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
