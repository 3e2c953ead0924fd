"""Rows that are sampled together get the tokens that each would get alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from leap_core.conversation.options import GenerationOptions
from leap_core.inference.engine.batch_sampling import BatchSampler
from leap_core.inference.engine.sampler import Sampler

VOCABULARY = 4096


def sampler(seed: int, **given: object) -> Sampler:
    draw = random.Random(seed)
    options = {
        "temperature": draw.choice([0.0, 0.3, 0.8, 1.5, 1e-6, 5e-324]),
        "top_k": draw.choice([1, 2, 10, 30]),
        "top_p": draw.choice([1.0, 0.95, 0.5, 0.1, 0.0]),
        "min_p": draw.choice([0.0, 0.05, 0.5, 1.0]),
        "repetition_penalty": 1.0,
    } | given
    return Sampler(GenerationOptions(rng_seed=seed, **options))


def same_as_alone(rows: np.ndarray, seeds: list[int], **given: object) -> int:
    """Compares several steps; returns how many rows had to be sampled alone."""
    together = [sampler(seed, **given) for seed in seeds]
    alone = [sampler(seed, **given) for seed in seeds]
    batch = BatchSampler(rows.shape[1])
    assert all(map(batch.accepts, together))
    left = 0
    for _ in range(3):
        tokens = batch.sample(rows, together)
        left += tokens.count(None)
        pairs = zip(tokens, together, rows, strict=True)
        found = [each.sample(row.copy()) if token is None else token for token, each, row in pairs]
        assert found == [each.sample(row.copy()) for each, row in zip(alone, rows, strict=True)]
        rows = np.roll(rows, 17, axis=1)
    return left


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
def test_any_mix_of_options_samples_the_same_tokens(spread: float) -> None:
    for seed in range(40):
        rows = np.random.default_rng(seed).normal(0, spread, (9, VOCABULARY)).astype(np.float32)
        assert same_as_alone(rows, list(range(seed * 9, seed * 9 + 9))) == 0


def test_equal_logits_are_taken_in_the_order_of_tokens() -> None:
    for seed in range(20):
        rows = np.random.default_rng(seed).normal(0, 2, (5, VOCABULARY)).astype(np.float32).round(1)
        same_as_alone(rows, list(range(seed, seed + 5)))
    same_as_alone(np.zeros((4, VOCABULARY), np.float32), [1, 2, 3, 4])
    zeros = np.zeros((4, VOCABULARY), np.float32)
    zeros[:, 5::2] = -0.0
    same_as_alone(zeros, [1, 2, 3, 4])


def test_greedy_rows_sample_the_same_tokens() -> None:
    rows = np.random.default_rng(1).normal(0, 2, (6, VOCABULARY)).astype(np.float32).round(0)
    assert same_as_alone(rows, list(range(6)), temperature=0.0) == 0


def test_rows_with_nan_or_few_candidates_are_sampled_alone() -> None:
    rows = np.random.default_rng(1).normal(0, 2, (6, VOCABULARY)).astype(np.float32)
    rows[0] = np.inf
    rows[1, 7] = np.inf
    rows[2] = -np.inf
    rows[2, [3, 4]] = 1.0, 2.0
    rows[3] = -np.inf
    assert same_as_alone(rows, list(range(6)), temperature=0.8, top_k=30) == 4 * 3


def test_options_that_are_sampled_alone() -> None:
    batch = BatchSampler(VOCABULARY)
    assert not batch.accepts(sampler(1, temperature=0.8, top_k=0))
    assert not batch.accepts(sampler(1, temperature=0.8, top_k=VOCABULARY))
    assert not batch.accepts(sampler(1, temperature=0.8, top_k=10, logprobs=True))
    assert batch.accepts(sampler(1, temperature=0.0, top_k=0))
    assert not BatchSampler(4099).accepts(sampler(1, temperature=0.8, top_k=10)), "a vocabulary without blocks"
    assert BatchSampler(4099).accepts(sampler(1, temperature=0.0))
