"""LoRA adapters and hidden states through the library."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from leap_core import (
    ChatMessage,
    GenerationOptions,
    LeapGenerationError,
    LeapModelLoadingError,
    LeapOptionsError,
    LoraAdapter,
    ModelLoadingOptions,
)
from leap_core.inference.runner import InProcessRunner
from leap_core.testing import ScriptedModelRunner
from tests.support.random_adapters import write_random_adapter
from tests.support.random_models import TINY_LLAMA, write_random_model
from tests.support.whole_llama import whole_library

GREEDY = {"temperature": 0.0, "max_tokens": 12}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("adapters")
    model = write_random_model(directory / "model.gguf", quantization="f32")
    adapters = [write_random_adapter(directory / f"{n}.gguf", model, seed=n, alpha=24.0) for n in (1, 2)]
    return model, adapters


@pytest.fixture
def load(files):
    opened = []

    def loaded(**options):
        options = {"cpu_threads": 1, "flash_attention": False, "kv_type_k": "f32", "kv_type_v": "f32"} | options
        opened.append(InProcessRunner(files[0], "m", ModelLoadingOptions(**options)))
        return opened[-1]

    yield loaded
    for runner in opened:
        runner.unload()


def said(runner, **options):
    stream = runner.start([ChatMessage("user", "hello")], options=GenerationOptions(**GREEDY, **options))
    return list(stream)[-1].full_message.text


def test_adapters_can_be_set_at_loading_at_run_time_and_per_answer(load, files):
    one, two = files[1]
    plain = load()
    without = said(plain)
    first, second = said(load(adapters=[one])), said(load(adapters=[LoraAdapter(two)]))
    assert len({without, first, second}) == 3
    assert said(plain, adapters=[one]) == first and said(plain) == without
    plain.set_adapters([two])
    assert said(plain) == second and said(plain, adapters=[]) == without and said(plain, adapters=[one]) == first
    plain.set_adapters([])
    assert said(plain) == without
    assert said(plain, adapters=[LoraAdapter(one, 0.0)]) == without


def test_requests_with_different_adapters_run_concurrently(load, files):
    runner = load()
    choices = [[], [files[1][0]], [files[1][1]]]
    alone = [said(runner, adapters=chosen) for chosen in choices]
    streams = [
        runner.start([ChatMessage("user", "hello")], options=GenerationOptions(**GREEDY, adapters=chosen))
        for chosen in choices
    ]
    assert [list(stream)[-1].full_message.text for stream in streams] == alone


def test_adapters_read_back_from_json(files):
    options = GenerationOptions(adapters=[LoraAdapter(files[1][0], 0.5), str(files[1][1])])
    assert GenerationOptions.from_json(options.to_json()) == options
    assert LoraAdapter.parse("a=b.gguf").scale == 1.0 and LoraAdapter.parse("a.gguf=-0.5").scale == -0.5
    for wrong in ("a.gguf", [5], [{"file": "x"}], [LoraAdapter], 5):
        with pytest.raises(LeapOptionsError):
            GenerationOptions(adapters=wrong)
    with pytest.raises(LeapOptionsError):
        LoraAdapter("a.gguf", float("nan"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("missing", "there is no adapter"),
        ("a model", "no LoRA adapter"),
        ("of another architecture", "made for the architecture llama"),
        ("of another width", "does not have the model's shape"),
        ("cut", "adapter.gguf"),
        ("no gguf", "adapter.gguf"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(load, files, tmp_path, change, problem):
    path = tmp_path / "adapter.gguf"
    if change == "a model":
        path.write_bytes(files[0].read_bytes())
    elif change == "of another architecture":
        write_random_adapter(path, write_random_model(tmp_path / "other.gguf", TINY_LLAMA))
    elif change == "of another width":
        from dataclasses import replace

        from tests.support.random_models import TINY_LFM2

        write_random_adapter(path, write_random_model(tmp_path / "other.gguf", replace(TINY_LFM2, width=32)))
    elif change == "cut":
        path.write_bytes(files[1][0].read_bytes()[:-4000])
    elif change == "no gguf":
        path.write_bytes(b"hello")
    runner = load()
    for act in (
        lambda: load(adapters=[path]),
        lambda: runner.set_adapters([path]),
        lambda: said(runner, adapters=[path]),
    ):
        with pytest.raises(LeapModelLoadingError, match=problem):
            act()
    assert said(runner)


def test_hidden_states_are_llama_cpps(load, files):
    runner = load()
    text = "hello world " * 20
    states = runner.hidden_states(text)
    tokens = [runner.model.bos_token, *runner.model.tokenize(text, parse_special=True)]
    assert (states.token_count, states.embedding_dim) == (len(tokens), 64) and states.data.dtype == np.float32
    lib = whole_library()
    params = lib.llama_context_default_params()
    params.n_ctx, params.embeddings, params.pooling_type, params.flash_attn_type = 512, True, 0, 0
    params.n_threads = 1
    context, batch = lib.llama_init_from_model(runner.model.pointer, params), lib.llama_batch_init(512, 0, 1)
    for n, token in enumerate(tokens):
        batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = token, n, 1, 1
        batch.seq_id[n][0] = 0
    batch.n_tokens = len(tokens)
    assert lib.llama_decode(context, batch) == 0
    own = np.array([lib.llama_get_embeddings_ith(context, n)[:64] for n in range(len(tokens))], np.float32)
    lib.llama_batch_free(batch)
    lib.llama_free(context)
    np.testing.assert_allclose(states.data, own, atol=2e-5)
    adapted = runner.hidden_states(text, [files[1][0]])
    assert np.abs(adapted.data - states.data).max() > 0.01
    runner.set_adapters([files[1][0]])
    assert (runner.hidden_states(text).data == adapted.data).all()
    assert (asyncio.run(runner.hidden_states_async(text, [])).data == states.data).all()
    with pytest.raises(LeapGenerationError, match="tokens"):
        runner.hidden_states("word " * 9000)


def test_runners_without_adapters_raise_an_error():
    with pytest.raises(LeapGenerationError, match="no adapters"):
        ScriptedModelRunner().set_adapters([])
    with pytest.raises(LeapGenerationError, match="no hidden states"):
        ScriptedModelRunner().hidden_states("hi")
