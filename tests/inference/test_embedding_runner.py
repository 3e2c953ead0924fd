"""Embeddings on random models of each kind, compared with llama.cpp's own calls made by hand."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest

from leap_core import Leap, ModelLoadingOptions
from leap_core.errors import LeapGenerationError, LeapModelLoadingError, LeapOptionsError
from leap_core.inference.embedding_runner import InProcessEmbeddingRunner
from leap_core.inference.runner import InProcessRunner
from tests.support.random_models import TINY_LFM2, TINY_LLAMA, EncoderShape, write_random_model
from tests.support.whole_llama import whole_library

TEXTS = ["hello world", "the quick brown fox jumps over the lazy dog. " * 3, "été 你好 🙂", "", "a", "x, y; z! (w)"]
ROUNDING = 2e-5  # what builds of llama.cpp round differently; another pooling or text differs by 0.01 and more
KINDS = {
    "lfm2 cls": (TINY_LFM2, EncoderShape("cls")),
    "lfm2 mean": (TINY_LFM2, EncoderShape("mean")),
    "llama last": (TINY_LLAMA, EncoderShape("last", causal=True)),
    "colbert": (TINY_LFM2, EncoderShape("none", projection=16, markers=True)),
}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Runners of the kinds, closed at the end."""
    directory, runners = tmp_path_factory.mktemp("encoders"), {}

    def runner(kind):
        if kind not in runners:
            shape, encoder = KINDS[kind]
            path = write_random_model(directory / f"{kind}.gguf", shape, "f32", encoder=encoder)
            options = ModelLoadingOptions(cpu_threads=1, flash_attention=False)
            runners[kind] = InProcessEmbeddingRunner(path, kind, options)
        return runners[kind]

    yield runner
    for each in runners.values():
        each.unload()


def by_hand(runner, tokens, pooling):
    """llama.cpp's own calls for one text: a fresh context, one decode."""
    lib = whole_library()
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.embeddings, params.flash_attn_type, params.n_threads = True, 0, 1
    params.pooling_type = {"none": 0, "mean": 1, "cls": 2, "last": 3}[pooling]
    context = lib.llama_init_from_model(runner.model.pointer, params)
    batch = lib.llama_batch_init(512, 0, 1)
    try:
        for n, token in enumerate(tokens):
            batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = token, n, 1, 1
            batch.seq_id[n][0] = 0
        batch.n_tokens = len(tokens)
        assert lib.llama_decode(context, batch) == 0
        width = lib.llama_model_n_embd_out(runner.model.pointer)
        if pooling == "none":
            return np.array([lib.llama_get_embeddings_ith(context, n)[:width] for n in range(len(tokens))], np.float32)
        return np.array(lib.llama_get_embeddings_seq(context, 0)[:width], np.float32)
    finally:
        lib.llama_batch_free(batch)
        lib.llama_free(context)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("kind", ["lfm2 cls", "llama last"])
def test_vectors_equal_llama_cpps(make, kind, pooling):
    runner = make(kind)
    vectors = runner.embed(TEXTS, pooling=pooling)
    assert vectors.dtype == np.float32 and vectors.shape == (len(TEXTS), runner.dimensions)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    for text, vector in zip(TEXTS, vectors, strict=True):
        tokens = runner.model.tokenize(text, parse_special=False, add_special=True)
        np.testing.assert_allclose(vector, unit(by_hand(runner, tokens, pooling)), atol=ROUNDING)
        np.testing.assert_allclose(vector, runner.embed([text], pooling=pooling)[0], atol=ROUNDING)


@pytest.mark.parametrize(("kind", "pooling"), [("lfm2 cls", "cls"), ("lfm2 mean", "mean"), ("llama last", "last")])
def test_the_pooling_comes_from_the_model(make, kind, pooling):
    runner = make(kind)
    assert runner.pools and (runner.embed(TEXTS) == runner.embed(TEXTS, pooling=pooling)).all()


def test_more_texts_than_fit_into_one_call(make):
    runner, done = make("lfm2 mean"), []
    many = [f"{TEXTS[n % 3]} {n}" for n in range(100)]
    vectors = runner.embed(many, on_progress=done.append)
    assert done == sorted(done) and done[-1] == 100 and len(done) > 3
    np.testing.assert_allclose(vectors[70:72], runner.embed(many[70:72]), atol=ROUNDING)
    assert runner.embed([]).shape == (0, 64)


def test_late_interaction_equals_a_reference_computation(make):
    runner = make("colbert")
    documents, queries = ["the cat sat, on. the mat!", "a dog"], ["cat mat"]
    special, model = runner.model.special_tokens, runner.model
    found = []
    for text, marker in [(documents[0], "[D] "), (documents[1], "[D] "), (queries[0], "[Q] ")]:
        tokens = model.tokenize(text, parse_special=False, add_special=True)
        tokens.insert(1, special[marker])
        rows = unit(by_hand(runner, tokens, "none"))
        pieces = [model.piece(token) for token in tokens]
        keep = [n for n, piece in enumerate(pieces) if marker == "[Q] " or piece not in (b",", b".", b"!")]
        found.append(rows[keep])
    vectors = runner.embed_tokens(documents), runner.embed_tokens(queries, "query")
    assert [rows.shape for rows in (*vectors[0], *vectors[1])] == [rows.shape for rows in found]
    for mine, oracle in zip((*vectors[0], *vectors[1]), found, strict=True):
        np.testing.assert_allclose(mine, oracle, atol=ROUNDING)
    assert runner.dimensions == 16
    with pytest.raises(LeapOptionsError, match="embed_tokens"):
        runner.embed(documents)


