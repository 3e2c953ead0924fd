"""Which process of a cluster has which lines, and the line that its processes die of, without a cluster."""

from __future__ import annotations

import random

from leap_core.batch.clusters.ray_workers import MOST_DEATHS, MOST_LOSSES, Hand, HandingOut


def handing_out(count: int, size: int) -> HandingOut:
    return HandingOut(((n, None) for n in range(count)), size)  # type: ignore[misc]


def test_lines_of_a_lost_process_go_to_others_and_late_answers_are_ignored():
    lines, first, second = handing_out(5, 3), Hand(), Hand()
    assert [place for place, _ in lines.fill(first)] == [0, 1, 2] and lines.fill(first) == []
    assert lines.answered(first, 1) and not lines.answered(first, 1)
    assert lines.lost(first) == [] and not first
    assert [place for place, _ in lines.fill(second)] == [0, 2, 3]
    assert not lines.answered(first, 0) and lines.answered(second, 0)


def test_only_the_line_that_kills_its_process_fails_and_all_others_are_answered():
    killer, chance = 17, random.Random(3)
    lines, hands = handing_out(60, 8), [Hand(), Hand(), Hand()]
    answered, given_up, deaths, deaths_in_turn = set(), [], 0, 0
    for _ in range(1000):
        hand = chance.choice(hands)
        lines.fill(hand)
        if killer in hand:
            given_up += [place for place, _ in lines.lost(hand)]
            deaths, deaths_in_turn = deaths + 1, deaths_in_turn + 1
            assert deaths_in_turn <= MOST_DEATHS
        elif hand:
            place = chance.choice(list(hand))
            assert lines.answered(hand, place) and place not in answered
            answered.add(place)
            deaths_in_turn = 0
    assert given_up == [killer] and deaths == MOST_LOSSES < MOST_DEATHS
    assert answered == set(range(60)) - {killer}


def test_lines_are_answered_after_their_processes_are_lost_by_accident():
    lines, hand = handing_out(8, 4), Hand()
    for _ in range(2):
        lines.fill(hand)
        assert lines.lost(hand) == []
    seen = []
    while lines.fill(hand) or hand:
        place = next(iter(hand))
        seen.append((place, hand.is_alone))
        lines.answered(hand, place)
    assert sorted(place for place, _ in seen) == list(range(8))
    assert {place for place, alone in seen if alone} == {0, 1, 2, 3}
