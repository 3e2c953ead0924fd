"""How long a chunk of a prompt may be beside running answers."""

from __future__ import annotations

from leap_core.inference.engine.batch_plan import LONG_STEP, PROMISE, PROMISE_IN_A_CROWD, UNTIL_KNOWN, PromptPace


def timed(speed: float) -> PromptPace:
    pace = PromptPace()
    for _ in range(20):
        pace.observe(256, 256 / speed)
    return pace


def test_nobody_waits_where_no_answer_runs() -> None:
    assert PromptPace().most_positions(0, 4, 512) == timed(10).most_positions(0, 4, 512) == 512


def test_a_running_answer_waits_for_a_time_and_not_for_a_count() -> None:
    assert PromptPace().most_positions(8, 1, 512) == UNTIL_KNOWN
    assert timed(400).most_positions(8, 1, 512) == int(400 * PROMISE)
    assert timed(4000).most_positions(8, 1, 512) == 512
    assert timed(10).most_positions(8, 1, 512) == LONG_STEP


def test_prompts_that_come_together_are_read_together() -> None:
    assert timed(300).most_positions(1, 15, 512) == int(300 * PROMISE_IN_A_CROWD)
    assert timed(300).most_positions(9, 7, 512) == int(300 * PROMISE_IN_A_CROWD)
    assert timed(300).most_positions(15, 1, 512) == int(300 * PROMISE)


def test_steps_of_answers_say_nothing_and_a_slower_machine_is_noticed() -> None:
    pace = timed(400)
    pace.observe(16, 10.0)
    assert pace.most_positions(8, 1, 512) == int(400 * PROMISE)
    for _ in range(20):
        pace.observe(128, 1.28)
    assert pace.most_positions(8, 1, 512) <= 33
