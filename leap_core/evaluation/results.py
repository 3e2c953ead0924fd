"""What came of each case in each column, which columns can be distinguished, and what the counts allow to say.

Wilson's interval: E. B. Wilson, 1927. McNemar's exact test: the binomial test of the cases in which two columns differ.
The sign-flip test: R. A. Fisher, 1935. Test and bootstrap draw whole cases: repeats of a case are no new cases. Holm's
correction: S. Holm, 1979.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from ..batch.checking import CheckedBatch
from ..errors import LeapSerializationError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from ..system.files import replace_text
from .expectations import JudgedAnswer, Verdict

RESULTS, FACTS = "results.jsonl", "evaluation.json"


@dataclass(frozen=True)
class CaseResult:
    """One answer to one case. ``score``: 1 or 0, or between where an expectation gives grades. ``expectations``: name,
    passed, score and message of each. ``error``: why there is no answer. Times in seconds."""

    case: str
    column: str
    repeat: int = 0
    group: str | None = None
    weight: float = 1.0
    passed: bool = False
    score: float = 0.0
    answer: str = ""
    tool_calls: Sequence[JsonObject] = ()
    finish_reason: str = ""
    tokens: int = 0
    tokens_per_second: float | None = None
    first_token: float | None = None
    expectations: Sequence[JsonObject] = ()
    error: str | None = None
    prompt: str = ""

    def failed(self, error: str) -> CaseResult:
        """The same without an answer."""
        return replace(self, error=error)

    def answered(
        self, answer: JudgedAnswer, verdicts: Sequence[tuple[str, float, Verdict]], stats: Mapping[str, Any]
    ) -> CaseResult:
        """The same with an answer and what was found of it; ``verdicts``: name, weight and verdict."""
        passed = all(verdict.passed for _, _, verdict in verdicts)
        score = float(passed)
        if any(verdict.graded for _, _, verdict in verdicts):
            total = sum(weight for _, weight, _ in verdicts)
            score = sum(weight * verdict.score for _, weight, verdict in verdicts) / total if total else 0.0
        return replace(
            self,
            passed=passed,
            score=score,
            answer=answer.text,
            tool_calls=[{"name": name, "arguments": dict(arguments)} for name, arguments in answer.calls],
            finish_reason=answer.finish,
            tokens=answer.tokens,
            tokens_per_second=stats.get("token_per_second") or None,
            first_token=stats.get("time_to_first_token") or None,
            expectations=[_told(name, verdict) for name, _, verdict in verdicts],
        )

    @property
    def problems(self) -> list[str]:
        """What was not as expected."""
        if self.error is not None:
            return [f"no answer: {self.error}"]
        return [f"{each['expect']}: {each['message']}" for each in self.expectations if not each["passed"]]

    def to_json(self) -> JsonObject:
        """A line of the results."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass
class ColumnFacts:
    """What is known of a column beside its answers. ``fingerprint``: a text that is equal when model, loading and
    template are. ``memory``: bytes that the process grew by with the model, and at least its file's ``size``."""

    name: str
    model: str
    fingerprint: JsonObject = field(default_factory=dict)
    memory: int | None = None
    path: Path | None = None
    size: int = 0

    @staticmethod
    def of(output: Path, name: str, checked: CheckedBatch, size: int) -> ColumnFacts:
        """The facts of a column whose results go to this file; what was measured before is known still."""
        path = output.with_suffix(".facts.json")
        fingerprint = json.loads(checked.fingerprint) if checked.fingerprint.startswith("{") else {}
        facts = ColumnFacts(name, checked.model, fingerprint, None, path, size)
        try:
            kept = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return facts
        if kept.get("fingerprint") == fingerprint:
            facts.memory = kept.get("memory")
        return facts

    def keep(self) -> None:
        """Write them beside the column's results."""
        if self.path is not None:
            replace_text(self.path, json.dumps(self.to_json()))

    def to_json(self) -> JsonObject:
        return {"name": self.name, "model": self.model, "fingerprint": self.fingerprint, "memory": self.memory}


def write_results(directory: Path, results: Iterable[CaseResult], facts: JsonObject) -> None:
    """Keep what came of an evaluation."""
    replace_text(
        directory / RESULTS, "".join(json.dumps(each.to_json(), ensure_ascii=False) + "\n" for each in results)
    )
    replace_text(directory / FACTS, json.dumps(facts, ensure_ascii=False, indent=2) + "\n")


def read_results(place: Path) -> tuple[list[CaseResult], JsonObject]:
    """The results of an evaluation and its facts, from its directory or its file of results. Raises
    LeapSerializationError."""
    path = place / RESULTS if place.is_dir() else place
    names = {each.name for each in fields(CaseResult)}
    try:
        records = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
        if not all(isinstance(each, dict) and {"case", "column"} <= each.keys() for each in records):
            hint = "leap eval CASES asks cases, and leap eval show CASES.eval shows what came of them"
            raise LeapSerializationError(f"{path} has no results of an evaluation", hint=hint)
        results = [CaseResult(**{name: value for name, value in each.items() if name in names}) for each in records]
    except OSError as error:
        hint = "leap eval CASES -m MODEL makes them"
        raise LeapSerializationError(f"cannot read results from {path}: {error.strerror}", hint=hint) from None
    except ValueError as error:
        raise LeapSerializationError(f"{path} has no results of an evaluation: {error}") from None
    if not results:
        raise LeapSerializationError(f"{path} has no results")
    try:
        facts = json.loads(path.with_name(FACTS).read_text("utf-8"))
    except (OSError, ValueError):
        facts = {}
    return results, facts


