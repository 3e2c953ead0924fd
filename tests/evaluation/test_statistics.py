"""Intervals and tests against values that scipy 1.17 gives: proportion_ci(method="wilson") and binomtest."""

from __future__ import annotations

import pytest

from leap_core.evaluation.results import CaseResult, bootstrap_mean, compare, holm, mcnemar, sign_flip, wilson

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
def test_wilson_intervals(passed, total, low, high):
    assert wilson(passed, total) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(("first", "second", "p"), MCNEMAR)
def test_mcnemar_p_values(first, second, p):
    assert mcnemar(first, second) == mcnemar(second, first) == pytest.approx(p, abs=1e-6)


@pytest.mark.slow
def test_mcnemar_of_more_cases_than_a_float_can_count():
    assert 0 < mcnemar(1000, 1200) < 0.0001 and mcnemar(1100, 1100) == 1.0


def test_no_cases_give_the_widest_interval():
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


def test_weights_change_a_mean():
    low, high = bootstrap_mean([0.0, 1.0] * 50, [1.0, 3.0] * 50)
    assert low < 0.75 < high


def test_flipped_signs_as_in_a_textbook():
    """Fisher's fifteen pairs of maize, in eighths of an inch, of which scipy 1.17 gives p = 0.0526."""
    maize = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    assert sign_flip(maize) == pytest.approx(0.0526, abs=0.004)
    assert sign_flip([0.1, 0.2, 0.3]) == 2 / 8 and sign_flip([0.5, -0.5] * 20) > 0.5
    assert sign_flip([0.0] * 9) == sign_flip([]) == 1.0
    assert sign_flip([0.1, 0.2, 0.3] * 5) == sign_flip([-0.1, -0.2, -0.3] * 5) < 0.001


@pytest.mark.parametrize(("first", "second"), [(5, 1), (8, 2), (9, 4), (15, 5)])
def test_flipped_signs_of_yes_and_no_are_mcnemar(first, second):
    assert sign_flip([1.0] * first + [-1.0] * second + [0.0] * 7) == pytest.approx(mcnemar(first, second), abs=0.006)


def test_few_cases_give_no_significance_by_grades_or_weights():
    """A bootstrap of three cases calls this sure; of eight patterns of signs two do as much."""
    graded = [[CaseResult(f"c{n}", name, score=score) for n in range(3)] for name, score in (("a", 0.9), ("b", 0.4))]
    assert compare(*graded).p == 0.25 and compare(*graded).p_better == 0.125 and compare(*graded[::-1]).p_better == 1.0
    one = CaseResult("heavy", "a", weight=1000.0, score=1.0), CaseResult("heavy", "b", weight=1000.0)
    others = [[CaseResult(f"c{n}", name, score=0.5) for n in range(9)] for name in ("a", "b")]
    assert compare([one[0], *others[0]], [one[1], *others[1]]).p == 1.0
