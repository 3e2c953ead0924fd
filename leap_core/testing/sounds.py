"""Clips of notes and beeps, played from a seed, with all that there is to know about them: what ``builtin-audio`` was
trained on, and what tests and demonstrations use as input. Needs numpy; writing a file needs soundfile.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from ..system.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np

RATE = 16_000
"""Samples a second."""
NOTES = {"do": 523.25, "re": 587.33, "mi": 659.26, "fa": 698.46, "so": 783.99, "la": 880.00, "ti": 987.77}
"""The scale of C5, in hertz."""
BEEP = 2000.0
SOUNDS = {**NOTES, "beep": BEEP}
MOST_SOUNDS = 4
APART = 0.07
"""Seconds of silence at least between sounds that come by chance."""
RAMP = 0.012
"""Seconds in which a sound comes and goes."""


@dataclass(frozen=True)
class Sound:
    """One note or beep. ``start`` and ``length`` in seconds; ``harmonics``: strength of each next overtone."""

    name: str
    start: float
    length: float
    volume: float = 0.4
    harmonics: float = 0.0

    @property
    def end(self) -> float:
        return self.start + self.length


@dataclass(frozen=True)
class Clip:
    """Sounds one after another, with silence before, between and after them."""

    sounds: tuple[Sound, ...]
    seconds: float

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sound.name for sound in self.sounds)

    def play(self, noise: float = 0.0, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """Samples at 16 kHz, from -1 to 1; ``noise`` is the deviation of a hiss under them."""
        import numpy as np

        samples = np.zeros(round(self.seconds * RATE), dtype=np.float32)
        for sound in self.sounds:
            first, count = round(sound.start * RATE), round(sound.length * RATE)
            time = np.arange(count, dtype=np.float32) / RATE
            wave = np.zeros(count, dtype=np.float32)
            for overtone in range(3):
                pitch = SOUNDS[sound.name] * (overtone + 1)
                wave += sound.harmonics**overtone * np.sin(2 * np.pi * pitch * time)
            edges = np.minimum(1.0, np.minimum(time, time[::-1]) / RAMP)
            samples[first : first + count] += (sound.volume * wave * edges)[: len(samples) - first]
        if noise:
            samples += np.random.default_rng(seed).normal(0.0, noise, len(samples)).astype(np.float32)
        return np.clip(samples, -1.0, 1.0)

    def write(self, path: Path) -> Path:
        """The clip as a WAV file of 16 bits, mono."""
        import soundfile

        soundfile.write(path, self.play(), RATE, subtype="PCM_16")
        return path


def clip_of(*names: str, length: float = 0.3, gap: float = 0.15) -> Clip:
    """These sounds, evenly."""
    starts = [gap + number * (length + gap) for number in range(len(names))]
    sounds = tuple(Sound(name, start, length) for name, start in zip(names, starts, strict=True))
    return Clip(sounds, gap + len(names) * (length + gap))


def random_clip(rng: random.Random, seconds: float | None = None, most: int = MOST_SOUNDS) -> Clip:
    """A clip of 1 to 3 seconds, or of ``seconds``, with at most ``most`` sounds, seldom none."""
    seconds = rng.uniform(1.0, 3.0) if seconds is None else seconds
    count = 0 if rng.random() < 0.03 else rng.randint(1, most)
    lengths = [rng.uniform(0.14, 0.5) for _ in range(count)]
    free = seconds - sum(lengths) - APART * (count + 1)
    while free < 0:
        lengths.pop()
        count = len(lengths)
        free = seconds - sum(lengths) - APART * (count + 1)
    cuts = sorted(rng.uniform(0, free) for _ in range(count))
    beeps = rng.random() < 0.2
    volume, harmonics = rng.uniform(0.1, 0.6), rng.choice([0.0, 0.0, rng.uniform(0.05, 0.5)])
    sounds, used = [], APART
    for cut, length in zip(cuts, lengths, strict=True):
        name = "beep" if beeps else rng.choice(list(NOTES))
        louder = volume * rng.uniform(0.7, 1.3)
        sounds.append(Sound(name, cut + used, length, louder, 0.0 if beeps else harmonics))
        used += length + APART
    return Clip(tuple(sounds), seconds)
