"""How well a talk's utterances are found under noise, beside WebRTC's detector where ``webrtcvad-wheels`` is installed.

    python benchmarks/speech_detector.py
    python benchmarks/speech_detector.py --held-out

The thresholds were chosen on the first; ``--held-out`` has other sentences, voices, speeds, pitches and noises.
Sentences by espeak-ng (where it is missing, notes of the miniature) stand at known places, 3 s apart, under noise of
several kinds and strengths. Both detectors judge frames of 20 ms; both get the same rule that makes utterances of them.
Prints, for each: sentences found as one utterance, sentences whose beginning or end was cut off, other utterances a
minute, and how late the beginning is noticed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import SHORT

from leap_core.conversation.media.audio import RATE, as_wav, at_model_rate, samples_of_wav
from leap_core.conversation.talk.hearing import FRAME, Ears, level_of
from leap_core.testing.sounds import clip_of

SENTENCES = (
    "What time is it?",
    "Tell me something about the history of Rome, and be brief, please.",
    "No.",
    "Could you repeat that?",
    "I would like to know how far it is from here to the sea.",
    "Stop it, I have heard enough.",
)
VOICES = tuple((voice, 175, 50) for voice in ("en-us", "en-gb", "de", "fr"))
"""espeak-ng's voice, words a minute and pitch."""
NOISES = ("white", "pink", "hum", "clicks")
HELD_OUT_SENTENCES = (
    "Yes.",
    "Where did I leave my keys this morning?",
    "Please add flour, six eggs and half a litre of milk to the list.",
    "Shhh, wait.",
    "Seventy-six divided by four is what?",
    "Thanks, that will do for today.",
)
HELD_OUT_VOICES = (("es", 130, 30), ("it", 220, 70), ("nl", 175, 90), ("en-us+f3", 260, 60))
HELD_OUT_NOISES = ("babble", "harmonics", "ticks", "doors")
APART = 3.0
Samples = np.ndarray[Any, np.dtype[np.float32]]


def spoken(sentence: str, voice: str, speed: int, pitch: int) -> Samples:
    """A sentence by espeak-ng without the silence around it."""
    command = ["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", sentence]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    samples = at_model_rate(*samples_of_wav(as_wav(data).data))
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    return samples[loud[0] : loud[-1]]


def sentences(held_out: bool = False) -> list[Samples]:
    """What is said, at a level of -25 dB."""
    if shutil.which("espeak-ng") is None:
        return [scaled(clip_of(name, length=0.5, gap=0.01).play(), -25) for name in ("do", "mi", "la")]
    said = []
    for voice in (HELD_OUT_VOICES if held_out else VOICES)[: 1 if SHORT else None]:
        for sentence in (HELD_OUT_SENTENCES if held_out else SENTENCES)[: 2 if SHORT else None]:
            said.append(scaled(spoken(sentence, *voice), -25))
    return said


