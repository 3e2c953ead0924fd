"""Candidates picked within llama.cpp's graph give the texts that whole rows of logits give."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from leap_core import ChatMessage, GenerationOptions, ModelLoadingOptions
from leap_core.conversation.responses import Complete
from leap_core.inference.engine.batch_sampling import BatchSampler
from leap_core.inference.llama import candidates
from leap_core.inference.llama.candidates import DeviceCandidates
from leap_core.inference.llama.library import library
from leap_core.inference.runner import InProcessRunner
from leap_core.models.builtin import model_path
from tests.support.random_models import TINY_LFM2, write_random_model

from .test_batch_sampling import sampler

CANDIDATES = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.02},
    {"temperature": 1.5, "top_k": 5, "top_p": 1.0, "min_p": 0.0},
)
WHOLE_ROWS = (
    {"temperature": 0.9, "top_k": 0},
    {"temperature": 0.9, "top_k": 100},
    {"temperature": 0.7, "logprobs": True},
    {"temperature": 0.7, "repetition_penalty": 1.3},
    {"temperature": 0.7, "logit_bias": {5: -3.0}},
    {"temperature": 0.7, "json_schema_constraint": '{"enum": ["one", "two"]}', "inject_schema_into_prompt": False},
)
MIXED = (*CANDIDATES, *WHOLE_ROWS)
needs_samplers = pytest.mark.skipif(
    not all(map(library().has, candidates.FUNCTIONS)), reason="this llama.cpp picks no candidates"
)


def answers(path: Path, kinds: tuple[dict[str, object], ...], slots: int) -> list[str]:
    """What each kind of options answers, all at once, twice one after the other in the same slots."""
    found: dict[int, str] = {}
    loading = ModelLoadingOptions(context_size=256, slots=slots, cpu_threads=1)
    with InProcessRunner(path, "m", loading) as runner:

        def ask(number: int) -> None:
            kind = {"repetition_penalty": 1.0} | kinds[number % len(kinds)]
            options = GenerationOptions(rng_seed=number, max_tokens=12, repetition_detection=False, **kind)
            end = list(runner.start([ChatMessage("user", f"Hi {number}")], (), options))[-1]
            assert isinstance(end, Complete)
            found[number] = end.full_message.text

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(2 * len(kinds))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    return [found[number] for number in range(2 * len(kinds))]


@pytest.mark.slow
@needs_samplers
@pytest.mark.parametrize("kinds", [CANDIDATES, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("architecture", ["dense", "hybrid"])
def test_texts_equal_those_of_full_logits(
    architecture: str, kinds: tuple[dict[str, object], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model_path()
    if architecture == "hybrid":
        path = Path(write_random_model(tmp_path / "m.gguf", TINY_LFM2, "q8_0"))
    whole = answers(path, kinds, slots=4)
    monkeypatch.setattr(candidates, "picks_on_device", lambda _model: True)
    read, rows = DeviceCandidates.read, []

    def counted(self: DeviceCandidates, indices):
        rows.append(len(indices))
        return read(self, indices)

    monkeypatch.setattr(DeviceCandidates, "read", counted)
    assert answers(path, kinds, slots=4) == whole
    assert rows and max(rows) > 1


def test_candidates_in_any_order_give_what_the_whole_row_gives() -> None:
    for seed in range(30):
        draw = np.random.default_rng(seed)
        logits = draw.normal(0, 2, (6, 512)).astype(np.float32)
        ids = np.argpartition(logits, 512 - 64, axis=1)[:, 512 - 64 :].astype(np.int32)
        seeds = list(range(seed, seed + 6))
        together = [sampler(each) for each in seeds]
        picked = BatchSampler(512).sample_candidates(ids, np.take_along_axis(logits, ids, axis=1), together)
        alone = [sampler(each).sample(row.copy()) for each, row in zip(seeds, logits, strict=True)]
        assert picked == alone


def test_nan_logits_give_no_token() -> None:
    ids = np.arange(64, dtype=np.int32)[None] + 7
    assert BatchSampler(512).sample_candidates(ids, np.full((1, 64), np.nan, np.float32), [sampler(1)]) == [None]


class Refusing:
    """llama.cpp's library where the device runs no chain, or so many."""

    def __init__(self, taken: int = 0) -> None:
        self.calls: list[str] = []
        self._taken = taken

    def llama_sampler_chain_init(self, _params: object) -> int:
        self.calls.append("llama_sampler_chain_init")
        return 1

    def llama_set_sampler(self, _context: int, _sequence: int, chain: object) -> bool:
        self.calls.append("llama_set_sampler")
        return chain is None or self.calls.count("llama_set_sampler") <= self._taken

    def has(self, _name: str) -> bool:
        return True

    def __getattr__(self, name: str):
        return lambda *_: self.calls.append(name)


def test_a_device_that_refuses_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        n_tokens, on_gpu = 512, True

    lib = Refusing()
    picking = DeviceCandidates(lib, 1, Model())
    picking.pick(0, True)
    picking.pick(1, True)
    assert lib.calls.count("llama_set_sampler") == 1 and not picking
    picking.close()
    assert lib.calls.count("llama_sampler_free") == 1


def test_an_accepted_chain_stays_when_another_is_refused() -> None:
    class Model:
        n_tokens, on_gpu = 512, True

    lib = Refusing(taken=1)
    picking = DeviceCandidates(lib, 1, Model())
    picking.pick(0, True)
    picking.pick(1, True)
    picking.pick(0, True)
    assert 0 in picking and 1 not in picking
    assert lib.calls.count("llama_sampler_chain_init") == 2 and lib.calls.count("llama_sampler_free") == 1
    picking.pick(0, False)
    assert not picking and lib.calls.count("llama_sampler_free") == 2