def _told(name: str, verdict: Verdict) -> JsonObject:
    return {"expect": name, "passed": verdict.passed, "score": verdict.score, "message": verdict.message}


Z_95 = 1.959963984540054
"""The normal distribution's quantile of a two-sided interval of 95 %."""
RESAMPLES = 10_000
MOST_EXACT = 14
SEED = 20260701


def wilson(passed: int, total: int) -> tuple[float, float]:
    """The interval of a share, both ends in 0..1; (0, 1) of nothing."""
    if total == 0:
        return 0.0, 1.0
    share, z = passed / total, Z_95
    width = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / width
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / width
    low = 0.0 if passed == 0 else max(0.0, centre - half)
    high = 1.0 if passed == total else min(1.0, centre + half)
    return low, high


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided exact p of two columns over the same cases: how many only the first passed, and only the second."""
    differing, fewer = only_first + only_second, min(only_first, only_second)
    if differing == 0:
        return 1.0
    tail = sum(math.comb(differing, n) for n in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << differing))


def holm(values: Sequence[float]) -> list[float]:
    """The p values of several tests made at once, corrected, in their order."""
    corrected = [0.0] * len(values)
    greatest = 0.0
    for rank, n in enumerate(sorted(range(len(values)), key=lambda each: values[each])):
        greatest = max(greatest, min(1.0, values[n] * (len(values) - rank)))
        corrected[n] = greatest
    return corrected


def bootstrap_mean(values: Sequence[float], weights: Sequence[float] | None = None) -> tuple[float, float]:
    """The 95 % percentile interval of a weighted mean; one value a case. Its seed is fixed."""
    import numpy

    if not values:
        return 0.0, 0.0
    generator = numpy.random.Generator(numpy.random.PCG64(random.Random(SEED).getrandbits(64)))
    numbers = numpy.asarray(values, dtype=float)
    shares = numpy.ones(len(values)) if weights is None else numpy.asarray(weights, dtype=float)
    means: list[float] = []
    while len(means) < RESAMPLES:  # in pieces, so that a million draws are not held at once
        rows = min(RESAMPLES - len(means), max(1, 1_000_000 // len(values)))
        drawn = generator.integers(0, len(values), size=(rows, len(values)))
        means += ((numbers * shares)[drawn].sum(axis=1) / shares[drawn].sum(axis=1)).tolist()
    low, high = numpy.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def sign_flip(differences: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """The two-sided p of paired differences, one a case: the permutation test that flips their signs. Its size is right
    for any number of cases. All signs are tried for up to MOST_EXACT cases that differ, else RESAMPLES random ones and
    those that were observed."""
    import numpy

    shares = [1.0] * len(differences) if weights is None else weights
    values = numpy.asarray([each * share for each, share in zip(differences, shares, strict=True) if each])
    count = len(values)
    is_exact = count <= MOST_EXACT
    total = 1 << count if is_exact else RESAMPLES
    generator = numpy.random.Generator(numpy.random.PCG64(random.Random(SEED).getrandbits(64)))
    observed, rounding = values.sum(), 1e-9 * abs(values).sum()
    above = below = 0 if is_exact else 1
    rows = max(1, 1_000_000 // max(1, count))
    for start in range(0, total, rows):  # in pieces, so that a million signs are not held at once
        size = min(rows, total - start)
        if is_exact:
            flips = numpy.arange(start, start + size)[:, None] >> numpy.arange(count) & 1
        else:
            flips = generator.integers(0, 2, size=(size, count), dtype=numpy.int8)
        sums = observed - 2 * (flips.astype(float) @ values)
        above += int((sums >= observed - rounding).sum())
        below += int((sums <= observed + rounding).sum())
    return min(1.0, 2 * min(above, below) / (total if is_exact else total + 1))


ALPHA = 0.05
MCNEMAR, SIGN_FLIP, BOOTSTRAP = "exact McNemar", "sign-flip permutation", "bootstrap over cases"


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

    @property
    def p_better(self) -> float:
        """The one-sided p: how often chance alone puts the first at least as far ahead. Both tests are symmetric."""
        return self.p / 2 if self.difference > 0 else 1.0

    def differs(self, alpha: float) -> bool:
        """Whether the two can be distinguished."""
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
    p = mcnemar(only_first, only_second) if plain else sign_flip(differences, shares)
    mean = sum(map(_product, differences, shares)) / sum(shares) if shares else 0.0
    names = first[0].column, second[0].column
    return Comparison(*names, len(both), mean, only_first, only_second, p, MCNEMAR if plain else SIGN_FLIP)


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
