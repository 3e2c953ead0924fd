"""The order of waiting requests, by a clock of the test's own."""

from __future__ import annotations

import random

import pytest

from leap_core.conversation.priority import BACKGROUND, BATCH, INTERACTIVE, level_of, of_job
from leap_core.inference.engine.request import Request
from leap_core.inference.engine.slots import Slot
from leap_core.inference.engine.waiting import (
    GUARD_SECONDS,
    PAUSE_SECONDS,
    RISE_SECONDS,
    SHARE_OF_TIME,
    Preemption,
    WaitingOrder,
)

from .conftest import request


def asked(priority: int, at: float = 0.0) -> Request:
    made = request([1, 2, 3])
    made.priority, made.created, made.waiting_since = priority, at, at
    return made


@pytest.mark.parametrize(
    ("priority", "level"),
    [
        *((100, "interactive"), (0, "interactive"), (-9, "interactive")),
        *((-10, "background"), (-20, "batch"), (-100, "batch")),
    ],
)
def test_priorities_map_to_levels(priority: int, level: str) -> None:
    assert level_of(priority) == level == asked(priority).level


def test_jobs_of_a_higher_priority_come_first() -> None:
    assert of_job(0) == BATCH and of_job(10) == of_job(1000) == BACKGROUND and of_job(1) > of_job(0) > of_job(-1)


def test_requests_are_ordered_by_level_then_by_age() -> None:
    batch, late, early, server = asked(BATCH, 0), asked(INTERACTIVE, 9), asked(INTERACTIVE, 8), asked(BACKGROUND, 1)
    assert WaitingOrder().sorted([batch, late, early, server], 10) == [early, late, server, batch]


def test_a_waiting_request_is_promoted() -> None:
    order = WaitingOrder()
    batch, server, chat = asked(BATCH, 0), asked(BACKGROUND, 20), asked(INTERACTIVE, 50)
    assert order.sorted([batch, server, chat], RISE_SECONDS - 1)[0] is chat
    assert order.sorted([batch, server], RISE_SECONDS - 1) == [server, batch]
    assert order.sorted([batch, server], RISE_SECONDS) == [batch, server], "as old as the server's, of one level now"
    assert order.sorted([batch, server, chat], 2 * RISE_SECONDS) == [batch, chat, server]


def test_promoted_requests_get_every_fourth_slot() -> None:
    order = WaitingOrder()
    waiting = [asked(BATCH, n) for n in range(3)] + [asked(INTERACTIVE, 200 + n) for n in range(9)]
    begun = []
    while waiting:
        begun.append(chosen := order.sorted(waiting, 300)[0])
        waiting.remove(chosen)
        order.begins(chosen, waiting, 300)
    assert [each.priority for each in begun] == [BATCH, *[0] * 3, BATCH, *[0] * 3, BATCH, *[0] * 3]
    assert begun[0].keeps_slot_until == 300 + GUARD_SECONDS and begun[1].keeps_slot_until == 0


def test_only_a_promoted_request_keeps_its_slot() -> None:
    """A batch may begin while a prompt of a higher level waits for a prefix that another one computes."""
    order = WaitingOrder()
    batch, chat = asked(BATCH, 0), asked(INTERACTIVE, 0)
    order.begins(batch, [chat], 1)
    assert batch.keeps_slot_until == 0 and order.sorted([asked(BATCH, -100), chat], 1)[0] is not chat


def test_a_waiting_request_is_promoted_above_any_priority() -> None:
    order = WaitingOrder()
    chat, batch = asked(INTERACTIVE, 0), asked(BATCH, 0)
    for waiting, seconds in ((chat, 11 * RISE_SECONDS), (batch, 13 * RISE_SECONDS)):
        hasty = asked(100, seconds)
        assert order.sorted([hasty, waiting], seconds)[0] is waiting
        order = WaitingOrder()


def slots(*priorities: int) -> list[Slot]:
    made = []
    for n, priority in enumerate(priorities):
        slot = Slot(n)
        slot.request, slot.last_used = asked(priority), n
        made.append(slot)
    return made


def test_the_preempted_request_is_chosen_by_level_and_age() -> None:
    running = slots(INTERACTIVE, BATCH, BACKGROUND, BATCH)
    assert Preemption().victim(asked(INTERACTIVE), running, 1) is running[3]
    assert running[3].request is not None
    running[3].request.keeps_slot_until = 2
    assert Preemption().victim(asked(INTERACTIVE), running, 1) is running[1]
    assert Preemption().victim(asked(BACKGROUND), running, 2) is running[3]
    assert Preemption().victim(asked(BATCH), running, 2) is None


