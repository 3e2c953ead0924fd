"""Sound that tests bring to a talk, and what they read out of what it plays."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from leap_core.conversation.media.audio import RATE
from leap_core.conversation.talk.playback import RATE as PLAYED
from leap_core.conversation.talk.talk import Talk
from leap_core.testing.sounds import clip_of

Samples = NDArray[np.float32]
BLOCK = 0.02


def quiet(seconds: float, level: float = 0.0005, seed: int = 1) -> Samples:
    """The hiss of a room."""
    return np.random.default_rng(seed).normal(0.0, level, round(seconds * RATE)).astype(np.float32)


def note(name: str, length: float = 0.6) -> Samples:
    """A note that the miniature hears, with 0.15 s of quiet on both sides."""
    return clip_of(name, length=length).play(noise=0.0005)


def recording(*pieces: Samples | float) -> Samples:
    """Pieces one after another; a number is so many seconds of quiet."""
    return np.concatenate([quiet(piece) if isinstance(piece, (int, float)) else piece for piece in pieces])


@contextmanager
def devices(talk: Talk, samples: Samples) -> Iterator[list[Samples]]:
    """Feed the samples and collect what is played, in a time of their own; the list is whole after the block."""
    played: list[Samples] = []

    def run() -> None:
        step = round(BLOCK * RATE)
        for start in range(0, len(samples), step):
            talk.feed(samples[start : start + step])
            played.append(talk.play_all(round(BLOCK * PLAYED)))
        talk.end()
        while not talk.is_quiet:
            played.append(talk.play_all(round(BLOCK * PLAYED)))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield played
        thread.join()
    finally:
        talk.close()
        thread.join()


def tones(played: Sequence[Samples] | Samples) -> list[tuple[float, float, int]]:
    """Start and end in seconds, and the Hz, of each tone in what was played."""
    sound = np.concatenate(played) if isinstance(played, list) else np.asarray(played)
    loud = np.convolve(np.abs(sound) > 0.05, np.ones(480), "same") > 0
    edges = np.flatnonzero(np.diff(np.r_[0, loud.astype(int), 0])).reshape(-1, 2)
    found = []
    for start, end in edges:
        spectrum = np.abs(np.fft.rfft(sound[start:end] * np.hanning(end - start)))
        found.append((start / PLAYED, end / PLAYED, round(float(spectrum.argmax()) * PLAYED / (end - start))))
    return found
