"""Generated clips sound as is said about them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import soundfile

from leap_core.testing.sounds import RATE, SOUNDS, Clip, clip_of, random_clip
from tests.support.sound_questions import ask_all, transcribe


@pytest.mark.parametrize("name", SOUNDS)
def test_a_sound_has_its_pitch_and_silence_around_it(name):
    clip = clip_of(name, length=0.5, gap=0.2)
    samples = clip.play()
    assert len(samples) == round(clip.seconds * RATE) and samples.dtype == np.float32
    spectrum = np.abs(np.fft.rfft(samples))
    assert abs(int(spectrum.argmax()) * RATE / len(samples) - SOUNDS[name]) < 2
    assert not samples[: int(0.19 * RATE)].any() and not samples[int(0.71 * RATE) :].any()


def test_a_clip_is_written_as_wav(tmp_path):
    path = clip_of("do", "mi", "so").write(tmp_path / "notes.wav")
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE and np.abs(samples - clip_of("do", "mi", "so").play()).max() < 1e-4


def test_the_same_seed_plays_the_same():
    one, other = (random_clip(random.Random(3)) for _ in range(2))
    assert one == other and (one.play(0.01, 1) == other.play(0.01, 1)).all()
    assert (one.play(0.01, 1) != one.play(0.01, 2)).any()


def test_sounds_do_not_touch_and_fit_into_the_clip():
    for seed in range(200):
        clip = random_clip(random.Random(seed), 8.0 if seed % 5 == 0 else None, most=9)
        assert 1.0 <= clip.seconds <= 8.0
        ends = [0.0, *(sound.end for sound in clip.sounds)]
        starts = [*(sound.start for sound in clip.sounds), clip.seconds]
        assert all(start - end > 0.05 for end, start in zip(ends, starts, strict=True))


def test_questions_have_answers_that_follow_from_the_clip():
    rng = random.Random(1)
    clip = clip_of("do", "mi", "so")
    answers = {question.answer for _ in range(60) for question in ask_all(clip, rng)}
    assert {"do mi so.", "There are 3 notes.", "The last note is so.", "The second note is mi.", "Up."} <= answers
    assert {"The highest note is so.", "The lowest note is do.", "Yes.", "No."} <= answers
    assert transcribe(Clip((), 1.0)) == "I hear nothing."
    assert "There are 2 beeps." in {q.answer for _ in range(20) for q in ask_all(clip_of("beep", "beep"), rng)}
