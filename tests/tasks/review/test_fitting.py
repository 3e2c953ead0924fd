"""Thresholds of doubt, fitted on decisions that a test made."""

from __future__ import annotations

from typing import Any

import pytest

from leap_core.errors import LeapError
from leap_core.tasks.evidence.evidence import Thresholds, is_doubtful
from leap_core.tasks.review.documents import ReviewedDocument, read_review
from leap_core.tasks.review.fitting import cases_of, figures, fit_thresholds


def reviewed(number: int, *values: tuple[str, float, str], how: str = "exact") -> ReviewedDocument:
    """A document of fields with the least probability and the decision of each."""
    document = {name: f"{name}{number}" for name, _, _ in values}
    evidence: list[dict[str, Any]] = [
        {
            "pointer": f"/{name}", "value": document[name], "how": how, "decision": decision,
            "confidence": {"least": least}, **({"corrected": "other"} if decision == "correct" else {}),
        }
        for name, least, decision in values
    ]  # fmt: skip
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in document}}
    fields = {"file": f"{number}.txt", "text": f"Text {number}", "schema": schema, "document": document}
    return read_review({**fields, "evidence": evidence})


def separable(count: int) -> list[ReviewedDocument]:
    """Of every four documents one has a wrong value; wrong ones have 0.8, right ones 0.9 and 0.3 in another field."""
    return [
        reviewed(n, ("a", 0.8, "reject") if n % 4 == 0 else ("a", 0.9, "accept"), ("b", 0.3, "accept"))
        for n in range(count)
    ]


def test_a_field_gets_the_threshold_that_finds_its_wrong_values() -> None:
    fit = fit_thresholds(separable(80))
    assert fit.thresholds == Thresholds(pytest.approx(0.85), {"/b": 0.0}) and fit.documents == (40, 40)
    assert (fit.before.precision, fit.before.recall) == (0.0, 0.0)
    assert (fit.after.values, fit.after.wrong, fit.after.flagged, fit.after.found) == (80, 10, 10, 10)


def test_few_cases_of_a_field_share_the_common_threshold() -> None:
    fit = fit_thresholds(
        [reviewed(n, ("a", 0.8, "correct") if n % 4 == 0 else ("a", 0.9, "accept")) for n in range(24)]
    )
    assert fit.thresholds == Thresholds(pytest.approx(0.85))
    assert fit.after.precision == fit.after.recall == 1.0


def test_the_order_of_the_file_makes_no_difference() -> None:
    reviews = separable(80)
    assert fit_thresholds(reviews[::-1]) == fit_thresholds(reviews)


@pytest.mark.slow
def test_documents_of_one_text_are_on_one_side() -> None:
    reviews = separable(40)
    assert fit_thresholds([*reviews, *reviews]).documents == (40, 40)
    with pytest.raises(LeapError, match="24 values, 24 of them wrong, in 24 documents"):
        fit_thresholds([reviewed(1, ("a", 0.2, "reject"))] * 24)


def test_the_default_stays_if_nothing_is_better() -> None:
    fit = fit_thresholds([reviewed(n, ("a", 0.4, "reject") if n % 3 else ("a", 0.6, "accept")) for n in range(30)])
    assert fit.thresholds == Thresholds(0.5) and fit.before == fit.after


@pytest.mark.parametrize("reviews", [separable(9), [reviewed(n, ("a", 0.4, "accept")) for n in range(30)]])
def test_too_few_decisions_are_refused(reviews: list[ReviewedDocument]) -> None:
    with pytest.raises(LeapError, match="too little was decided") as caught:
        fit_thresholds(reviews)
    assert "20 values" in str(caught.value.hint)


def test_what_is_not_in_the_text_is_flagged_by_any_threshold_and_counts() -> None:
    cases = cases_of(reviewed(1, ("a", 1.0, "reject"), ("b", 1.0, "accept"), how="not_in_text"))
    found = figures(cases, 0.0)
    assert (found.values, found.wrong, found.flagged, found.found) == (2, 1, 2, 1)
    assert is_doubtful(cases[0].entry, Thresholds(0.0))


def test_undecided_and_absent_values_do_not_count_and_a_correction_to_the_same_is_none() -> None:
    line = reviewed(1, ("a", 0.4, "correct"), ("b", 0.4, "accept")).to_json()
    line["schema"]["properties"]["c"] = {"type": "string"}
    line["evidence"][0]["corrected"] = "a1"
    del line["evidence"][1]["decision"]
    line["evidence"].append({"pointer": "/c", "value": None, "how": "absent", "decision": "accept"})
    (case,) = cases_of(read_review(line))
    assert case.entry["pointer"] == "/a" and not case.wrong
