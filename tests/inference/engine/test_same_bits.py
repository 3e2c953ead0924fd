"""The same request gives the same tokens with the same probabilities to the last bit, whatever was and is computed.
Weights are quantized, for with others llama.cpp multiplies one position in another way than several; or each position
is computed alone (``exact``), and then they may be others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from leap_core.conversation.options import CacheOptions
from leap_core.inference.engine.request import Request
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.llama.cells import Cells
from leap_core.inference.llama.context import AttentionSettings, LlamaContext
from leap_core.inference.llama.model import LlamaModel
from tests.support.lengths import lengths, usually
from tests.support.random_models import MEMORY_KINDS, write_random_model

from .conftest import finish, request

Make = Callable[..., Scheduler]


@pytest.fixture(scope="module", params=[*MEMORY_KINDS, "window, exact", "hybrid, exact"])
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def exact(case: str) -> bool:
    return case.endswith(", exact")


@pytest.fixture(scope="module")
def model(case: str, exact: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    loaded = LlamaModel(write_random_model(path, MEMORY_KINDS[case.partition(",")[0]], "f16" if exact else "q8_0"))
    yield loaded
    loaded.close()


def words(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(300, 1000) for _ in range(count)]


def asked(prompt: list[int], length: int, seed: int) -> Request:
    return request(prompt, max_tokens=length, boundaries=(40,), temperature=1.0, rng_seed=seed, logprobs=True)


def told(sequence: Request) -> list[tuple[int, float]]:
    tokens, ended = finish(sequence)
    assert ended.error is None
    return list(zip(tokens, [score.logprob for score in sequence.scores], strict=True))


@pytest.mark.slow
@lengths(5, 60)
def test_same_bits_after_any_history_and_beside_any_requests(make_scheduler: Make, rounds: int) -> None:
    """Prompts longer and shorter than the 64 positions from which llama.cpp computes in tiles, and together more than
    the 512 cells from which it divides one position among threads."""
    rng = random.Random(5)
    lengths = (45, 70, 150, 300)
    requests = [(words(rng.choice(lengths), n % 4) + words(9, n), rng.randrange(4, 30), n) for n in range(12)]
    alone = []
    for one in requests:
        fresh = make_scheduler(slots=1)
        fresh.submit(sequence := asked(*one))
        alone.append(told(sequence))
    used = make_scheduler(slots=5, cells=2048)
    for turn in range(rounds):
        chosen = rng.sample(range(len(requests)), rng.choice([1, 1, 2, 5, 7]))
        cancelled = [asked(words(rng.randrange(5, 200), 50 + turn), 200, turn) for _ in range(rng.randrange(3))]
        sequences = [asked(*requests[n]) for n in chosen]
        for sequence in rng.sample([*sequences, *cancelled], len(sequences) + len(cancelled)):
            used.submit(sequence)
        for sequence in cancelled:
            sequence.cancel()
        for n, sequence in zip(chosen, sequences, strict=True):
            assert told(sequence) == alone[n], (turn, n)


@pytest.mark.slow
@pytest.mark.parametrize("slots", usually([4], [1, 4, 8]))
@lengths(4, 24)
def test_same_bits_after_being_cut_evicted_saved_and_loaded(
    make_scheduler: Make, tmp_path: Path, slots: int, rounds: int
) -> None:
    """Prompts that share beginnings of any length, twice as long as the window, kept in memory and on disk."""
    rng = random.Random(slots)
    bases = [words(rng.choice((120, 260)), n) for n in range(3)]
    requests = []
    for n in range(10):
        base = rng.choice(bases)
        prompt = base[: rng.randrange(1, len(base))] + words(rng.randrange(1, 60), 90 + n)
        requests.append((prompt, rng.choice((3, 120)), n))
    alone = []
    for one in requests:
        fresh = make_scheduler(slots=1)
        fresh.submit(sequence := asked(*one))
        alone.append(told(sequence))
    for _ in range(2):  # the second one begins with what the first left on disk
        used = make_scheduler(slots=slots, cache=CacheOptions.on_disk(tmp_path))
        for turn in range(rounds):
            chosen = rng.sample(range(len(requests)), rng.choice([1, 1, 2, min(slots, 4)]))
            sequences = [asked(*requests[n]) for n in chosen]
            for sequence in sequences:
                used.submit(sequence)
            for n, sequence in zip(chosen, sequences, strict=True):
                assert told(sequence) == alone[n], (turn, n)
        used.close()


@pytest.mark.slow
@pytest.mark.parametrize("on_disk", usually([True], [False, True]))
def test_a_second_question_about_one_text_reuses_the_text(make_scheduler: Make, tmp_path: Path, on_disk: bool) -> None:
    """Nothing marks where the text ends. Each question goes to a scheduler of its own where the disk is to help."""
    text = words(1700, 1)
    first, second = text + words(20, 2), text + words(60, 3)
    cache = CacheOptions.on_disk(tmp_path) if on_disk else CacheOptions()

    def ask(scheduler: Scheduler, prompt: list[int]) -> tuple[list[tuple[int, float]], int]:
        scheduler.submit(sequence := request(prompt, max_tokens=4, temperature=1.0, rng_seed=1, logprobs=True))
        return told(sequence), sequence.cached

    make = partial(make_scheduler, slots=2, context_size=2048)
    expected = [ask(make(), prompt)[0] for prompt in (first, second)]
    scheduler = make(cache=cache)
    found = []
    for prompt in (first, second, first):
        if on_disk:
            scheduler.close()
            scheduler = make(cache=cache)
        found.append(ask(scheduler, prompt))
    assert [answer for answer, _ in found] == [*expected, expected[0]]
    cached = [positions for _, positions in found]
    assert cached[0] == 0 and cached[1] >= 0.9 * len(second)
    assert cached[2] >= (len(first) - 1 if on_disk else 0.9 * len(first))


@pytest.mark.parametrize("hybrid", [False, True])
def test_cells_are_allocated_as_in_llama_cpp(hybrid: bool) -> None:
    cells = Cells(64, hybrid=hybrid)
    cells.add(cells.place([(0, 4), (1, 2)]))
    held = ([0, 1, 4, 5], [2, 3]) if hybrid else ([0, 1, 2, 3], [4, 5])
    assert (cells.held(0), cells.held(1)) == held
    cells.copy(0, 2)
    cells.cut(0, 0)
    assert cells.room == 58 and cells.held(2) == held[0]
    cells.cut(2, 1)
    placed = cells.place([(1, 1)])
    assert placed == {1: [1]} and cells.out_of_order(placed) == 1
    cells.restore(1, 2)
    assert cells.held(1) == [1, 2] and cells.sound(1) == 2


def test_a_sequence_that_could_not_be_moved_is_known_to_be_out_of_order() -> None:
    cells = Cells(8, hybrid=False)
    cells.add(cells.place([(0, 2)]))
    cells.add(cells.place([(1, 4)]))
    cells.copy(1, 2)
    cells.cut(0, 0)
    placed = cells.place([(1, 1)])
    assert cells.out_of_order(placed) is None
    cells.add(placed)
    assert cells.sound(1) == 4 and cells.sound(2) == 4
    cells.cut(1, 4)
    cells.cut(2, 0)
    assert cells.out_of_order(cells.place([(1, 1)])) == 1


def test_a_moved_sequence_continues_with_the_same_bits(model: LlamaModel, exact: bool) -> None:
    def steps(context: LlamaContext, sequence: int, start: int, tokens: list[int]) -> list[bytes]:
        found = []
        for n, token in enumerate(tokens):
            context.clear()
            index = context.add(sequence, start + n, [token], output=True)
            assert context.decode() == 0
            found.append(context.logits(index).tobytes())
        return found

    prompt, more = words(90, 1), words(12, 2)
    results = []
    for lower in (False, True):
        context = LlamaContext(
            model,
            cells=512,
            slots=2,
            batch_size=128,
            threads=1,
            attention=AttentionSettings(type_k="bf16"),
            exact=exact,
        )
        if lower:
            context.add(1, 0, words(60, 3), output=False)
            assert context.decode() == 0
        context.clear()
        context.add(0, 0, prompt, output=False)
        assert context.decode() == 0
        if lower:
            context.forget(1)
        results.append(steps(context, 0, len(prompt), more))
        assert context.in_order(0) == len(prompt) + len(more)
        context.close()
    assert results[0] == results[1]
