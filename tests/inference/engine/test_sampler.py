"""The numpy sampler against llama.cpp's own, and its promises about seeds and penalties."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from leap_core.conversation.options import GenerationOptions
from leap_core.inference.engine.batch_sampling import BatchSampler
from leap_core.inference.engine.sampler import LikeliestSearch, Sampler, typical
from tests.support.whole_llama import whole_library

VOCABULARY = 4096


def options(**given: object) -> GenerationOptions:
    neutral = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "top_k": 0, "repetition_penalty": 1.0}
    return GenerationOptions(**(neutral | given))  # type: ignore[arg-type]


def llama_distribution(
    logits: np.ndarray, asked: GenerationOptions, context: list[int]
) -> tuple[list[int], list[float]]:
    """What llama.cpp's samplers leave of ``logits``: token ids, likeliest first, and their probabilities."""
    lib = whole_library()
    window = 64 if asked.repeat_last_n is None else asked.repeat_last_n
    stages = [
        lib.llama_sampler_init_penalties(
            len(logits),
            len(context) if window < 0 else window,
            asked.repetition_penalty,
            asked.frequency_penalty or 0.0,
            asked.presence_penalty or 0.0,
        ),
        lib.llama_sampler_init_top_k(asked.top_k),
        lib.llama_sampler_init_typical(1.0 if asked.typical_p is None else asked.typical_p, 1),
        lib.llama_sampler_init_top_p(asked.top_p, 1),
        lib.llama_sampler_init_min_p(asked.min_p, 1),
        lib.llama_sampler_init_xtc(asked.xtc_probability or 0.0, asked.xtc_threshold or 0.1, 0, 1),
        lib.llama_sampler_init_temp(asked.temperature),
    ]
    data = (lib.llama_token_data * len(logits))()
    for token, logit in enumerate(logits):
        data[token].id, data[token].logit = token, float(logit)
    candidates = lib.llama_token_data_array(data, len(logits), -1, False)
    for stage in stages:
        for token in context:
            lib.llama_sampler_accept(stage, token)
        lib.llama_sampler_apply(stage, ctypes.byref(candidates))
        lib.llama_sampler_free(stage)
    left = sorted(((candidates.data[n].logit, candidates.data[n].id) for n in range(candidates.size)), reverse=True)
    left = [(logit, token) for logit, token in left if logit > -math.inf]
    weights = np.exp(np.array([logit for logit, _ in left]) - left[0][0])
    return [token for _, token in left], list(weights / weights.sum())


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"top_k": 1},
        {"top_k": 50},
        {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
        {"top_p": 0.5},
        {"top_p": 0.05},
        {"min_p": 0.15, "temperature": 0.3},
        {"min_p": 0.5, "top_p": 0.9},
        {"temperature": 2.5, "top_k": 300},
        {"repetition_penalty": 1.3, "min_p": 0.02},
        {"frequency_penalty": 0.7, "presence_penalty": 0.4, "top_k": 100},
        {"repetition_penalty": 1.1, "frequency_penalty": -0.5, "repeat_last_n": 7, "top_k": 64},
        {"repetition_penalty": 1.8, "repeat_last_n": -1, "min_p": 0.01},
        {"typical_p": 0.7, "top_k": 60},
        {"typical_p": 0.3, "top_k": 50, "top_p": 0.9},
        {"typical_p": 0.95, "top_k": 200, "min_p": 0.05, "temperature": 0.7},
        {"xtc_probability": 1.0, "top_k": 40, "temperature": 0.8},
        {"xtc_probability": 1.0, "xtc_threshold": 0.02, "min_p": 0.01},
        {"xtc_probability": 1.0, "xtc_threshold": 0.05, "typical_p": 0.8, "top_k": 80},
        {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    ],
    ids=str,
)
def test_candidates_and_probabilities_equal_llama_cpps(given: dict[str, object]) -> None:
    rng = np.random.default_rng(5)
    asked = options(**given)
    for spread in (1.0, 3.0, 8.0):
        logits = rng.normal(0.0, spread, VOCABULARY).astype(np.float32)
        context = [int(token) for token in np.argsort(-logits)[rng.integers(0, 40, 90)]]
        tokens, probabilities = llama_distribution(logits, asked, context)
        sampler = Sampler(asked, context)
        row = logits.copy()
        if asked.repetition_penalty != 1.0 or asked.frequency_penalty or asked.presence_penalty:
            sampler._apply_penalties(row)
        found, weights = sampler._weighted(row, float(row.max()))
        weights = weights / weights.sum()
        kept = weights > 1e-12
        assert list(found[kept])[:200] == tokens[: len(found[kept])][:200]
        np.testing.assert_allclose(weights[kept][:200], probabilities[: int(kept.sum())][:200], rtol=2e-4)
        assert abs(int(kept.sum()) - sum(p > 1e-12 for p in probabilities)) <= 1


