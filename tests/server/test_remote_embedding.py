"""A model for vectors that a host keeps warm gives what it gives in process: a real host, real HTTP."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from leap_core.conversation.embedding import rank
from leap_core.conversation.options import ModelLoadingOptions
from leap_core.errors import LeapGenerationError, LeapModelLoadingError, LeapOptionsError, LeapUnavailableError
from leap_core.inference.embedding_runner import InProcessEmbeddingRunner
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.opening import open_embedding_runner, open_runner
from leap_core.protocols.host.host_runner import RemoteEmbeddingRunner
from leap_core.protocols.host.lookup import keep_warm, warm_runner
from tests.support.random_models import TINY_LFM2, EncoderShape, write_random_model

pytestmark = pytest.mark.slow

TEXTS = ["hello world", "été 你好 🙂", "", "the quick brown fox. " * 9, "a,b"] * 9
OPTIONS = ModelLoadingOptions(cpu_threads=1)
ROUNDING = 5e-5
"""Of texts that share a call with others; each number is below 1."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random models of three kinds."""
    folder = tmp_path_factory.mktemp("models")
    encoders = {"cls": EncoderShape("cls"), "colbert": EncoderShape("none", projection=16, markers=True), "text": None}
    return {
        name: write_random_model(folder / f"{name}.gguf", TINY_LFM2, "f32", encoder=encoder)
        for name, encoder in encoders.items()
    }


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> Iterator[dict[str, str]]:
    """Of a home whose host holds them all."""
    home = {**os.environ, "LEAP_HOME": str(tmp_path_factory.mktemp("home")), "LEAP_TRY_MODELS": "0"}
    for path in models.values():
        host, _ = keep_warm(str(path), variables=home, cpu_threads=1, context_size=256)
    yield home
    host.unload(None)


@pytest.fixture
def warm(models: dict[str, Path], variables: dict[str, str]) -> RemoteEmbeddingRunner:
    runner = open_embedding_runner(str(models["cls"]), OPTIONS, host="demand", variables=variables)
    assert isinstance(runner, RemoteEmbeddingRunner)
    return runner


@pytest.mark.slow
def test_vectors_equal_those_of_a_model_in_process(models, variables, warm):
    done: list[int] = []
    with InProcessEmbeddingRunner(models["cls"], "m", ModelLoadingOptions(cpu_threads=1, context_size=256)) as own:
        for options in ({}, {"kind": "query", "prefix": "q: "}, {"pooling": "mean", "dimensions": 8}):
            vectors = warm.embed(TEXTS, on_progress=done.append, **options)
            np.testing.assert_allclose(vectors, own.embed(TEXTS, **options), atol=ROUNDING)
        assert done[-1] == len(TEXTS) and len(done) == 6
        assert warm.count_tokens(TEXTS) == own.count_tokens(TEXTS)
        assert warm.embed([]).shape == (0, 64)
        about = (warm.fingerprint, warm.dimensions, warm.most_tokens, warm.pools)
        assert about == (own.fingerprint, own.dimensions, own.most_tokens, own.pools)


def test_late_interaction_of_a_warm_model(models, variables):
    warm = open_embedding_runner(str(models["colbert"]), host="demand", variables=variables)
    assert not warm.pools
    with InProcessEmbeddingRunner(models["colbert"], "m", OPTIONS) as own:
        for mine, theirs in zip(warm.embed_tokens(TEXTS), own.embed_tokens(TEXTS), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=ROUNDING)
        ranked = rank(warm, "a cat", ["dogs", "cats, a"]), rank(own, "a cat", ["dogs", "cats, a"])
        assert [n for n, _ in ranked[0]] == [n for n, _ in ranked[1]]
    with pytest.raises(LeapOptionsError, match="embed_tokens"):
        warm.embed(["x"])


@pytest.mark.slow
def test_errors_equal_those_of_a_model_in_process(warm):
    with pytest.raises(LeapOptionsError, match=r"^texts\[40\]: \d+ tokens, and cls reads at most 256"):
        warm.embed([*TEXTS[:40], "word " * 400])
    assert warm.embed(["word " * 400], too_long="cut").shape == (1, 64)
    for wrong in ({"kind": "question"}, {"pooling": "max"}, {"dimensions": 65}):
        with pytest.raises(LeapOptionsError):
            warm.embed(["x"], **wrong)
    with pytest.raises(LeapOptionsError, match="list of texts"):
        warm.embed("x")
    assert warm.embed([", " * 300_000], too_long="cut").shape == (1, 64), "no bound on commas"


@pytest.mark.slow
def test_a_call_ends_when_cancelled_or_unloaded(models, variables, warm):
    many, cancelled = ["word " * 50] * 20_000, threading.Event()
    with pytest.raises(LeapGenerationError, match="cancelled"):
        warm.embed(many, cancelled=cancelled, on_progress=lambda _done: cancelled.set())
    threading.Timer(0.3, warm.unload).start()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        warm.embed(many)
    with pytest.raises(LeapGenerationError, match="unloaded"):
        warm.embed(["x"])
    again = open_embedding_runner(str(models["cls"]), host="demand", variables=variables)
    assert again.embed(["still warm"]).shape == (1, 64)


def test_only_the_right_kind_of_model_is_taken(models, variables, warm, tmp_path):
    assert warm_runner(str(models["cls"]), OPTIONS, variables=variables) is None
    with pytest.raises(LeapUnavailableError, match="makes embeddings and cannot answer"):
        open_runner(str(models["cls"]), OPTIONS, host="demand", variables=variables)
    with pytest.raises(LeapModelLoadingError, match="makes embeddings and cannot answer"):
        open_runner(str(models["cls"]), OPTIONS, variables=variables)
    with pytest.raises(LeapUnavailableError, match="to answer prompts, not for embeddings"):
        open_embedding_runner(str(models["text"]), OPTIONS, host="demand", variables=variables)
    with open_embedding_runner(str(models["text"]), OPTIONS, variables=variables) as own:
        assert isinstance(own, InProcessEmbeddingRunner)
    for differs in (ModelLoadingOptions(cpu_threads=2), ModelLoadingOptions(context_size=128)):
        with open_embedding_runner(str(models["cls"]), differs, variables=variables) as own:
            assert isinstance(own, InProcessEmbeddingRunner)
    with pytest.raises(LeapUnavailableError, match="no model host"):
        open_embedding_runner(
            str(models["cls"]), host="demand", variables={**variables, "LEAP_HOME": str(tmp_path / "other")}
        )


def test_a_model_that_the_host_unloaded_is_loaded_again(models, variables, warm):
    before = warm.embed(["hello"])
    host, _ = keep_warm(str(models["cls"]), variables=variables)
    host.unload(str(models["cls"]))
    np.testing.assert_array_equal(warm.embed(["hello"]), before)


def test_the_header_says_what_llama_cpp_says(models):
    for path in models.values():
        with InProcessEmbeddingRunner(path, "m", OPTIONS) as runner:
            assert read_gguf_header(path).pooling == runner.model.pooling
