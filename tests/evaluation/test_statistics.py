"""Intervals and tests against values that scipy 1.17 gives: proportion_ci(method="wilson") and binomtest."""

from __future__ import annotations

import pytest

from leap_core.evaluation.results import bootstrap_difference, bootstrap_mean, holm, mcnemar, wilson

WILSON = [
    (71, 100, 0.614611, 0.789852),
    (28, 100, 0.201397, 0.37488),
    (80, 100, 0.711171, 0.866633),
    (93, 100, 0.862505, 0.965681),
    (320, 400, 0.75803, 0.836263),
    (1600, 2000, 0.781902, 0.816948),
    (10, 10, 0.722467, 1.0),
    (0, 10, 0.0, 0.277533),
    (1, 2, 0.094531, 0.905469),
    (5, 9, 0.266651, 0.811221),
]
MCNEMAR = [
    (5, 0, 0.0625),
    (6, 0, 0.03125),
    (8, 2, 0.109375),
    (10, 3, 0.092285),
    (15, 5, 0.041389),
    (0, 0, 1.0),
    (1, 1, 1.0),
    (3, 17, 0.002577),
    (40, 61, 0.046044),
    (120, 80, 0.005685),
]


@pytest.mark.parametrize(("passed", "total", "low", "high"), WILSON)
def test_wilson(passed, total, low, high):
    assert wilson(passed, total) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(("first", "second", "p"), MCNEMAR)
def test_mcnemar(first, second, p):
    assert mcnemar(first, second) == mcnemar(second, first) == pytest.approx(p, abs=1e-6)


@pytest.mark.slow
def test_mcnemar_of_more_cases_than_a_float_can_count():
    assert 0 < mcnemar(1000, 1200) < 0.0001 and mcnemar(1100, 1100) == 1.0


def test_nothing_allows_to_say_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


def test_holm_as_in_a_textbook():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_the_bootstrap_of_a_mean_is_repeatable_and_near_the_normal_interval():
    values = [0.0, 0.25, 0.5, 0.75, 1.0] * 20
    low, high = bootstrap_mean(values)
    assert (low, high) == bootstrap_mean(values)
    half = 1.96 * (0.125 / 100) ** 0.5  # the variance of these five values is 0.125
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.01)
    assert bootstrap_mean([1.0] * 5) == (1.0, 1.0)


def test_weights_move_a_mean():
    low, high = bootstrap_mean([0.0, 1.0] * 50, [1.0, 3.0] * 50)
    assert low < 0.75 < high


def test_differences_that_are_all_on_one_side_are_no_chance():
    assert bootstrap_difference([0.1, 0.2, 0.3] * 5) == pytest.approx(2 / 10_000)
    assert bootstrap_difference([0.0] * 9) == 1.0
    assert bootstrap_difference([0.5, -0.5] * 20) > 0.5
