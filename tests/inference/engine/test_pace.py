"""How long a chunk of a prompt may be beside running answers."""

from __future__ import annotations

import pytest

from leap_core.conversation.priority import BATCH, INTERACTIVE
from leap_core.inference.engine.batch_plan import (
    ATTENTION_TILE,
    LEAST_CHUNK,
    LONG_STEP,
    PAUSED_STEPS,
    PROMISE,
    PROMISE_ALONE,
    PROMISE_BESIDE_HIGHER,
    PROMISE_PAUSED,
    UNTIL_KNOWN,
    Planner,
    PromptPace,
    plan_step,
)
from leap_core.inference.engine.slots import Slot

from .conftest import request


def timed(speed: float) -> PromptPace:
    pace = PromptPace()
    for _ in range(20):
        pace.observe(256, 256 / speed)
    return pace


def test_the_chunk_size_follows_from_speed_and_target_time() -> None:
    assert PromptPace().most_positions(PROMISE_ALONE, 512) == UNTIL_KNOWN
    assert PromptPace().most_positions(PROMISE, 512) == LONG_STEP
    assert timed(400).most_positions(PROMISE_ALONE, 512) == 512
    assert timed(200).most_positions(PROMISE_ALONE, 512) == int(200 * PROMISE_ALONE)
    assert timed(400).most_positions(PROMISE_PAUSED, 512) == int(400 * PROMISE_PAUSED)
    assert timed(400).most_positions(PROMISE, 512) == int(400 * PROMISE)
    assert timed(4000).most_positions(PROMISE, 512) == 512
    assert timed(10).most_positions(PROMISE_ALONE, 512) == LONG_STEP + 1
    assert timed(60).most_positions(PROMISE, 512) == 15
    assert timed(30).most_positions(PROMISE_ALONE, 512) == 60
    assert timed(30).most_positions(PROMISE_PAUSED, 512) == LONG_STEP + 1
    assert timed(35).most_positions(PROMISE_PAUSED, 512) == ATTENTION_TILE
    assert timed(70).most_positions(PROMISE_PAUSED, 48) == 35
    assert timed(10).most_positions(PROMISE, 512) == LEAST_CHUNK


def reading(*lengths: int, priorities: tuple[int, ...] = ()) -> list[Slot]:
    """Slots whose requests have prompts of these lengths, in the order in which they came."""
    slots = []
    for n, length in enumerate(lengths):
        slot = Slot(n)
        slot.request, slot.last_used = request([1] * length), n
        slot.request.priority = priorities[n] if priorities else INTERACTIVE
        slots.append(slot)
    return slots


def answering(slot: Slot) -> Slot:
    """The prompt of this slot is read."""
    assert slot.request is not None
    slot.keys = [1] * (len(slot.request.target) - 1)
    return slot


def planned(slots: list[Slot], pace: PromptPace) -> dict[int, int]:
    """How many positions of each slot the next step computes."""
    return {part.slot.index: part.count for parts in plan_step(slots, 512, pace) for part in parts}


def test_a_prompt_beside_an_answer_or_another_prompt_is_read_in_shorter_chunks() -> None:
    assert planned(reading(24_000), timed(400)) == {0: int(400 * PROMISE_PAUSED)}
    long, answer = reading(24_000, 40)
    assert planned([long, answering(answer)], timed(400)) == {0: int(400 * PROMISE), 1: 1}
    batch, answer = reading(24_000, 40, priorities=(BATCH, INTERACTIVE))
    assert planned([batch, answering(answer)], timed(400)) == {0: int(400 * PROMISE_BESIDE_HIGHER), 1: 1}
    batch, answer = reading(24_000, 40, priorities=(BATCH, BATCH))
    assert planned([batch, answering(answer)], timed(400)) == {0: int(400 * PROMISE), 1: 1}


