"""LoRA adapters in the engine: the logits of llama.cpp's own call, groups of requests, and no prefix of another."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from leap_core.conversation.options import CacheOptions
from leap_core.inference.engine.request import Adapters, Request
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.llama.context import LlamaContext
from leap_core.inference.llama.library import library
from leap_core.inference.llama.model import LlamaAdapter, LlamaModel
from tests.support.random_adapters import write_random_adapter

from .conftest import finish, request
from .prompts import prompt_of
from .test_scheduler import run, words

Make = Callable[..., Scheduler]


@pytest.fixture(scope="session")
def adapters(model: LlamaModel, tmp_path_factory: pytest.TempPathFactory) -> list[LlamaAdapter]:
    directory = tmp_path_factory.mktemp("adapters")
    paths = [write_random_adapter(directory / f"{n}.gguf", model.path, seed=n, alpha=24.0) for n in (1, 2)]
    return [LlamaAdapter(path, model) for path in paths]


def adapted(ids: list[int], chosen: Adapters, max_tokens: int = 16, boundaries: tuple[int, ...] = ()) -> Request:
    plain = request(ids)
    return Request(prompt_of(ids, boundaries), plain.sampler, max_tokens=max_tokens, adapters=chosen)


def logits(context: LlamaContext, ids: list[int]) -> np.ndarray:
    context.forget(0)
    context.clear()
    index = context.add(0, 0, ids, output=True)
    assert context.decode() == 0
    return context.logits(index).copy()


@pytest.mark.slow
def test_logits_are_llama_cpps_and_cleared_they_are_exact_again(model: LlamaModel, adapters: list[LlamaAdapter]):
    context = LlamaContext(model, cells=256, slots=1, batch_size=64, threads=1)
    try:
        plain = logits(context, words(20))
        context.set_adapters([(adapters[0], 0.5)])
        mine = logits(context, words(20))
        assert np.abs(mine - plain).max() > 0.1
        context.set_adapters([])
        assert (logits(context, words(20)) == plain).all()
        lib = library()
        pointers, scales = (ctypes.c_void_p * 1)(adapters[0].pointer), (ctypes.c_float * 1)(0.5)
        assert lib.llama_set_adapters_lora(context.pointer, pointers, 1, scales) == 0
        assert (logits(context, words(20)) == mine).all()
    finally:
        context.close()


@pytest.mark.slow
def test_concurrent_requests_with_different_adapters_equal_those_alone(
    make_scheduler: Make, adapters: list[LlamaAdapter]
):
    variants: list[Adapters] = [(), ((adapters[0], 1.0),), ((adapters[1], 1.0),), ((adapters[0], 0.3),)]
    ids = words(60)
    alone = [run(make_scheduler(), adapted(ids, chosen))[0] for chosen in variants]
    assert len({tuple(tokens) for tokens in alone}) == 4
    scheduler = make_scheduler()
    together = [adapted(ids, chosen) for chosen in variants]
    for each in together:
        scheduler.submit(each)
    assert [finish(each)[0] for each in together] == alone


@pytest.mark.slow
def test_no_prefix_is_reused_across_adapters(make_scheduler: Make, adapters: list[LlamaAdapter], tmp_path: Path):
    cache = CacheOptions(path=tmp_path, enabled=True)
    scheduler = make_scheduler(cache=cache)
    ids, chosen = words(120), ((adapters[0], 1.0),)
    plain = run(scheduler, adapted(ids, (), boundaries=(60,)))
    with_adapter = run(scheduler, adapted(ids, chosen, boundaries=(60,)))
    assert plain[2] == 0 and with_adapter[2] == 0 and plain[0] != with_adapter[0]
    again = run(scheduler, adapted(ids, chosen, boundaries=(60,)))
    assert again[0] == with_adapter[0] and again[2] >= 60
    other_scale = run(scheduler, adapted(ids, ((adapters[0], 0.5),), boundaries=(60,)))
    assert other_scale[2] == 0
    scheduler.close()
    fresh = make_scheduler(cache=cache)  # from disk
    assert run(fresh, adapted(ids, ((adapters[1], 1.0),), boundaries=(60,)))[2] == 0
    restored = run(fresh, adapted(ids, chosen, boundaries=(60,)))
    assert restored[0] == with_adapter[0] and restored[2] >= 60


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True], ids=["deterministic"])
@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
def test_an_exact_answer_with_an_adapter_is_the_same_beside_others(
    make_scheduler: Make, model: LlamaModel, tmp_path: Path, half: bool
):
    """Otherwise llama.cpp multiplies the adapter's matrices for one position in another way than for several."""
    adapter = LlamaAdapter(write_random_adapter(tmp_path / "a.gguf", model.path, alpha=24.0, half=half), model)
    prompts = [words(30 + 9 * n) for n in range(4)]
    given = {"temperature": 1.0, "logprobs": True}

    def asked(n: int) -> Request:
        plain = request(prompts[n], rng_seed=n, **given)
        return Request(prompt_of(prompts[n], ()), plain.sampler, max_tokens=12, adapters=((adapter, 1.0),))

    def told(sequence: Request) -> list[tuple[int, float]]:
        return list(zip(finish(sequence)[0], [score.logprob for score in sequence.scores], strict=True))

    alone = []
    for n in range(len(prompts)):
        fresh = make_scheduler(slots=1)
        fresh.submit(one := asked(n))
        alone.append(told(one))
    scheduler = make_scheduler()
    together = [asked(n) for n in range(len(prompts))]
    for each in together:
        scheduler.submit(each)
    assert [told(each) for each in together] == alone