def test_partial_search_equals_sorting_for_all_distributions_and_masks() -> None:
    """One search goes on from what it learned of the last logits, so all go through the same one."""
    rng = np.random.default_rng(3)
    search, shares = LikeliestSearch(), LikeliestSearch()
    for spread in (3.0, 0.01, 12.0, 0.0, 3.0):
        for allowed in (VOCABULARY, 7, VOCABULARY):
            logits = rng.normal(0.0, spread, VOCABULARY).astype(np.float32)
            logits[rng.permutation(VOCABULARY)[allowed:]] = -np.inf
            order = np.argsort(-logits, kind="stable")[: np.isfinite(logits).sum()]
            best = float(logits.max())
            tokens, below = search.likeliest(logits, best, 40)
            assert tokens.tolist() == order[:40].tolist()
            np.testing.assert_allclose(below, best - logits[tokens].astype(np.float64))
            weights = np.exp(logits[order].astype(np.float64) - best)
            count = int(np.searchsorted(np.cumsum(weights), 0.6 * weights.sum())) + 1
            found, _ = shares.heaviest(logits, best, 0.6)
            assert abs(len(found) - count) <= 1 and found.tolist() == order[: len(found)].tolist()


def test_typical_p_considers_all_tokens_without_top_k() -> None:
    logits = np.random.default_rng(6).normal(0, 3, VOCABULARY).astype(np.float32)
    found = [Sampler(options(typical_p=0.6, top_k=k))._weighted(logits, float(logits.max())) for k in (0, VOCABULARY)]
    assert found[0][0].tolist() == found[1][0].tolist() and 0 < len(found[0][0]) < VOCABULARY
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_xtc_happens_as_often_as_it_says_and_a_seed_repeats_it() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    asked = options(xtc_probability=0.4, rng_seed=3)

    def draws() -> list[int]:
        sampler = Sampler(asked)
        return [sampler.sample(logits.copy()) for _ in range(4000)]

    drawn = draws()
    # where it happens, the third token is the least likely one above 0.1: 0.4 * 0.75 + 0.6 * 0.15
    assert abs(drawn.count(2) / 4000 - 0.39) < 0.04
    assert drawn == draws()


@pytest.mark.parametrize("given", [{"typical_p": 0.5}, {"xtc_probability": 1.0}], ids=str)
def test_options_that_sample_alone_are_not_batched(given: dict[str, object]) -> None:
    sampler = Sampler(options(top_k=20, **given))
    assert sampler.needs_all_logits and not BatchSampler(VOCABULARY).accepts(sampler)
    assert BatchSampler(VOCABULARY).accepts(Sampler(options(top_k=20)))


def test_greedy_takes_the_likeliest() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[77] = 1.0
    assert Sampler(options(temperature=0.0)).sample(logits) == 77


def test_equal_seeds_draw_equal_tokens_and_others_do_not() -> None:
    logits = np.random.default_rng(1).normal(0, 1, VOCABULARY).astype(np.float32)

    def draw(seed: int) -> list[int]:
        sampler = Sampler(options(rng_seed=seed))
        return [sampler.sample(logits.copy()) for _ in range(20)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_draws_follow_the_probabilities() -> None:
    logits = np.full(VOCABULARY, -np.inf, np.float32)
    logits[[5, 9]] = [math.log(0.75), math.log(0.25)]
    sampler = Sampler(options(rng_seed=11))
    drawn = [sampler.sample(logits.copy()) for _ in range(2000)]
    assert set(drawn) == {5, 9}
    assert 0.70 < drawn.count(5) / len(drawn) < 0.80


def test_the_penalty_window_slides() -> None:
    sampler = Sampler(options(repetition_penalty=2.0, repeat_last_n=2), [1, 2])
    sampler.accept(3)
    row = np.full(8, 4.0, np.float32)
    sampler._apply_penalties(row)
    assert row.tolist() == [4.0, 4.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]


def test_bias_can_force_and_forbid_a_token() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    assert Sampler(options(temperature=0.0, logit_bias={42: 5.0})).sample(logits.copy()) == 42
    never = Sampler(options(rng_seed=1, logit_bias={token: -math.inf for token in range(1, VOCABULARY)}))
    assert never.sample(logits.copy()) == 0


def test_all_candidates_masked_still_gives_a_token() -> None:
    assert Sampler(options(rng_seed=1)).sample(np.full(16, -np.inf, np.float32)) in range(16)


@pytest.mark.parametrize(
    "extreme",
    [
        *({"repetition_penalty": penalty} for penalty in (1e-300, 1e-40, 1e30, 1e300)),
        *({"logit_bias": {1: bias}} for bias in (1e39, -1e39)),
        *({"temperature": temperature} for temperature in (1e-320, 1e300)),
    ],
    ids=str,
)
def test_an_extreme_option_is_not_an_error(extreme: dict[str, object]) -> None:
    logits = np.random.default_rng(2).normal(0, 1, VOCABULARY).astype(np.float32)
    sampler = Sampler(options(rng_seed=1, **extreme), range(30))
    assert 0 <= sampler.sample(logits) < VOCABULARY


def test_typical_tokens_have_more_than_the_requested_share():
    """As in llama.cpp: where they have just the share, one more is kept."""
    tokens, _ = typical(np.arange(4), np.zeros(4), 0.5)
    assert tokens.tolist() == [0, 1, 2]
