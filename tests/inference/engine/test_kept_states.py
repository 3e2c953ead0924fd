"""States of recurrent layers that stay on a GPU: nothing is copied, and what follows is as after a fresh prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leap_core.conversation.responses import GenerationFinishReason as Reason
from leap_core.inference.engine import batch_plan
from leap_core.inference.engine.batch_plan import DeviceSpeed
from leap_core.inference.engine.request import PromptTokens, Tokens
from leap_core.inference.engine.scheduler import Scheduler
from leap_core.inference.engine.slots import checkpoints_for
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.gguf.memory import shape_of, states_kept
from leap_core.inference.llama.context import NO_KV_SLOT
from leap_core.inference.llama.model import LlamaModel
from tests.support.random_models import TINY_LFM2, write_random_model

from .conftest import finish, request
from .test_scheduler import words


@pytest.fixture(scope="session")
def exact_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In float32: on a GPU, requests that share a step may round in another way, which Q8_0 would make larger."""
    return write_random_model(tmp_path_factory.mktemp("models") / "lfm2.gguf", TINY_LFM2, "f32", seed=8)


@pytest.fixture
def model(exact_path: Path) -> Iterator[LlamaModel]:
    """A hybrid model that says that its layers are on a GPU."""
    loaded = LlamaModel(exact_path)
    loaded.on_gpu = True
    yield loaded
    loaded.close()


class Library:
    """llama.cpp, which counts the copies of states to the host and back."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.copies = 0

    def __getattr__(self, name: str) -> Any:
        if name in ("llama_state_seq_get_data_ext", "llama_state_seq_set_data_ext"):
            self.copies += 1
        return getattr(self._real, name)


def watched(scheduler: Scheduler) -> Library:
    context = scheduler._context
    context._lib = library = Library(context._lib)  # type: ignore[assignment]
    return library


def answer(scheduler: Scheduler, ids: list[int], boundaries: tuple[int, ...] = ()) -> tuple[list[int], int]:
    """The answer, and how many tokens of the prompt were in memory."""
    asked = request(ids, 12, boundaries)
    scheduler.submit(asked)
    tokens, end = finish(asked)
    return tokens, end.stats.cached_prompt_tokens


@pytest.fixture
def fresh(make_scheduler: Callable[..., Scheduler]) -> Callable[[list[int]], list[int]]:
    """The answer to a prompt of which nothing is in memory."""
    scheduler = make_scheduler(slots=1)

    def compute(ids: list[int]) -> list[int]:
        for slot in scheduler._memory.slots:
            scheduler._memory.clear(slot)
        return answer(scheduler, ids)[0]

    return compute


@pytest.mark.slow
def test_a_prompt_resumes_from_states_kept_in_place(
    make_scheduler: Callable[..., Scheduler], fresh: Callable[[list[int]], list[int]]
) -> None:
    scheduler = make_scheduler(slots=2)
    library = watched(scheduler)
    system, question, other = words(100), words(80, seed=2), words(90, seed=3)
    answer(scheduler, [*system, *question], (100, 160))
    for ids, least in (
        ([*system, *question], 160),  # the same question again
        ([*system, *question[:60], *other], 160),  # an edited one
        ([*system, *other], 100),  # another one after the same first message
        ([*system, *question], 100),
    ):
        found, cached = answer(scheduler, ids, (100, 160))
        assert cached >= least and found == fresh(ids)
    assert library.copies == 0


@pytest.mark.slow
def test_concurrent_requests_start_from_a_state_of_one_of_them(
    make_scheduler: Callable[..., Scheduler], fresh: Callable[[list[int]], list[int]]
) -> None:
    """While one slot goes on, others take its state and let it go at different times."""
    scheduler = make_scheduler(slots=4)
    library = watched(scheduler)
    system = words(120)
    prompts = [[*system, *words(40 + 5 * n, seed=10 + n)] for n in range(12)]
    running = [request(ids, 2 + n % 6, (120,)) for n, ids in enumerate(prompts)]
    for each in running:
        scheduler.submit(each)
    ends = [finish(each) for each in running]
    for (tokens, _), ids in zip(ends, prompts, strict=True):
        expected = fresh(ids)
        assert tokens[: len(expected)] == expected[: len(tokens)]
    assert sum(end.stats.cached_prompt_tokens >= 120 for _, end in ends) >= 11
    assert library.copies == 0


@pytest.mark.slow
def test_states_are_freed_and_copied_when_there_is_no_space(
    make_scheduler: Callable[..., Scheduler], fresh: Callable[[list[int]], list[int]]
) -> None:
    scheduler = make_scheduler(slots=2, cells=4096)
    context, memory = scheduler._context, scheduler._memory
    whole = sorted(context._kept._free)
    assert len(whole) == 16
    ids = words(40)
    for turn in range(20):  # a chat: each turn keeps a state
        answer(scheduler, ids, (32, len(ids) - 1) if turn else (32,))
        ids = [*ids, *words(20, seed=turn)]
    states = [state for slot in memory.slots for state in slot.checkpoints.values()]
    assert any(isinstance(state, bytes) for state in states), "more than there is room for"
    assert not context._kept._free
    found, cached = answer(scheduler, [*ids[:60], *words(50, seed=99)], (32,))
    assert cached > 0 and found == fresh([*ids[:60], *words(50, seed=99)])
    for slot in memory.slots:
        memory.clear(slot)
    assert sorted(context._kept._free) == whole and context.room == context.cells
    assert answer(scheduler, ids)[0] == fresh(ids)


@pytest.mark.slow
def test_states_are_dropped_when_cells_run_out(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells that are free for leap are free in llama.cpp too, which refuses a decode only where they are too few."""
    scheduler = make_scheduler(slots=4, context_size=512, cells=600)
    context = scheduler._context
    refused = []

    def decode(**given: bool) -> int:
        code = real(**given)
        if code == NO_KV_SLOT:
            refused.append((context.room, context._batch.count))
        return code

    real = context.decode
    monkeypatch.setattr(context, "decode", decode)
    for turn in range(8):
        asked = request(words(300 + turn, seed=turn), 12, (100, 250))
        scheduler.submit(asked)
        assert finish(asked)[1].reason in (Reason.STOP, Reason.MAX_TOKENS)
    assert refused and all(room < count for room, count in refused)


