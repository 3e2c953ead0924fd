"""All that an evaluation says, ready to be shown."""

from __future__ import annotations

from ..json_fields import JsonObject
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import LeapSerializationError
from .comparison import (
    ALPHA,
    ColumnSummary,
    Comparison,
    columns_of,
    compare,
    compare_all,
    corrected,
    groups_of,
    summary_of,
)
from .evaluation_results import CaseResult



@dataclass(frozen=True)
class Regression:
    """A column against what it was. ``others``: cases that only one side has."""

    column: str
    before: str
    comparison: Comparison
    others: int

    def is_worse(self, alpha: float) -> bool:
        """Whether it got worse, with significance."""
        return self.comparison.difference < 0 and self.comparison.differs(alpha)

    def sentence(self, alpha: float) -> str:
        """What it says, for people."""
        each = self.comparison
        changed = "is worse than" if self.is_worse(alpha) else "cannot be told apart from"
        if each.difference > 0 and each.differs(alpha):
            changed = "is better than"
        left_out = f"; {self.others} cases are only in one of both and were left out" if self.others else ""
        return (
            f"{self.column} {changed} the earlier {self.before} over {each.cases} cases ({each.difference:+.1%}, "
            f"p = {each.p:.3f}; {each.only_second} cases got worse, {each.only_first} better){left_out}"
        )


@dataclass(frozen=True)
class Report:
    """``groups``: passed and all answers by group and column. ``regressions``: against earlier results."""

    results: Sequence[CaseResult]
    facts: JsonObject
    alpha: float
    columns: Sequence[ColumnSummary]
    comparisons: Sequence[Comparison]
    groups: dict[str, dict[str, tuple[int, int]]]
    regressions: Sequence[Regression] = field(default_factory=tuple)

    def to_json(self) -> JsonObject:
        """One document, without the answers themselves."""
        return {
            **self.facts,
            "columns": [self._column(each) for each in self.columns],
            "comparisons": [{**asdict(each), "differs": each.differs(self.alpha)} for each in self.comparisons],
            "groups": {
                group: {column: {"passed": passed, "answers": total} for column, (passed, total) in counts.items()}
                for group, counts in self.groups.items()
            },
            "regressions": [
                {**asdict(each.comparison), "before": each.before, "worse": each.is_worse(self.alpha)}
                for each in self.regressions
            ],
            "alpha": self.alpha,
        }

    def _column(self, summary: ColumnSummary) -> JsonObject:
        about: JsonObject = next(
            (each for each in self.facts.get("columns", ()) if each.get("name") == summary.name), {}
        )
        return {**about, **asdict(summary)}

    @property
    def sentences(self) -> list[str]:
        """What can be told apart, and what got worse, for people."""
        regressions = [each.sentence(self.alpha) for each in self.regressions]
        return [*(each.sentence(self.alpha) for each in self.comparisons), *regressions]


def report_of(
    results: Sequence[CaseResult], facts: JsonObject, alpha: float = ALPHA, before: Sequence[CaseResult] | None = None
) -> Report:
    """What the results say. ``before``: earlier ones to compare with. Raises LeapSerializationError where these have
    no column or no case in common."""
    columns = columns_of(results)
    memory = {each.get("name"): each.get("memory") for each in facts.get("columns", ())}
    summaries = [summary_of(name, each, memory.get(name)) for name, each in columns.items()]
    regressions = () if before is None else _regressions(columns_of(before), columns)
    return Report(results, facts, alpha, summaries, compare_all(columns), groups_of(results), regressions)


def selected(
    results: Sequence[CaseResult],
    *,
    cases: Collection[str] = (),
    failed: bool = False,
    differs: tuple[str, str] | None = None,
) -> list[CaseResult]:
    """The answers to those cases, one case after the other. ``failed``: to cases that some column failed. ``differs``:
    to cases of which one of two columns passed more than the other."""
    by_case: dict[str, list[CaseResult]] = {}
    for each in results:
        by_case.setdefault(each.case, []).append(each)
    found = []
    for case, answers in by_case.items():
        if cases and case not in cases:
            continue
        if failed and all(each.passed for each in answers):
            continue
        if differs:
            counts = [sum(each.passed for each in answers if each.column == name) for name in differs]
            if counts[0] == counts[1]:
                continue
            answers = [each for each in answers if each.column in differs]
        found += answers
    return found


def _regressions(before: dict[str, list[CaseResult]], now: dict[str, list[CaseResult]]) -> list[Regression]:
    """Each column against the earlier one of its name, or the only one against the only one."""
    pairs = [(name, name) for name in now if name in before]
    if not pairs and len(before) == len(now) == 1:
        pairs = [(next(iter(now)), next(iter(before)))]
    if not pairs:
        raise LeapSerializationError(
            f"the earlier results have none of these columns: they have {', '.join(before)}",
            hint="compare a column of the same name, or one column with one",
        )
    comparisons = corrected([compare(now[new], before[old]) for new, old in pairs])
    regressions = []
    for (new, old), each in zip(pairs, comparisons, strict=True):
        if not each.cases:
            raise LeapSerializationError(f"the earlier results of {old} have none of these cases")
        cases = {one.case for one in now[new]} ^ {one.case for one in before[old]}
        regressions.append(Regression(new, old, each, len(cases)))
    return regressions
