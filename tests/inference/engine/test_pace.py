"""How long a chunk of a prompt may be beside running answers."""

from __future__ import annotations

import pytest

from leap_core.inference.engine.batch_plan import (
    LONG_STEP,
    PROMISE,
    PROMISE_OTHERWISE,
    UNTIL_KNOWN,
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


def test_a_prompt_that_is_read_alone_leaves_room_for_who_may_come() -> None:
    assert PromptPace().most_positions(0, 1, 512) == UNTIL_KNOWN
    assert timed(400).most_positions(0, 1, 512) == int(400 * PROMISE_OTHERWISE)
    assert timed(10).most_positions(0, 4, 512) == LONG_STEP + 1


def reading(*lengths: int) -> list[Slot]:
    """Slots whose requests have prompts of these lengths, in the order in which they came."""
    slots = []
    for n, length in enumerate(lengths):
        slot = Slot(n)
        slot.request, slot.last_used = request([1] * length), n
        slots.append(slot)
    return slots


def planned(slots: list[Slot], pace: PromptPace) -> dict[int, int]:
    """How many positions of each slot the next step computes."""
    return {part.slot.index: part.count for parts in plan_step(slots, 512, pace) for part in parts}


def test_a_step_is_at_most_twice_as_large_as_one_that_was_timed() -> None:
    pace = PromptPace()
    for size in (128, 256, 512, 1024):
        pace.observe(size, size / 100_000)
        pace.observe(40, 40 / 100_000)
        assert pace.most_positions(1, 1, 4096) == 2 * size
    pace.observe(2048, 2.0)
    assert pace.most_positions(1, 1, 4096) == 1024, "it took too long"


def test_a_machine_that_was_slow_for_a_while_reads_long_steps_again() -> None:
    pace = timed(10)
    for _ in range(40):
        size = pace.most_positions(0, 1, 512)
        pace.observe(size, size / 2000)
    assert pace.most_positions(0, 1, 512) == 512


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    assert planned(reading(24_000, 34), timed(400)) == {0: 166, 1: 34}
    assert planned(reading(24_000, 3000, 34, 20), timed(400)) == {0: 100, 3: 20, 2: 34, 1: 46}


def test_a_small_batch_reads_a_prompt_to_its_end() -> None:
    (slot,) = slots = reading(40)
    while left := 40 - len(slot.keys):
        (parts,) = plan_step(slots, 16, timed(400))
        assert 0 < parts[0].count <= min(left, 16)
        slot.keys += [1] * parts[0].count


def test_short_prompts_without_end_do_not_keep_a_long_one_waiting() -> None:
    assert planned(reading(24_000, *[90] * 30), timed(400))[0] == 100
    assert planned(reading(30, 24_000), timed(400)) == {0: 30, 1: 170}


@pytest.mark.parametrize("speed", [100, 170, 399, 1000])
@pytest.mark.parametrize("length", [300, 481, 513, 545, 600])
def test_the_pace_leaves_no_few_positions_of_a_prompt_that_is_read_alone(length: int, speed: float) -> None:
    (slot,) = slots = reading(length)
    while left := length - len(slot.keys):
        count = planned(slots, timed(speed))[0]
        assert LONG_STEP <= count <= min(left, 512)
        slot.keys += [1] * count


def test_a_running_answer_waits_for_a_time_and_not_for_a_count() -> None:
    assert PromptPace().most_positions(8, 1, 512) == UNTIL_KNOWN
    assert timed(400).most_positions(8, 1, 512) == int(400 * PROMISE)
    assert timed(4000).most_positions(8, 1, 512) == 512
    assert timed(10).most_positions(8, 1, 512) == LONG_STEP + 1


def test_prompts_that_come_together_are_read_together() -> None:
    assert timed(300).most_positions(1, 15, 512) == int(300 * PROMISE_OTHERWISE)
    assert timed(300).most_positions(9, 7, 512) == int(300 * PROMISE_OTHERWISE)
    assert timed(300).most_positions(15, 1, 512) == int(300 * PROMISE)


def test_steps_of_answers_say_nothing_and_a_slower_machine_is_noticed() -> None:
    pace = timed(400)
    pace.observe(16, 10.0)
    assert pace.most_positions(8, 1, 512) == int(400 * PROMISE)
    for _ in range(20):
        pace.observe(128, 1.28)
    assert pace.most_positions(8, 1, 512) <= 33