def test_a_processor_keeps_no_sequences_for_states(model: LlamaModel, make_scheduler: Callable[..., Scheduler]) -> None:
    assert make_scheduler(slots=2)._context._kept._free
    model.on_gpu = False
    assert not make_scheduler(slots=2)._context._kept._free


def test_states_that_are_large_or_of_unknown_size_are_copied(lfm2_path: Path) -> None:
    shape = shape_of(read_gguf_header(lfm2_path))
    assert states_kept(shape, 4) == 16 and states_kept(shape, 100) == 100
    assert states_kept(replace(shape, states=0), 4) == 0
    assert states_kept(replace(shape, states=40_000_000), 4) == 0


@pytest.mark.parametrize(("speed", "first"), [(50_000, 2048), (7_000, 1024), (1_500, 256), (100, 256)])
def test_the_distance_of_states_follows_the_speed_of_the_device(
    make_scheduler: Callable[..., Scheduler], speed: float, first: int
) -> None:
    memory = make_scheduler(slots=1)._memory
    memory.set_speed(speed)
    prompt = PromptTokens((Tokens(tuple(range(9000))),), boundaries=())
    due = checkpoints_for(prompt, 0, on_gpu=True, spacing=memory.spacing)
    assert due[0] == first and {2048, 4096, 6144, 8192} <= set(due)


def test_the_speed_counts_all_steps_until_logits_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr(batch_plan.time, "perf_counter", lambda: now)
    speed = DeviceSpeed()
    speed.observe(100, now, is_read=True)
    assert speed.value is None, "too few positions to tell"
    for n in range(3):
        speed.observe(1000, now + n / 10, is_read=False)
    now += 2.0
    speed.observe(1000, now - 0.1, is_read=True)
    assert speed.value == 2000.0


@pytest.mark.slow
def test_a_long_prompt_is_timed(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(slots=1)
    answer(scheduler, words(700))
    assert scheduler._device_speed.value and scheduler._memory.spacing in (256, 512, 1024, 2048)
