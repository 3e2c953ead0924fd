"""Hidden states become codes: llama.cpp and the numpy reference choose the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_core.inference.speech.frames import CodeSampler
from leap_core.inference.speech.speaker import Speaker
from leap_core.inference.speech.vocoder import Vocoder
from leap_core.testing.miniature_speech import VOCODER_FILE
from tests.support.lengths import lengths, usually
from tests.support.numpy_layers import NumpySpeaker
from tests.support.random_vocoder import TINY, write_random_vocoder

from .conftest import WIDE, opened


def hidden_states(count: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, width), np.float32)


def one_by_one(speaker: Speaker, hidden: NDArray[np.float32]) -> list[tuple[int, ...]]:
    return [speaker.frames(row[None], [CodeSampler()])[0] for row in hidden]


LEAST_EQUAL = [("f32", 1.0), ("f16", 0.98), ("q8_0", 0.6)]


@pytest.mark.slow
def test_llama_cpp_chooses_every_code_as_numpy_does(speaker: Speaker, oracle: Speaker) -> None:
    hidden = hidden_states(60, TINY.hidden)
    assert one_by_one(speaker, hidden) == one_by_one(oracle, hidden)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantization", "least"), usually([("q8_0", 0.6)], [("f32", 1.0), ("f16", 0.98), ("q8_0", 0.6)])
)
@lengths(20, 50, "frames")
def test_the_dimensions_of_the_real_model_work(tmp_path: Path, quantization: str, least: float, frames: int) -> None:
    vocoder = opened(write_random_vocoder(tmp_path / "vocoder-Wide.gguf", WIDE, quantization), WIDE)
    fast = Speaker(vocoder, tmp_path)
    hidden = hidden_states(frames, WIDE.hidden)
    codes = one_by_one(fast, hidden)
    reference = NumpySpeaker(vocoder).frames(hidden, [CodeSampler() for _ in hidden])
    equal = sum(a == b for a, b in zip(codes, reference, strict=True))
    fast.close()
    assert equal >= least * len(hidden)
    assert len(set(codes)) > 0.9 * len(hidden), "random hidden states lead to frames of their own"


@pytest.mark.slow
def test_heads_in_the_types_of_the_file_choose_what_float32_chooses(
    miniature: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_random_vocoder(tmp_path / "vocoder-Wide.gguf", WIDE, "q8_0")
    for vocoder, least in ((Vocoder(miniature.with_name(VOCODER_FILE)), 30), (opened(path, WIDE), 24)):
        hidden = hidden_states(30, vocoder.depthformer.hidden)
        fast = one_by_one(Speaker(vocoder, tmp_path), hidden)
        with monkeypatch.context() as patch:
            patch.setattr("leap_core.inference.speech.frames.MATRIX_TYPES", set())
            exact = one_by_one(Speaker(vocoder, tmp_path), hidden)
        assert sum(a == b for a, b in zip(fast, exact, strict=True)) >= least


def test_concurrent_sequences_choose_the_same_codes_as_alone(speaker: Speaker, oracle: Speaker) -> None:
    hidden = hidden_states(20, TINY.hidden)  # more than one decode takes
    together = speaker.frames(hidden, [CodeSampler() for _ in hidden])
    assert together == one_by_one(speaker, hidden)
    assert together == oracle.frames(hidden, [CodeSampler() for _ in hidden])


def test_a_frame_is_independent_of_the_frame_before(speaker: Speaker) -> None:
    first, second = hidden_states(2, TINY.hidden)
    alone = one_by_one(speaker, second[None])
    assert one_by_one(speaker, np.stack([first, second, second])) == [one_by_one(speaker, first[None])[0], *alone * 2]


@pytest.mark.slow
def test_the_frame_that_ends_a_sound_is_all_end_codes_and_no_other_frame_has_one(oracle: Speaker) -> None:
    hidden = hidden_states(400, TINY.hidden)
    frames = oracle.frames(hidden, [CodeSampler(1.0, 0, seed) for seed in range(len(hidden))])
    ends = [frame for frame in frames if frame[0] == oracle.end_code]
    assert ends and set(ends) == {(oracle.end_code,) * oracle.codebooks}
    assert all(oracle.end_code not in frame for frame in frames if frame not in ends)


def test_the_embedding_is_the_sum_over_the_codebooks(speaker: Speaker, tiny_path: Path) -> None:
    table = opened(tiny_path).file.float32("audio_embedding.embedding.weight").reshape(TINY.codebooks, TINY.codes, -1)
    frame = (3, 0, 31, 7)
    expected = sum(table[codebook, code] for codebook, code in enumerate(frame))
    np.testing.assert_allclose(speaker.embedding(frame), expected, rtol=1e-6)


def test_equal_seeds_draw_equal_codes_and_others_others(speaker: Speaker) -> None:
    hidden = hidden_states(30, TINY.hidden)

    def codes(seed: int) -> list[tuple[int, ...]]:
        sampler = CodeSampler(1.0, 4, seed)
        return [speaker.frames(row[None], [sampler])[0] for row in hidden]

    assert codes(1) == codes(1) != codes(2)


def test_sampling_keeps_the_best_and_their_ties_and_follows_their_probabilities() -> None:
    logits = np.array([0.0, 3.0, 2.0, 2.0, -1.0], np.float32)
    sampler = CodeSampler(1.0, 2, 3)
    drawn = [sampler.sample(logits) for _ in range(4000)]
    assert set(drawn) == {1, 2, 3}
    weights = np.exp(np.array([3.0, 2.0, 2.0]))
    shares = np.array([drawn.count(code) for code in (1, 2, 3)]) / len(drawn)
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.03)
    for greedy in (CodeSampler(0.0, 0, 1), CodeSampler(1.0, 1, 1), CodeSampler(-1.0, 9, 1)):
        assert [greedy.sample(logits) for _ in range(20)] == [1] * 20
