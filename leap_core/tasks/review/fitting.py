"""Thresholds of doubt, fitted on what people decided: chosen on one half of the documents, measured on the other."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from ...errors import LeapError
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from ..evidence.evidence import Thresholds, field_of, is_doubtful
from .documents import ABSENT, CORRECT, REJECT, ReviewedDocument

LEAST_VALUES = 20
"""Decided values, below which nothing is fitted."""
OWN_VALUES = 20
"""Values of a field from which it has a threshold of its own."""
ROUNDS = 3
"""Times that the fields' thresholds are chosen anew, because each depends on the others."""


@dataclass(frozen=True)
class ReviewedValue:
    """A value that a person decided about, and whether it was wrong."""

    entry: Mapping[str, Any]
    wrong: bool


@dataclass(frozen=True)
class Figures:
    """How well flags find wrong values: of ``values`` some are ``wrong``, some ``flagged``, some both (``found``)."""

    values: int
    wrong: int
    flagged: int
    found: int

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.values + other.values, self.wrong + other.wrong, self.flagged + other.flagged, self.found + other.found
        )

    @property
    def precision(self) -> float | None:
        """The part of the flagged values that is wrong; None where nothing is flagged."""
        return self.found / self.flagged if self.flagged else None

    @property
    def recall(self) -> float | None:
        """The part of the wrong values that is flagged; None where nothing is wrong."""
        return self.found / self.wrong if self.wrong else None

    @property
    def score(self) -> float:
        """F1, the harmonic mean of both."""
        return 2 * self.found / (self.flagged + self.wrong) if self.flagged + self.wrong else 0.0

    def to_json(self) -> JsonObject:
        """The counts and the two parts."""
        counts = {"values": self.values, "wrong": self.wrong, "flagged": self.flagged, "found": self.found}
        return {**counts, "precision": self.precision, "recall": self.recall}


NOTHING = Figures(0, 0, 0, 0)


@dataclass(frozen=True)
class FittedThresholds:
    """Fitted thresholds. ``documents``: of the fitted and of the held-back half; ``fitted``: its figures with them;
    ``before`` and ``after``: those of the held-back half."""

    thresholds: Thresholds
    documents: tuple[int, int]
    fitted: Figures
    before: Figures
    after: Figures

    def to_json(self) -> JsonObject:
        """The thresholds, and what they were measured on."""
        half = {"documents": self.documents[0], **self.fitted.to_json()}
        held = {"documents": self.documents[1], "before": self.before.to_json(), "after": self.after.to_json()}
        return {"thresholds": self.thresholds.to_json(), "fitted": half, "held_back": held}


def fit_thresholds(reviews: Sequence[ReviewedDocument]) -> FittedThresholds:
    """The thresholds with the best F1 of finding wrong values in one half. Raises LeapError where too little was
    decided."""
    halves = _halves([(review, found) for review in reviews if (found := cases_of(review))])
    first, second = ([case for _, cases in half for case in cases] for half in halves)
    wrong = [sum(case.wrong for case in half) for half in (first, second)]
    if len(first) + len(second) < LEAST_VALUES or not all(wrong):
        raise LeapError(
            f"too little was decided to fit thresholds: {len(first) + len(second)} values, {sum(wrong)} of them wrong, "
            f"in {len(halves[0]) + len(halves[1])} documents",
            hint=f"needed are {LEAST_VALUES} values, and wrong ones in two different texts",
        )
    after = _fitted(first)
    documents = (len(halves[0]), len(halves[1]))
    return FittedThresholds(
        after, documents, figures(first, after), figures(second, Thresholds()), figures(second, after)
    )


def cases_of(review: ReviewedDocument) -> list[ReviewedValue]:
    """The document's values that a person decided about; a correction to the same value says that it was right."""
    return [
        ReviewedValue(
            each, each["decision"] == REJECT or each["decision"] == CORRECT and each["corrected"] != each["value"]
        )
        for each in review.evidence
        if "decision" in each and each["how"] != ABSENT
    ]


def figures(cases: Sequence[ReviewedValue], below: float | Thresholds) -> Figures:
    """How well these thresholds flag the wrong values of the cases."""
    flagged = [case.wrong for case in cases if is_doubtful(case.entry, below)]
    return Figures(len(cases), sum(case.wrong for case in cases), len(flagged), sum(flagged))


Decided = tuple[ReviewedDocument, list[ReviewedValue]]


def _halves(decided: Sequence[Decided]) -> tuple[list[Decided], list[Decided]]:
    """Documents in an order that only their content gives, one to each half in turn; those with wrong values first, so
    that both halves have some. Documents of one text stay together."""
    by_text: dict[str, list[Decided]] = defaultdict(list)
    for each in decided:
        text = each[0].text or json.dumps(each[0].document)
        by_text[sha256(text.encode()).hexdigest()].append(each)
    right = {name: not any(case.wrong for _, cases in group for case in cases) for name, group in by_text.items()}
    order = sorted(by_text, key=lambda name: (right[name], name))
    first, second = ([each for name in names for each in by_text[name]] for names in (order[::2], order[1::2]))
    return first, second


def _fitted(cases: Sequence[ReviewedValue]) -> Thresholds:
    """The common threshold that is best where all fields have it, and then, field by field, the one that is best while
    the others stay as they are."""
    common = _best(cases, NOTHING, Thresholds().common)
    by_field: dict[str, list[ReviewedValue]] = defaultdict(list)
    for case in cases:
        by_field[field_of(case.entry["pointer"])].append(case)
    own = dict.fromkeys(sorted(name for name, some in by_field.items() if len(some) >= OWN_VALUES), common)
    found = {name: figures(some, common) for name, some in by_field.items()}
    for _ in range(ROUNDS):
        for name in own:
            others = sum((each for field, each in found.items() if field != name), NOTHING)
            own[name] = _best(by_field[name], others, own[name])
            found[name] = figures(by_field[name], own[name])
    return Thresholds(common, {name: each for name, each in own.items() if each != common})


def _best(cases: Sequence[ReviewedValue], others: Figures, default: float) -> float:
    """The threshold of these cases with which they and the others have the best F1: the default, or the lowest that
    does better, of 0 and those half-way between two values' least probabilities."""
    score, threshold = (others + figures(cases, default)).score, default
    flagged = others + figures(cases, 0.0)
    sure = sorted(
        (float(case.entry.get("confidence", {}).get("least", 1.0)), case.wrong)
        for case in cases
        if not is_doubtful(case.entry, 0.0)
    )
    for (below, wrong), (above, _) in zip([(0.0, None), *sure], [*sure, (1.0, None)], strict=True):
        flagged += Figures(0, 0, wrong is not None, bool(wrong))
        if flagged.score > score and (above > below or wrong is None):
            score, threshold = flagged.score, 0.0 if wrong is None else round((below + above) / 2, 7)
    return threshold
