"""Reviewed documents: lines read and written, and the documents that decisions leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leap_core.errors import LeapError, LeapSerializationError
from leap_core.tasks.evidence.evidence import Thresholds, evidence_of, is_doubtful
from leap_core.tasks.review.documents import (
    ReviewedDocument,
    corrected_document,
    read_review,
    read_reviews,
    review_document,
    write_reviews,
)

TEXT = "Tim, 19, ordered 3 lamps and 4 chairs."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "a/b~c": {"type": "integer"},
        "city": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "orders": {"type": "array", "items": {"$ref": "#/$defs/order"}},
    },
    "required": ["name", "city"],
    "$defs": {
        "order": {"type": "object", "properties": {"count": {"type": "integer"}, "what": {"type": "string"}}},
    },
}
DOCUMENT: dict[str, Any] = {
    "name": "Tim", "a/b~c": 19, "tags": [], "orders": [{"count": 3, "what": "lamps"}, {"count": 4}],
}  # fmt: skip


def reviewed(**decisions: Any) -> ReviewedDocument:
    """The document with decisions by pointer: a word, or ``("correct", value)``."""
    found = evidence_of(TEXT, DOCUMENT, SCHEMA, {}, "a.txt")
    line = review_document("a.txt", TEXT, SCHEMA, DOCUMENT, found).to_json()
    for pointer, decision in decisions.items():
        entry = next(each for each in line["evidence"] if each["pointer"] == pointer)
        entry["decision"] = decision if isinstance(decision, str) else decision[0]
        if not isinstance(decision, str):
            entry["corrected"] = decision[1]
    return read_review(line)


ENTRY = {"pointer": "/tags/0", "value": "made up", "how": "not_in_text"}


def test_properties_that_are_absent_are_entries() -> None:
    entries = {each["pointer"]: each for each in reviewed().evidence}
    assert list(entries) == [
        "/name", "/a~1b~0c", "/orders/0/count", "/orders/0/what", "/orders/1/count", "/tags", "/orders/1/what",
        "/orders/-", "/city",
    ]  # fmt: skip
    assert entries["/city"] == {"pointer": "/city", "value": None, "how": "absent"}
    assert reviewed().undecided == 8 and reviewed(**{"/name": "accept"}).undecided == 7


def test_decisions_replace_add_and_remove() -> None:
    decisions = {
        "/name": "accept", "/a~1b~0c": ("correct", 20), "/city": ("correct", "Rome"), "/tags": ("correct", ["new"]),
        "/orders/0/count": "reject", "/orders/0/what": "reject", "/orders/1/what": ("correct", "chairs"),
    }  # fmt: skip
    assert corrected_document(reviewed(**decisions)) == {
        "name": "Tim", "a/b~c": 20, "tags": ["new"], "orders": [{"count": 4, "what": "chairs"}], "city": "Rome",
    }  # fmt: skip
    assert corrected_document(reviewed()) == DOCUMENT
    assert corrected_document(reviewed(**{"/city": "reject", "/name": "reject"})).keys() == DOCUMENT.keys() - {"name"}


def test_elements_are_added_at_the_end_of_a_list_which_needs_no_decision() -> None:
    added = reviewed(**{"/orders/-": ("correct", [{"count": 5}, {"what": "beds"}]), "/orders/0/what": "reject"})
    assert corrected_document(added)["orders"] == [{"count": 3}, {"count": 4}, {"count": 5}, {"what": "beds"}]
    assert (reviewed().undecided, reviewed().decided, added.decided) == (8, 0, 2)
    with pytest.raises(LeapSerializationError, match="at /orders/- must be a list of elements"):
        corrected_document(reviewed(**{"/orders/-": ("correct", {"count": 5})}))
    with pytest.raises(LeapSerializationError, match="does not fit the schema"):
        corrected_document(reviewed(**{"/orders/-": ("correct", [{"count": "five"}])}))
    full = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}, "maxItems": 1}}}
    entries = [{"pointer": "/tags/0", "value": "new", "how": "exact"}]
    assert len(review_document("a.txt", "new", full, {"tags": ["new"]}, entries).evidence) == 1


def test_a_correction_that_breaks_the_schema_is_refused() -> None:
    with pytest.raises(LeapSerializationError, match=r"a.txt: .*does not fit the schema: /a~1b~0c: 'x' is not of type"):
        corrected_document(reviewed(**{"/a~1b~0c": ("correct", "x")}))


def test_what_is_rejected_leaves_a_gap_whatever_the_schema_says() -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "minItems": 1, "items": {"type": "string"}}}}
    review = review_document("a.txt", "none", schema, {"tags": ["made up"]}, [{**ENTRY, "decision": "reject"}])
    assert corrected_document(review) == {"tags": []}


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    reviews = [reviewed(**{"/name": ("correct", "Zoë\u2028😀")}), reviewed()]
    write_reviews(tmp_path / "r.jsonl", reviews)
    assert read_reviews(tmp_path / "r.jsonl") == reviews


BROKEN: list[tuple[Any, str]] = [
    ("[]", "the line: expected an object"),
    ("{", "line 2 is not JSON"),
    ("\xff", "line 2 is not JSON"),
    ({"text": None}, "text: expected a string, not null"),
    ({"schema": {"type": 3}}, "the schema is invalid at /type"),
    ({"evidence": {}}, "evidence: expected a list"),
    ({"evidence": []}, "evidence: says nothing about the value at /name"),
    ({"document": {"name": "\ud800"}}, "half of a surrogate pair"),
    (("how", "guessed"), "'guessed' is not one of exact"),
    (("pointer", "/orders/2"), "the document has no value at /orders/2"),
    (("value", "Tom"), r"evidence\[0\].value: is not the document's"),
    (("place", {"start": 3, "end": 900}), "3 to 900 is no place in the text"),
    (("confidence", {"least": "0"}), "expected a number, not a string"),
    (("decision", "maybe"), "'maybe' is not one of accept, correct, reject"),
    (("decision", "correct"), "goes with the decision correct"),
    (("corrected", 3), "goes with the decision correct"),
]


@pytest.mark.parametrize("change, said", BROKEN)
def test_a_broken_line_is_named(tmp_path: Path, change: Any, said: str) -> None:
    line = json.loads(json.dumps(reviewed().to_json()))
    if isinstance(change, dict):
        line |= change
    elif isinstance(change, tuple):
        line["evidence"][0][change[0]] = change[1]
    text = change if isinstance(change, str) else json.dumps(line)
    (tmp_path / "r.jsonl").write_bytes(json.dumps(reviewed().to_json()).encode() + b"\n" + text.encode("latin-1"))
    with pytest.raises(LeapError, match=said) as caught:
        read_reviews(tmp_path / "r.jsonl")
    assert "r.jsonl, line 2" in str(caught.value)


def test_no_file_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LeapSerializationError, match="cannot read"):
        read_reviews(tmp_path / "none.jsonl")
    with pytest.raises(LeapSerializationError, match="cannot read"):
        read_reviews(tmp_path)
    (tmp_path / "r.jsonl").write_text("\n")
    with pytest.raises(LeapSerializationError, match="has no reviewed documents"):
        read_reviews(tmp_path / "r.jsonl")


def test_a_document_nested_beyond_measure_is_refused() -> None:
    line = reviewed().to_json() | {"document": json.loads('{"a":' * 400 + "1" + "}" * 400)}
    with pytest.raises(LeapError):
        corrected_document(read_review(line))


def test_a_field_can_have_its_own_threshold() -> None:
    thresholds = Thresholds(0.5, {"/orders/*/count": 0.9})
    doubtful = [
        is_doubtful({"pointer": pointer, "how": "exact", "confidence": {"least": 0.7}}, thresholds)
        for pointer in ("/orders/10/count", "/orders/10/what", "/count")
    ]
    assert doubtful == [True, False, False]
    assert is_doubtful({"pointer": "/a", "how": "not_in_text"}, 0.0) and not is_doubtful(
        {"pointer": "/a", "how": "absent"}, 1.0
    )
