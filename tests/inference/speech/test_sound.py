"""Frames become samples: exactly as many as promised, alike in both implementations and however a stream is cut."""

from __future__ import annotations

import resource
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_core.errors import LeapGenerationError
from leap_core.inference.speech.frames import Detokenizer
from leap_core.inference.speech.speaker import ReplySound, Speaker
from leap_core.inference.speech.vocoder import COLUMNS_A_FRAME, Vocoder
from leap_core.inference.speech.waveform import Waveform, hann_window
from tests.support.lengths import usually
from tests.support.numpy_layers import NumpySpeaker
from tests.support.random_vocoder import TINY, write_random_vocoder

from .conftest import WIDE, opened

Frames = list[tuple[int, ...]]


def frames(count: int, codebooks: int = TINY.codebooks, codes: int = TINY.codes, seed: int = 0) -> Frames:
    rows = np.random.default_rng(seed).integers(0, codes - 1, (count, codebooks))
    return [tuple(map(int, row)) for row in rows]


def sound(detokenizer: Detokenizer, pieces: list[Frames]) -> NDArray[np.float32]:
    return np.concatenate([*map(detokenizer.feed, pieces), detokenizer.end()])


def difference(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    """The largest difference as a share of the largest sample."""
    return float(np.abs(left - right).max() / np.abs(right).max())


def test_llama_cpp_and_numpy_give_the_same_samples(speaker: Speaker, oracle: Speaker) -> None:
    stream = frames(60)
    reference = sound(oracle.borrow_detokenizer(), [stream])
    detokenizer = speaker.borrow_detokenizer()
    assert len(reference) == 60 * COLUMNS_A_FRAME * detokenizer._waveform.hop
    assert difference(sound(detokenizer, [stream]), reference) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("layout", usually(["split"], ["merged", "split"]))
@pytest.mark.parametrize(("quantization", "most"), [("f32", 1e-5), ("f16", 0.02)])
def test_the_dimensions_of_the_real_model_work(tmp_path: Path, layout: str, quantization: str, most: float) -> None:
    other = tmp_path / "tokenizer-Wide.gguf" if layout == "split" else None
    path = write_random_vocoder(tmp_path / "vocoder-Wide.gguf", WIDE, quantization, detokenizer_path=other)
    vocoder = opened(path, WIDE)
    fast = Speaker(vocoder, tmp_path / "cache")
    stream = frames(20, WIDE.codebooks, WIDE.codes)
    reference = sound(NumpySpeaker(vocoder).borrow_detokenizer(), [stream])
    assert difference(sound(fast.borrow_detokenizer(), [stream]), reference) < most
    fast.close()


@pytest.mark.slow
@pytest.mark.parametrize("fast", [True, False])
def test_streamed_equals_whole(speaker: Speaker, oracle: Speaker, fast: bool) -> None:
    stream = frames(50)
    detokenizer = (speaker if fast else oracle).borrow_detokenizer()
    whole = sound(detokenizer, [stream])
    cuts = [0, 1, 2, 5, 6, 20, 21, 50]
    for pieces in ([[frame] for frame in stream], [stream[a:b] for a, b in pairwise(cuts)]):
        assert difference(sound(detokenizer, pieces), whole) < 2e-6


def test_each_frame_gives_samples_at_once(speaker: Speaker) -> None:
    detokenizer = speaker.borrow_detokenizer()
    hop = TINY.n_fft // 4
    lengths = [len(detokenizer.feed([frame])) for frame in frames(3)]
    assert lengths == [6 * hop - (TINY.n_fft - hop) // 2, 6 * hop, 6 * hop]
    assert len(detokenizer.end()) == (TINY.n_fft - hop) // 2
    assert len(detokenizer.end()) == 0, "a stream without a frame has no sound"


def test_a_returned_detokenizer_is_reset(speaker: Speaker) -> None:
    stream = frames(12)
    first = speaker.borrow_detokenizer()
    whole = sound(first, [stream])
    first.feed(stream[:7])
    speaker.give_back(first)
    again = speaker.borrow_detokenizer()
    assert again is first
    np.testing.assert_array_equal(sound(again, [stream]), whole)


def test_two_streams_at_once_do_not_mix(speaker: Speaker) -> None:
    left, right = frames(10, seed=1), frames(10, seed=2)
    alone = [sound(speaker.borrow_detokenizer(), [stream]) for stream in (left, right)]
    first, second = speaker.borrow_detokenizer(), speaker.borrow_detokenizer()
    pieces = [(first.feed([a]), second.feed([b])) for a, b in zip(left, right, strict=True)]
    for n, end in enumerate((first.end(), second.end())):
        together = np.concatenate([*(piece[n] for piece in pieces), end])
        assert difference(together, alone[n]) < 2e-6


@pytest.mark.slow
def test_ten_minutes_do_not_fail_or_grow(speaker: Speaker) -> None:
    """7,500 frames are 45,000 columns; a memory that kept them would fail or grow."""
    stream = frames(7500)
    detokenizer = speaker.borrow_detokenizer()
    before = None
    total = 0
    for start in range(0, len(stream), 12):
        samples = detokenizer.feed(stream[start : start + 12])
        total += len(samples)
        assert np.isfinite(samples).all()
        if start == 1200:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert total + len(detokenizer.end()) == len(stream) * COLUMNS_A_FRAME * detokenizer._waveform.hop
    assert before is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024  # KiB


@pytest.mark.slow
def test_distant_frames_do_not_change_samples(speaker: Speaker, oracle: Speaker) -> None:
    """The layers' reach is bounded, so a stream sounds the same after a long and a short past."""
    past, stream = frames(400, seed=3), frames(60, seed=4)
    long, short = speaker.borrow_detokenizer(), oracle.borrow_detokenizer()
    for start in range(0, len(past), 10):
        long.feed(past[start : start + 10])
    short.feed(past[-20:])
    assert difference(long.feed(stream)[-4000:], short.feed(stream)[-4000:]) < 1e-4


def test_audio_of_an_unloaded_model_is_an_error(tiny: Vocoder, tmp_path: Path) -> None:
    speaker = Speaker(tiny, tmp_path)
    detokenizer = speaker.borrow_detokenizer()
    detokenizer.feed(frames(2))
    speaker.close()
    speaker.close()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        detokenizer.feed(frames(2))
    speaker.give_back(detokenizer)


def test_the_waveform_is_the_inverse_transform_of_its_columns() -> None:
    n_fft, hop = 64, 16
    window = hann_window(n_fft)
    random = np.random.default_rng(1)
    columns = random.standard_normal((9, n_fft + 2)).astype(np.float32)
    bins = n_fft // 2 + 1
    total, weight = np.zeros(n_fft + 8 * hop), np.zeros(n_fft + 8 * hop)
    for n, column in enumerate(columns):
        spectrum = np.exp(column[:bins].astype(np.float64)) * np.exp(1j * column[bins:].astype(np.float64))
        total[n * hop : n * hop + n_fft] += np.fft.irfft(spectrum) * window
        weight[n * hop : n * hop + n_fft] += window.astype(np.float64) ** 2
    padding = (n_fft - hop) // 2
    expected = (total / np.maximum(weight, 1e-11))[padding:-padding]
    waveform = Waveform(window)
    samples = np.concatenate([waveform.feed(columns[:4]), waveform.feed(columns[4:]), waveform.end()])
    assert len(samples) == 9 * hop
    np.testing.assert_allclose(samples, expected, rtol=1e-5, atol=1e-6)


def test_extreme_weights_give_finite_samples() -> None:
    waveform = Waveform(hann_window(64))
    samples = waveform.feed(np.full((4, 66), 1e4, np.float32))
    assert np.isfinite(samples).all()


def heard(sound: ReplySound, frames_: Frames, threads: int) -> list[NDArray[np.float32]]:
    pieces = []
    for n, frame in enumerate(frames_):
        sound.add(frame, last=n + 1 == len(frames_))
        if threads > 1:
            sound.make(threads)
        pieces += sound.take(frame)
    return [*pieces, sound.finish()]


@pytest.mark.slow
def test_a_reply_has_the_same_samples_from_any_decoder_in_any_pieces(speaker: Speaker) -> None:
    stream = frames(20)
    expected = sound(speaker.borrow_detokenizer(), [stream])
    by_reader, between_steps = (heard(ReplySound(speaker), stream, threads) for threads in (1, 2))
    assert [len(piece) for piece in by_reader[1:-1]] == [speaker.frame_samples] * 19
    np.testing.assert_array_equal(np.concatenate(by_reader), np.concatenate(between_steps))
    assert difference(np.concatenate(by_reader), expected) < 1e-5


def test_first_frames_are_decoded_at_once_and_later_ones_in_groups(speaker: Speaker) -> None:
    reply = ReplySound(speaker)
    sizes = []
    for frame in frames(80):
        reply.add(frame, last=False)
        sizes.append(len(reply.take(frame)))
    assert sizes[:9] == [1, 1, 1, 1, 1, 1, 1, 1, 0] and max(sizes) == 5
    made, pace = 0, 0.88  # seconds computed for a second of sound
    for n, size in enumerate(sizes, 1):
        if size:
            assert (n - 1) * pace <= made or not made, f"the loudspeaker waits for frame {made}"
            made += size


def test_the_end_of_audio_flushes_all_frames(speaker: Speaker) -> None:
    reply = ReplySound(speaker)
    end = (speaker.end_code,) * speaker.codebooks
    for n, frame in enumerate(stream := frames(20)):
        reply.add(frame, last=n == 19)
        pieces = reply.take(frame)
    assert pieces, "the last frame before a text"
    reply.add(end, last=True)
    assert sum(map(len, reply.take(end))) > 0, "what the overlap held back"
    again = [piece for frame in stream[:3] for piece in (reply.add(frame, last=False), *reply.take(frame))[1:]]
    assert len(again) == 3, "a new sound begins at once"
    assert sum(map(len, again)) + len(reply.finish()) == 3 * speaker.frame_samples


@pytest.mark.slow
def test_frames_ahead_of_a_stopped_reader_are_dropped(speaker: Speaker) -> None:
    reply = ReplySound(speaker)
    stream = frames(12)
    for frame in stream:
        reply.add(frame, last=False)
        reply.make(2)
    pieces = [piece for frame in stream[:5] for piece in reply.take(frame)]
    assert sum(map(len, pieces)) + len(reply.finish()) == 5 * speaker.frame_samples
    reply.close()


def test_a_cancelled_reply_resets_its_detokenizer(speaker: Speaker) -> None:
    first = ReplySound(speaker)
    first.add(frames(1)[0], last=True)
    first.make(1)
    first.close()
    again, alone = heard(ReplySound(speaker), frames(6), 1), sound(speaker.borrow_detokenizer(), [frames(6)])
    assert difference(np.concatenate(again), alone) < 1e-5
