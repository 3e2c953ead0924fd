"""A model that computes NaN has no answer: each request ends with an error that says so, and others go on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from leap_core.conversation.options import CacheOptions
from leap_core.errors import LeapGenerationError
from leap_core.inference.engine.batch_sampling import FEWEST_ROWS, BatchSampler
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.snapshots import SnapshotStore
from leap_core.inference.llama.context import AttentionSettings, LlamaContext
from leap_core.inference.llama.model import LlamaModel
from tests.support.random_models import TINY_LLAMA, write_random_model

from .conftest import finish, request
from .test_batch_sampling import sampler

KINDS = [
    {"temperature": 0.0},
    {"temperature": 0.9, "top_k": 40},
    {"temperature": 0.9, "top_p": 0.9},
    {"temperature": 0.9, "min_p": 0.1},
    {"temperature": 0.9},
    {"temperature": 0.0, "repetition_penalty": 1.3, "logprobs": True},
]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose last weights are NaN."""
    path = write_random_model(tmp_path_factory.mktemp("nan") / "nan.gguf", TINY_LLAMA)
    (norm,) = (each for each in gguf.GGUFReader(path, "r+").tensors if each.name == "output_norm.weight")
    norm.data[:] = np.nan
    return path


def test_every_way_to_sample_ends_with_an_error(damaged: Path) -> None:
    model = LlamaModel(damaged)
    context = LlamaContext(
        model, cells=4096, slots=8, batch_size=256, threads=1, attention=AttentionSettings(), exact=False
    )
    scheduler = Scheduler(context, SnapshotStore(CacheOptions(), b"0123456789abcdef"), context_size=512, threads=1)
    try:
        for kinds in ([kind] for kind in KINDS), [[KINDS[n % len(KINDS)] for n in range(2 * FEWEST_ROWS)]]:
            for together in kinds:
                sequences = [request([300 + n, 301, 302], **kind) for n, kind in enumerate(together)]
                for sequence in sequences:
                    scheduler.submit(sequence)
                for sequence, kind in zip(sequences, together, strict=True):
                    tokens, ended = finish(sequence)
                    assert tokens == [] and isinstance(ended.error, LeapGenerationError), kind
                    assert "not numbers (NaN)" in ended.error.message
    finally:
        scheduler.close()
        context.close()
        model.close()


def test_a_row_without_numbers_fails_alone() -> None:
    logits = np.random.default_rng(1).normal(size=(5, 1024)).astype(np.float32)
    logits[2, 7] = np.nan
    for kind in KINDS[:2]:
        samplers = [sampler(1, **kind) for _ in range(5)]
        found = BatchSampler(1024).sample(logits, samplers)
        assert [token is None for token in found] == [False, False, True, False, False]
        with pytest.raises(LeapGenerationError, match="not numbers"):
            samplers[2].choose(logits[2])
    infinite = np.full(16, -np.inf, np.float32)
    infinite[3] = np.inf
    for kind in KINDS[:5]:
        assert sampler(1, **kind).choose(infinite.copy()) == 3, "a bias may be infinite"


def test_candidates_of_a_device_without_numbers_fail_alone() -> None:
    failed: list[int] = []
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    values[1, 2] = np.nan
    tokens = np.arange(12, dtype=np.int32).reshape(3, 4)
    fake = SimpleNamespace(
        _context=SimpleNamespace(candidates=SimpleNamespace(read=lambda indices: (tokens, values))),
        _batch_sampler=BatchSampler(1024),
        _fail_sampling=lambda part, error: failed.append(part.index),
    )
    parts = [SimpleNamespace(index=n, request=SimpleNamespace(sampler=sampler(1, temperature=0.0))) for n in range(3)]
    assert Scheduler._sample_candidates(fake, parts) == [3, None, 11]  # type: ignore[arg-type]
    assert failed == [1]
