"""Cutting long sound: in pauses, within bounds, nothing lost."""

from __future__ import annotations

import numpy as np
import pytest

from leap_core.media.audio import RATE
from leap_core.media.silences import cut_at_silences


def speech(*runs: tuple[float, bool]) -> np.ndarray:
    """Noise and pauses of so many seconds."""
    dice = np.random.default_rng(4)
    parts = [dice.normal(0, 0.1 if loud else 0.0005, int(seconds * RATE)) for seconds, loud in runs]
    return np.concatenate(parts).astype(np.float32)


def test_cuts_lie_in_the_pauses() -> None:
    samples = speech((23, True), (0.5, False), (18, True), (0.4, False), (6, True), (0.3, False), (20, True))
    pieces = cut_at_silences(samples)
    assert [piece.start for piece in pieces][0] == 0 and pieces[-1].end == len(samples)
    assert all(a.end == b.start for a, b in zip(pieces, pieces[1:], strict=False))
    cuts = [piece.end / RATE for piece in pieces[:-1]]
    pauses = [(23, 23.5), (41.5, 41.9), (47.9, 48.2)]
    assert all(any(low <= cut <= high for low, high in pauses) for cut in cuts), cuts


@pytest.mark.parametrize("seconds", [0.05, 1, 29.99, 30, 30.05, 61, 185.3])
@pytest.mark.parametrize("loud", [True, False])
def test_pieces_keep_within_bounds_and_lose_nothing(seconds: float, loud: bool) -> None:
    samples = speech((seconds, loud))
    pieces = cut_at_silences(samples)
    assert sum(piece.end - piece.start for piece in pieces) == len(samples)
    lengths = [(piece.end - piece.start) / RATE for piece in pieces]
    assert all(length <= 30 for length in lengths)
    assert all(length >= 19.8 for length in lengths[:-1])
    assert seconds < 0.1 or lengths[-1] >= 0.1


def test_silence_is_told_from_sound() -> None:
    samples = np.concatenate([np.zeros(25 * RATE, np.float32), speech((20, True))])
    pieces = cut_at_silences(samples)
    assert pieces[0].is_silent and not pieces[-1].is_silent
    assert cut_at_silences(np.zeros(0, np.float32)) == []