def scaled(samples: Samples, decibels: float) -> Samples:
    """The samples at this level between 150 and 4000 Hz."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    level = 10 * np.log10(np.mean([10 ** (level_of(frame) / 10) for frame in frames]))
    result: Samples = (samples * 10 ** ((decibels - level) / 20)).astype(np.float32)
    return result


def noise(kind: str, count: int) -> Samples:
    """``white``, ``pink``, ``hum`` of the mains with a fan, ``clicks`` of a keyboard."""
    random = np.random.default_rng(5)
    white = random.normal(0, 1, count)
    if kind == "white":
        return white.astype(np.float32)
    spectrum = np.fft.rfft(white)
    hertz = np.maximum(np.fft.rfftfreq(count, 1 / RATE), 20)
    pink = np.fft.irfft(spectrum / np.sqrt(hertz / 100), count)
    if kind == "hum":
        time = np.arange(count) / RATE
        pink = 0.3 * pink + sum(np.sin(2 * np.pi * 50 * n * time) / n for n in range(1, 8))
    if kind == "clicks":
        pink *= 0.1
        for start in random.integers(0, count - 400, count // RATE * 3):
            pink[start : start + 240] += random.normal(0, 3, 240) * np.exp(-np.arange(240) / 60)
    return pink.astype(np.float32)


def held_out_noise(kind: str, count: int) -> Samples:
    """``babble`` of six voices, ``harmonics`` of 120 Hz that swell, ``ticks`` of 2 ms, ``doors`` each 4 s."""
    random = np.random.default_rng(7)
    time = np.arange(count) / RATE
    if kind == "babble":
        total = np.zeros(count, np.float32)
        for voice in ("en-gb", "pl", "sv", "pt", "ro", "cs") if shutil.which("espeak-ng") else ():
            text = "and then they went along the river talking of the weather and of what there was to eat " * 3
            talking = scaled(spoken(text, voice, 170, int(random.integers(20, 80))), -25)
            total += np.resize(np.roll(talking, int(random.integers(len(talking)))), count)
        return total if total.any() else noise("pink", count)
    quiet = 0.02 * random.normal(0, 1, count)
    if kind == "harmonics":
        swell = 1 + 0.3 * np.sin(2 * np.pi * 0.2 * time)
        quiet += swell * sum(np.sin(2 * np.pi * 120 * n * time) / n for n in range(1, 16))
    elif kind == "ticks":
        for start in random.integers(0, count - 400, count // RATE * 2):
            quiet[start : start + 32] += random.normal(0, 4, 32)
    else:
        for start in random.integers(0, count - RATE, count // RATE // 4):
            slam = np.arange(RATE // 2)
            quiet[start : start + len(slam)] += random.normal(0, 3, len(slam)) * np.exp(-slam / (0.08 * RATE))
    return quiet.astype(np.float32)


def mixed(said: list[Samples], kind: str, ratio: float) -> tuple[Samples, list[tuple[float, float]]]:
    """The sentences under noise that is ``ratio`` dB weaker, and where they are, in seconds."""
    places, at = [], APART
    for sentence in said:
        places.append((at, at + len(sentence) / RATE))
        at = places[-1][1] + APART
    whole = scaled((held_out_noise if kind in HELD_OUT_NOISES else noise)(kind, round(at * RATE)), -25 - ratio)
    for (start, _), sentence in zip(places, said, strict=True):
        first = round(start * RATE)
        whole[first : first + len(sentence)] += sentence
    return np.clip(whole, -1, 1), places


def webrtc(mode: int) -> Callable[[], Ears] | None:
    """Ears that ask WebRTC's detector."""
    try:
        import webrtcvad
    except ImportError:
        return None

    class Asked(Ears):
        def __init__(self) -> None:
            super().__init__()
            self._vad = webrtcvad.Vad(mode)
            self._speaks = False
            detector: Any = self._detector
            detector.begins = lambda _level, _least=0.0: self._speaks
            detector.goes_on = lambda _level: self._speaks
            hear = detector.hear

            def heard(frame: Samples) -> float:
                self._speaks = self._vad.is_speech((frame * 32767).astype("<i2").tobytes(), RATE)
                level: float = hear(frame)
                detector.floor = -200.0  # nothing is taken back
                return level

            detector.hear = heard

    return Asked


def measured(
    make: Callable[[], Ears], whole: Samples, places: list[tuple[float, float]]
) -> tuple[int, int, float, float]:
    """Sentences found as one utterance, those that lost their beginning or end, other utterances a minute, and median
    seconds until a beginning is noticed."""
    ears, found, noticed = make(), [], []
    for start in range(0, len(whole) // FRAME * FRAME, FRAME):
        before = ears.is_hearing
        utterance = ears.hear(whole[start : start + FRAME])
        if ears.is_hearing and not before:
            noticed.append(ears.seconds)
        if utterance is not None:
            found.append(utterance)
    right = cut = 0
    lags = []
    for start, end in places:
        over = [each for each in found if each.start < end and each.end > start]
        if (
            len(over) == 1
            and over[0].start <= start + 0.1
            and end - 0.2 <= over[0].end
            and over[0].seconds < end - start + 1
        ):
            right += 1
        cut += bool(over) and (over[0].start > start + 0.1 or over[-1].end < end - 0.2)
        lags += [at - start for at in noticed if start < at < end][:1]
    lag = float(np.median(lags)) if lags else float("nan")
    false = sum(all(each.start >= end or each.end <= start for start, end in places) for each in found)
    return right, cut, false / (len(whole) / RATE / 60), lag


def main() -> None:
    held_out = "--held-out" in sys.argv
    said = sentences(held_out)
    detectors: dict[str, Callable[[], Ears] | None] = {"energy": Ears, "webrtc 2": webrtc(2), "webrtc 3": webrtc(3)}
    print(f"{len(said)} sentences; found as one utterance, cut off, false utterances a minute, noticed after")
    for kind in HELD_OUT_NOISES if held_out else NOISES:
        for ratio in (30, 20, 10, 5)[: 1 if SHORT else None]:
            whole, places = mixed(said, kind, ratio)
            row = f"{kind:<7} {ratio:>3} dB"
            for name, make in detectors.items():
                if make is not None:
                    right, cut, false, lag = measured(make, whole, places)
                    row += f" | {name}: {right:>2}  {cut:>2}  {false:>4.1f}  {lag * 1000:>4.0f} ms"
            print(row)


if __name__ == "__main__":
    main()