def test_prefixes_come_from_the_file_the_name_or_the_caller(tmp_path):
    options = ModelLoadingOptions(cpu_threads=1)
    said = write_random_model(tmp_path / "a.gguf", encoder=EncoderShape("cls", prefixes=("Q> ", "D> ")))
    known = write_random_model(tmp_path / "LFM2.5-Embedding-350M-Q4_0.gguf", encoder=EncoderShape("cls"))
    for path, query, document in [(said, "Q> ", "D> "), (known, "query: ", "document: ")]:
        with InProcessEmbeddingRunner(path, "m", options) as runner:
            plain = runner.embed([f"{query}hi", f"{document}hi", "hi"], prefix="")
            assert (runner.embed(["hi"], "query") == plain[0]).all()
            assert (runner.embed(["hi"], "document") == plain[1]).all()
            assert runner.count_tokens(["hi"], "query") > runner.count_tokens([""], "query")


def test_too_long_texts_are_refused_or_cut(make):
    runner = make("lfm2 cls")
    long = "word " * 2000
    with pytest.raises(LeapOptionsError, match=r"texts\[1\].*at most 512"):
        runner.embed(["short", long])
    cut = runner.embed([long], too_long="cut")[0]
    tokens = runner.model.tokenize(long, parse_special=False, add_special=True)[:512]
    np.testing.assert_allclose(cut, unit(by_hand(runner, tokens, "cls")), atol=ROUNDING)


def test_fewer_dimensions_are_brought_to_unit_length(make):
    runner = make("lfm2 cls")
    whole, part = runner.embed(["hi"])[0], runner.embed(["hi"], dimensions=8)[0]
    np.testing.assert_allclose(part, unit(whole[:8]), atol=ROUNDING)
    with pytest.raises(LeapOptionsError, match="dimensions"):
        runner.embed(["hi"], dimensions=65)


@pytest.mark.parametrize("option", [{"kind": "question"}, {"pooling": "max"}, {"too_long": "wrap"}])
def test_unknown_choices_are_named(make, option):
    with pytest.raises(LeapOptionsError, match="is not one of"):
        make("lfm2 cls").embed(["hi"], **option)


def test_a_text_model_embeds_with_a_given_pooling(tmp_path):
    path = write_random_model(tmp_path / "m.gguf")
    with InProcessEmbeddingRunner(path, "plain", ModelLoadingOptions(cpu_threads=1)) as runner:
        assert runner.embed(["hi"], pooling="mean").shape == (1, 64)
        with pytest.raises(LeapOptionsError, match="not made for embeddings"):
            runner.embed(["hi"])


def test_an_embedding_model_refuses_prompts(make):
    path = make("lfm2 cls").model.path
    with pytest.raises(LeapModelLoadingError, match="makes embeddings"):
        InProcessRunner(path, "m", ModelLoadingOptions())


@pytest.mark.slow
def test_cancelled_and_unloaded_work_ends_soon(tmp_path):
    path = write_random_model(tmp_path / "m.gguf", replace(TINY_LFM2, width=128, layers=6), encoder=EncoderShape("cls"))
    runner = InProcessEmbeddingRunner(path, "m", ModelLoadingOptions(cpu_threads=1))
    many, cancelled, done = ["word " * 90] * 3000, threading.Event(), []

    def on_progress(count):
        done.append(count)
        cancelled.set()

    with pytest.raises(LeapGenerationError, match="cancelled"):
        runner.embed(many, cancelled=cancelled, on_progress=on_progress)
    assert done[-1] < 300

    async def give_up():
        task = asyncio.create_task(runner.embed_async(many))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    assert runner.embed(["still here"]).shape == (1, 128)
    timer = threading.Timer(0.3, runner.unload)
    timer.start()
    with pytest.raises(LeapGenerationError):
        runner.embed(many)
    timer.join()
    with pytest.raises(LeapGenerationError, match="unloaded"):
        runner.embed(["hi"])


def test_concurrent_embedding_and_generation_do_not_change_each_other(make):
    runner = make("lfm2 cls")
    alone = runner.embed(TEXTS)
    with Leap.load("builtin", ModelLoadingOptions(slots=1)) as writer:
        text = list(writer.create_conversation().generate_response("Count to 12."))[-1].full_message.text
        stream = writer.create_conversation().generate_response("Count to 12.")
        next(stream)
        beside = [runner.embed(TEXTS) for _ in range(5)]
        assert list(stream)[-1].full_message.text == text
    assert all(np.abs(vectors - alone).max() < 2e-6 for vectors in beside)
