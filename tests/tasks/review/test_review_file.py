"""A file that takes decisions: all of a step or nothing, each on the disk, none over another's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leap_core.errors import LeapError, LeapSerializationError, LeapUnavailableError
from leap_core.tasks.review.documents import (
    Change,
    DecidedElsewhereError,
    ReviewFile,
    open_reviews,
    read_changes,
    read_reviews,
    write_reviews,
)

from .reviews import plain

ACCEPT, REJECT = {"decision": "accept"}, {"decision": "reject"}


@pytest.fixture
def file(tmp_path: Path) -> ReviewFile:
    write_reviews(tmp_path / "r.jsonl", plain())
    return ReviewFile(tmp_path / "r.jsonl", read_reviews(tmp_path / "r.jsonl"))


def decisions(path: Path) -> list[list[str | None]]:
    return [[each.get("decision") for each in review.evidence] for review in read_reviews(path)]


def test_a_step_is_on_the_disk_and_can_be_taken_back(file):
    file.take(1, [Change(0, {}, {"decision": "correct", "corrected": "Ann"}), Change(1, {}, ACCEPT)])
    found = read_reviews(file.path)[1].evidence
    assert found[0]["corrected"] == "Ann" and found[1]["decision"] == "accept"
    assert file.decided == (2, sum(len(each.evidence) for each in file.reviews))
    file.take(1, [Change(1, ACCEPT, {})])
    assert decisions(file.path)[1][:2] == ["correct", None]
    file.take(1, [Change(1, ACCEPT, {})])  # the same again, from one who did not hear the answer
    assert file.path.read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("document", "changes", "error"),
    [
        (0, [Change(1, {}, ACCEPT), Change(0, {}, REJECT)], DecidedElsewhereError),
        (7, [], LeapSerializationError),
        (-1, [], LeapSerializationError),
        (0, [Change(70, {}, ACCEPT)], LeapSerializationError),
        (0, [Change(1, {}, {"decision": "correct", "corrected": "old"})], LeapSerializationError),
        (0, [Change(1, {}, {"decision": "correct", "corrected": 1.5})], LeapSerializationError),
    ],
)
def test_what_cannot_be_taken_changes_nothing(file, document, changes, error):
    file.take(0, [Change(0, {}, ACCEPT)])
    before = file.path.read_bytes()
    with pytest.raises(error):
        file.take(document, changes)
    assert file.path.read_bytes() == before and file.decided[0] == 1


def test_a_file_that_another_program_changed_or_removed_is_not_written(file):
    write_reviews(file.path, plain()[:1])
    with pytest.raises(DecidedElsewhereError, match="another program"):
        file.take(0, [Change(0, {}, ACCEPT)])
    assert len(read_reviews(file.path)) == 1
    file.path.unlink()
    with pytest.raises(DecidedElsewhereError):
        file.take(0, [Change(0, {}, ACCEPT)])


def test_a_file_that_cannot_be_written_is_as_it_was(file, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LeapError, match="No space left"):
        file.take(0, [Change(0, {}, ACCEPT)])
    monkeypatch.undo()
    assert decisions(file.path)[0][0] is None and [each.name for each in file.path.parent.iterdir()] == ["r.jsonl"]
    file.take(0, [Change(0, {}, ACCEPT)])
    assert decisions(file.path)[0][0] == "accept"


def test_two_do_not_review_one_file(tmp_path):
    path = tmp_path / "r.jsonl"
    write_reviews(path, plain())
    with (
        open_reviews(path),
        pytest.raises(LeapUnavailableError, match=r"r\.jsonl is already being reviewed"),
        open_reviews(path),
    ):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["r.jsonl"]
    with open_reviews(path) as file:
        assert len(file.reviews) == 2


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"document": "0", "decisions": []},
        {"document": True, "decisions": []},
        {"document": 0.5, "decisions": []},
        {"document": 0, "decisions": [1]},
        {"document": 0, "decisions": [{"entry": 0, "now": "accept"}]},
        {"document": 0, "decisions": [{"entry": 0, "now": {"decision": "maybe"}}]},
        {"document": 0, "decisions": [{"entry": 0, "now": {"decision": ["accept"]}}]},
        {"document": 0, "decisions": [{"entry": 0, "now": {"decision": "correct"}}]},
        {"document": 0, "decisions": [{"entry": 0, "now": {"decision": "accept", "corrected": 1}}]},
        {"document": 0, "decisions": [{"entry": 0, "now": {"decision": "correct", "corrected": float("nan")}}]},
        {"document": 0, "decisions": [{"entry": 0, "now": {"decision": "correct", "corrected": "\ud800"}}]},
    ],
)
def test_a_body_of_another_form_is_refused_by_its_place(body):
    with pytest.raises(LeapSerializationError):
        read_changes(body)


def test_a_body_is_read():
    body = {"document": 1, "decisions": [{"entry": 0, "was": None, "now": {"decision": "correct", "corrected": None}}]}
    assert read_changes(body) == (1, [Change(0, {}, {"decision": "correct", "corrected": None})])
