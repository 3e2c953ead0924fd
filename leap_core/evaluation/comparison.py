"""The table of an evaluation: how each column did, which can be told apart, and which got worse than before."""

from __future__ import annotations

from ..json_fields import JsonObject
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median
from typing import Any

from .evaluation_results import CaseResult
from .significance import bootstrap_difference, bootstrap_mean, holm, mcnemar, wilson

ALPHA = 0.05
MCNEMAR, BOOTSTRAP = "exact McNemar", "bootstrap over cases"


@dataclass(frozen=True)
class ColumnSummary:
    """``rate``: the mean score of the cases, by weight; ``low`` and ``high``: its 95 % interval. ``passed``: answers as
    expected, of ``answers``; ``errors``: cases without an answer. Speeds are medians over answers, as they were while
    others were answered at the same time."""

    name: str
    cases: int
    answers: int
    passed: int
    errors: int
    rate: float
    low: float
    high: float
    interval: str
    tokens: int
    tokens_per_second: float | None
    first_token: float | None
    memory: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Two columns over the same cases. ``p``: how often chance alone does as much, corrected for the number of
    comparisons by Holm. ``only_first``: cases that only the first passed."""

    first: str
    second: str
    cases: int
    difference: float
    only_first: int
    only_second: int
    p: float
    test: str

    def differs(self, alpha: float) -> bool:
        """Whether the two can be told apart."""
        return self.p < alpha

    def sentence(self, alpha: float) -> str:
        """What it says, for people."""
        cases = "1 case" if self.cases == 1 else f"{self.cases} cases"
        numbers = f"p = {self.p:.3f}" if self.p >= 0.001 else "p < 0.001"
        counts = f"{self.only_first} cases only the first passed, {self.only_second} only the second"
        if not self.differs(alpha):
            return f"{self.first} and {self.second} cannot be told apart over {cases} ({numbers}; {counts})"
        better, worse = (self.first, self.second) if self.difference > 0 else (self.second, self.first)
        return f"{better} is better than {worse} over {cases} ({numbers}; {counts})"


def columns_of(results: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    """The results by column, in the order in which they come."""
    columns: dict[str, list[CaseResult]] = {}
    for each in results:
        columns.setdefault(each.column, []).append(each)
    return columns


def summary_of(name: str, results: Sequence[CaseResult], memory: int | None = None) -> ColumnSummary:
    """How a column did."""
    scores, weights = _by_case(results)
    values, shares = list(scores.values()), [weights[case] for case in scores]
    rate = sum(map(_product, values, shares)) / sum(shares) if shares else 0.0
    if _are_yes_or_no(values) and len(set(shares)) <= 1:
        (low, high), interval = wilson(int(sum(values)), len(values)), "Wilson"
    else:
        (low, high), interval = bootstrap_mean(values, shares), BOOTSTRAP
    speeds = [each.tokens_per_second for each in results if each.tokens_per_second]
    firsts = [each.first_token for each in results if each.first_token]
    return ColumnSummary(
        name,
        len(values),
        len(results),
        sum(each.passed for each in results),
        sum(each.error is not None for each in results),
        rate,
        low,
        high,
        interval,
        sum(each.tokens for each in results),
        median(speeds) if speeds else None,
        median(firsts) if firsts else None,
        memory,
    )


def compare(first: Sequence[CaseResult], second: Sequence[CaseResult]) -> Comparison:
    """Two columns over the cases that both have."""
    one, weights = _by_case(first)
    other, _ = _by_case(second)
    both = [case for case in one if case in other]
    differences = [one[case] - other[case] for case in both]
    shares = [weights[case] for case in both]
    only_first, only_second = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    plain = _are_yes_or_no([*one.values(), *other.values()]) and len(set(shares)) <= 1
    p = mcnemar(only_first, only_second) if plain else bootstrap_difference(differences, shares)
    mean = sum(map(_product, differences, shares)) / sum(shares) if shares else 0.0
    names = first[0].column, second[0].column
    return Comparison(*names, len(both), mean, only_first, only_second, p, MCNEMAR if plain else BOOTSTRAP)


def compare_all(columns: Mapping[str, Sequence[CaseResult]]) -> list[Comparison]:
    """Every pair of columns, with p corrected for their number."""
    return corrected([compare(one, other) for one, other in combinations(columns.values(), 2)])


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with p by Holm."""
    values = holm([each.p for each in comparisons])
    return [Comparison(**{**asdict(each), "p": p}) for each, p in zip(comparisons, values, strict=True)]


def groups_of(results: Sequence[CaseResult]) -> dict[str, dict[str, tuple[int, int]]]:
    """Passed and all answers by group and column; empty where no case has a group."""
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for each in results:
        if each.group is not None:
            passed, total = counts[each.group].get(each.column, (0, 0))
            counts[each.group][each.column] = (passed + each.passed, total + 1)
    return dict(counts)


def _by_case(results: Sequence[CaseResult]) -> tuple[dict[str, float], dict[str, float]]:
    """The mean score of each case over its repeats, and its weight."""
    scores: dict[str, list[float]] = {}
    for each in results:
        scores.setdefault(each.case, []).append(each.score)
    return {case: sum(values) / len(values) for case, values in scores.items()}, {
        each.case: each.weight for each in results
    }


def _are_yes_or_no(values: Sequence[float]) -> bool:
    return all(value in (0.0, 1.0) for value in values)


def _product(one: float, other: float) -> float:
    return one * other
