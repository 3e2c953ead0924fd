"""When somebody speaks, and when it is only noise."""

from __future__ import annotations

import numpy as np
import pytest

from leap_core.conversation.media.audio import RATE
from leap_core.conversation.talk.hearing import FRAME, Ears, Utterance, level_of

from .sound import Samples, note, quiet, recording


def heard(samples: Samples, pause: float = 0.7) -> list[Utterance]:
    ears = Ears(pause)
    found = [ears.hear(samples[start : start + FRAME]) for start in range(0, len(samples) // FRAME * FRAME, FRAME)]
    return [utterance for utterance in [*found, ears.end()] if utterance is not None]


@pytest.mark.parametrize("level", [0.0, 0.0002, 0.002, 0.02])
def test_steady_noise_is_not_speech(level: float) -> None:
    assert heard(quiet(20, level)) == []


@pytest.mark.parametrize("level", [0.0, 0.0002, 0.002, 0.02])
def test_speech_is_detected_over_noise(level: float) -> None:
    noise = quiet(12, level)
    for second in (3, 6, 9):
        noise[second * RATE :][: len(note("la"))] += note("la")
    starts = [utterance.start for utterance in heard(noise)]
    assert starts == pytest.approx([2.8, 5.8, 8.8], abs=0.2)


def test_a_fan_that_is_switched_on_is_soon_ignored() -> None:
    samples = recording(3.0, quiet(20, 0.02))
    assert heard(samples) == []


def test_mains_hum_is_not_speech() -> None:
    time = np.arange(10 * RATE) / RATE
    hum = (0.1 * np.sin(2 * np.pi * 50 * time) * (time > 3)).astype(np.float32)
    assert heard(quiet(10) + hum) == []


def test_clicks_are_not_speech() -> None:
    samples = quiet(10)
    for start in range(RATE, len(samples), RATE):
        samples[start : start + FRAME] += 0.5
    assert heard(samples) == []


def test_a_pause_within_a_sentence_does_not_end_the_utterance() -> None:
    samples = recording(1.0, note("do"), 0.2, note("mi"), 2.0)
    assert len(heard(samples)) == 1
    assert len(heard(samples, pause=0.3)) == 2


def test_speech_from_the_first_moment_is_detected() -> None:
    (utterance,) = heard(recording(note("la")[2400:], 1.0))
    assert utterance.start == 0.0 and utterance.seconds == pytest.approx(0.95, abs=0.2)


def test_an_utterance_without_a_final_pause_is_detected() -> None:
    (utterance,) = heard(recording(1.0, note("la")))
    assert utterance.end == pytest.approx(1.9, abs=0.05)


def test_levels_are_measured_in_the_frequencies_of_speech() -> None:
    time = np.arange(FRAME) / RATE
    tone = np.sin(2 * np.pi * 1000 * time).astype(np.float32)
    assert level_of(0.5 * tone) == pytest.approx(-9.0, abs=0.5)
    assert level_of(np.zeros(FRAME, np.float32)) == -90.0