def test_a_prompt_that_nobody_waits_for_is_read_in_the_largest_chunks() -> None:
    def chunks(slots: list[Slot]) -> dict[int, int]:
        (parts,) = plan_step(slots, 512, timed(300), PROMISE_ALONE)
        return {part.slot.index: part.count for part in parts}

    assert chunks(reading(24_000)) == {0: 512}
    long, answer = reading(24_000, 40)
    assert chunks([long, answering(answer)]) == {0: int(300 * PROMISE), 1: 1}
    assert chunks(reading(24_000, 24_000)) == {0: 37, 1: 38}


def test_prompts_of_a_higher_level_are_read_first() -> None:
    slots = reading(24_000, 20, 24_000, priorities=(BATCH, BATCH, INTERACTIVE))
    assert planned(slots, timed(400)) == {0: 25, 2: 75}


class Context:
    batch_size, exact = 512, False


def test_lower_levels_pause_while_a_short_prompt_is_read() -> None:
    slots = reading(40, 40, 150, priorities=(BATCH, BATCH, INTERACTIVE))
    for slot in slots[:2]:
        answering(slot)
    planner = Planner(Context(), timed(400))  # type: ignore[arg-type]

    def step() -> set[int]:
        return {part.slot.index for parts in planner.plan(slots) for part in parts}

    steps = [step() for _ in range(2 * PAUSED_STEPS + 2)]
    assert steps == [*[{2}] * PAUSED_STEPS, {0, 1, 2}] * 2, "they do not pause without end"
    answering(slots[2])
    assert step() == {0, 1, 2}
    slots[2].request = request([1] * 5000)
    assert step() == {0, 1, 2}, "it is long"


def test_a_step_is_at_most_twice_as_large_as_one_that_was_timed() -> None:
    pace = PromptPace()
    for size in (128, 256, 512, 1024):
        pace.observe(size, size / 100_000)
        pace.observe(40, 40 / 100_000)
        assert pace.most_positions(PROMISE, 4096) == 2 * size
    pace.observe(2048, 5.0)
    assert pace.most_positions(PROMISE_ALONE, 4096) == 1024, "it took too long"


def test_a_machine_that_was_slow_for_a_while_reads_long_steps_again() -> None:
    pace = timed(10)
    for _ in range(40):
        size = pace.most_positions(PROMISE, 512)
        pace.observe(size, size / 2000)
    assert pace.most_positions(PROMISE, 512) >= 490


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    assert planned(reading(24_000, 34), timed(400)) == {0: 66, 1: 34}
    assert planned(reading(24_000, 3000, 34, 20), timed(400)) == {0: 50, 3: 20, 2: 30}


def test_a_small_batch_reads_a_prompt_to_its_end() -> None:
    (slot,) = slots = reading(40)
    while left := 40 - len(slot.keys):
        (parts,) = plan_step(slots, 16, timed(400))
        assert 0 < parts[0].count <= min(left, 16)
        slot.keys += [1] * parts[0].count


def test_short_prompts_without_end_do_not_keep_a_long_one_waiting() -> None:
    assert planned(reading(24_000, *[90] * 30), timed(400))[0] == 50
    assert planned(reading(30, 24_000), timed(400)) == {0: 30, 1: 70}


@pytest.mark.parametrize("speed", [100, 170, 399, 1000])
@pytest.mark.parametrize("length", [300, 481, 513, 545, 600])
def test_a_prompt_read_alone_has_no_tiny_last_chunk(length: int, speed: float) -> None:
    (slot,) = slots = reading(length)
    while left := length - len(slot.keys):
        count = planned(slots, timed(speed))[0]
        assert LONG_STEP <= count <= min(left, 512)
        slot.keys += [1] * count


def test_answer_steps_are_not_timed_and_a_slower_machine_is_noticed() -> None:
    pace = timed(400)
    assert pace.most_positions(PROMISE, 512) == int(400 * PROMISE)
    pace.observe(16, 10.0)
    assert pace.most_positions(PROMISE, 512) == int(400 * PROMISE)
    for _ in range(20):
        pace.observe(128, 1.28)
    assert pace.most_positions(PROMISE, 512) <= 55
