"""Cutting long sound: in pauses, within bounds, nothing lost."""

from __future__ import annotations

import numpy as np
import pytest

from leap_core.conversation.media.audio import RATE
from leap_core.conversation.media.silences import cut_at_silences, cut_into_phrases


def speech(*runs: tuple[float, bool]) -> np.ndarray:
    """Noise and pauses of so many seconds."""
    dice = np.random.default_rng(4)
    parts = [dice.normal(0, 0.1 if loud else 0.0005, int(seconds * RATE)) for seconds, loud in runs]
    return np.concatenate(parts).astype(np.float32)


def test_cuts_are_in_the_pauses() -> None:
    samples = speech((23, True), (0.5, False), (18, True), (0.4, False), (6, True), (0.3, False), (20, True))
    pieces = cut_at_silences(samples)
    assert [piece.start for piece in pieces][0] == 0 and pieces[-1].end == len(samples)
    assert all(a.end == b.start for a, b in zip(pieces, pieces[1:], strict=False))
    cuts = [piece.end / RATE for piece in pieces[:-1]]
    pauses = [(23, 23.5), (41.5, 41.9), (47.9, 48.2)]
    assert all(any(low <= cut <= high for low, high in pauses) for cut in cuts), cuts


@pytest.mark.slow
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


def test_phrases_are_trimmed_to_the_speech():
    samples = speech((1.5, True), (10.2, False), (0.6, True), (3.0, False), (4.0, True), (0.25, False), (1.0, True))
    phrases = [piece.seconds for piece in cut_into_phrases(samples)]
    spoken = [(0.0, 1.5), (11.7, 12.3), (15.3, 20.55)]
    assert len(phrases) == 3
    for (start, end), (first, last) in zip(phrases, spoken, strict=True):
        assert abs(start - first) <= 0.15 and abs(end - last) <= 0.15


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.0005, 0.01])
def test_every_phrase_in_five_minutes_is_one_piece(noise: float):
    dice = np.random.default_rng(7)
    parts, spoken, at = [], [], 0.0
    for _ in range(39):
        for seconds, loud in ((dice.uniform(0.6, 5.0), dice.uniform(0.03, 0.2)), (dice.uniform(0.6, 6.0), 0.0)):
            count = int(seconds * RATE)
            envelope = 0.6 + 0.4 * np.sin(np.arange(count) * 2 * np.pi * 4 / RATE)  # syllables
            parts.append(dice.normal(0, 1, count) * envelope * loud + dice.normal(0, 1, count) * noise)
            spoken += [(at, at + count / RATE)] if loud else []
            at += count / RATE
    pieces = cut_into_phrases(np.concatenate(parts).astype(np.float32))
    assert len(pieces) == 39 and not any(piece.is_silent for piece in pieces)
    for piece, (first, last) in zip(pieces, spoken, strict=True):
        start, end = piece.seconds
        assert first - 0.15 <= start <= first + 0.1 and last - 0.1 <= end <= last + 0.15


def test_audio_without_pauses_or_speech_is_cut_at_silences():
    for samples in (speech((70, True)), speech((65, False)), np.zeros(40 * RATE, np.float32)):
        assert cut_into_phrases(samples) == cut_at_silences(samples)
    assert cut_into_phrases(np.zeros(0, np.float32)) == []
    long = speech((1, False), (70, True), (1, False))
    assert all(piece.end - piece.start <= 30 * RATE for piece in cut_into_phrases(long))