def test_preemptions_have_pauses_between() -> None:
    preemption, running = Preemption(), slots(BATCH)
    preemption.note(10.0, 10.001)
    assert preemption.victim(asked(INTERACTIVE), running, 10 + PAUSE_SECONDS / 2) is None
    assert preemption.victim(asked(INTERACTIVE), running, 10.002 + PAUSE_SECONDS) is running[0]
    preemption.note(20.0, 21.0)
    assert preemption.victim(asked(INTERACTIVE), running, 21 + SHARE_OF_TIME - 0.1) is None
    assert preemption.victim(asked(INTERACTIVE), running, 21 + SHARE_OF_TIME + 0.1) is running[0]


@pytest.mark.parametrize("slots_there", [1, 2, pytest.param(8, marks=pytest.mark.slow)])
def test_every_line_ends_beside_an_hour_of_chats(slots_there: int) -> None:
    """More chats than the slots can answer, all the time; a batch keeps as many lines as slots and two more waiting."""
    rng = random.Random(slots_there)
    order, preemption = WaitingOrder(), Preemption()
    waiting: list[Request] = []
    running: list[Request] = []
    left: dict[Request, float] = {}
    lines = [asked(BATCH, 0) for _ in range(60 * slots_there)]
    unsent = list(lines)
    now = 0.0
    while now < 3600 and any(each not in left or left[each] > 0 for each in lines):
        while unsent and sum(each.priority == BATCH for each in [*waiting, *running]) < slots_there + 2:
            line = unsent.pop()
            line.created = line.waiting_since = now
            left[line] = 4.0
            waiting.append(line)
        while sum(each.priority == INTERACTIVE for each in waiting) < 4:
            chat = asked(INTERACTIVE, now)
            left[chat] = rng.uniform(1.0, 4.0)
            waiting.append(chat)
        begin(order, preemption, waiting, running, slots_there, now)
        now += 0.25
        for each in list(running):
            left[each] -= 0.25
            if left[each] <= 0:
                running.remove(each)
    assert now < 3600 and not unsent and all(left[each] <= 0 for each in lines)


@pytest.mark.parametrize("slots_there", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pause", [0.05, 0.5])
def test_every_line_ends_beside_an_hour_of_chats_with_pauses(slots_there: int, pause: float) -> None:
    """Each client asks anew soon after its last answer, so no chat waits when a line gets a slot, and the next one
    preempts the line before it got further: to put its state back takes as long as the pause."""
    order, preemption = WaitingOrder(), Preemption()
    lines = [asked(BATCH) for _ in range(2 * slots_there)]
    left = dict.fromkeys(lines, 40.0)
    waiting, running = list(lines), list[Request]()
    restored: dict[Request, float] = {}
    asks_at = dict.fromkeys(range(slots_there), 0.0)
    clients: dict[Request, int] = {}
    now, tick = 0.0, 0.05
    while now < 3600 and any(left[each] > 0 for each in lines):
        for client in [client for client, at in asks_at.items() if at <= now]:
            del asks_at[client]
            clients[chat := asked(INTERACTIVE, now)] = client
            left[chat] = 4.0
            waiting.append(chat)
        before = set(running)
        begin(order, preemption, waiting, running, slots_there, now)
        restored |= {each: now + pause for each in running if each not in before and each in lines}
        now += tick
        for each in [each for each in running if now > restored.get(each, 0.0)]:
            left[each] -= tick
            if left[each] <= 0:
                running.remove(each)
                if each in clients:
                    asks_at[clients[each]] = now + pause
    assert now < 3600
    assert max(each.preempted for each in lines) <= 100


def test_waiting_counts_on_until_a_line_had_a_slot_for_long_enough() -> None:
    order, line = WaitingOrder(), asked(BATCH)
    order.begins(line, [], 20)
    line.enter_queue(21, GUARD_SECONDS)
    assert order.sorted([asked(BACKGROUND, 20), line], 32)[0] is line, "20 and 11 seconds"
    order.begins(line, [], 32)
    line.enter_queue(32 + GUARD_SECONDS, GUARD_SECONDS)
    assert order.sorted([asked(BACKGROUND, 20), line], 70)[0] is not line, "it was computed for eleven seconds"


def begin(
    order: WaitingOrder, preemption: Preemption, waiting: list[Request], running: list[Request], most: int, now: float
) -> None:
    """What the scheduler does at the begin of a step."""
    held = []
    for n, each in enumerate(running):
        held.append(slot := Slot(n))
        slot.request, slot.last_used = each, n
    chat = next((each for each in waiting if each.priority == INTERACTIVE), None)
    victim = preemption.victim(chat, held, now) if chat is not None and len(running) == most else None
    if chat is not None and victim is not None and victim.request is not None:
        running.remove(victim.request)
        victim.request.preempted += 1
        victim.request.enter_queue(now, GUARD_SECONDS)
        waiting.append(victim.request)
        preemption.note(now, now)
        order.begins(chat, waiting, now)
        waiting.remove(chat)
        running.append(chat)
    for each in order.sorted(waiting, now)[: most - len(running)]:
        waiting.remove(each)
        order.begins(each, waiting, now)
        running.append(each)
