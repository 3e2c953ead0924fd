"""A file of reviewed documents while a person decides: every decision is on the disk before it counts."""

from __future__ import annotations

from ...json_fields import JsonObject
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapSerializationError, LeapUnavailableError
from ...json_fields import list_at, number_at, object_at
from ...storage.atomic_files import replace_text
from ...storage.locks import Busy, locked
from .corrections import corrected_document
from .review_lines import CORRECT, DECISIONS, ReviewedDocument, line_of, read_reviews, write_reviews

Decision = JsonObject
"""``decision`` and, where that is ``correct``, ``corrected``; empty for none."""
OF_PERSON = ("decision", "corrected")


class DecidedElsewhereError(LeapError):
    """What a decision takes the place of is not what the person saw."""


@dataclass(frozen=True)
class Change:
    """An entry of a document, by its number, gets the decision ``now``; ``was`` is what the person saw before."""

    entry: int
    was: Decision
    now: Decision


class ReviewFile:
    """The file's documents, and the decisions that it takes. Use ``open_reviews``."""

    def __init__(self, path: Path, reviews: Sequence[ReviewedDocument]) -> None:
        self.path = path
        self.reviews = list(reviews)
        self._lines = [line_of(each) for each in reviews]
        self._seen = self._stamp()

    @property
    def decided(self) -> tuple[int, int]:
        """Values with a decision, and all."""
        decided = sum(each.decided for each in self.reviews)
        return decided, decided + sum(each.undecided for each in self.reviews)

    def take(self, document: int, changes: Sequence[Change]) -> None:
        """Write changes of one document, all or none. Raises DecidedElsewhereError where an entry or the file was
        changed by others, LeapSerializationError for what is not there or does not fit the schema, and LeapError where
        the file cannot be written: nothing is changed then."""
        if not 0 <= document < len(self.reviews):
            raise LeapSerializationError(f"there is no document {document}", path="document")
        review = self.reviews[document]
        entries = list(review.evidence)
        for each in changes:
            if not 0 <= each.entry < len(entries):
                raise LeapSerializationError(f"{review.file} has no value {each.entry}", path="decisions")
            entry = entries[each.entry]
            found = {name: part for name, part in entry.items() if name not in OF_PERSON}
            now = decision_of(entry)
            if not _same(now, each.now) and not _same(now, each.was):
                raise DecidedElsewhereError(f"{entry['pointer']} of {review.file} was decided in another window")
            entries[each.entry] = {**found, **each.now}
        changed = replace(review, evidence=tuple(entries))
        corrected_document(changed)
        if self._stamp() != self._seen:
            raise DecidedElsewhereError(
                f"{self.path.name} was changed by another program", hint="end this and open the file again"
            )
        lines = [*self._lines[:document], line_of(changed), *self._lines[document + 1 :]]
        replace_text(self.path, "".join(lines))
        self.reviews[document], self._lines, self._seen = changed, lines, self._stamp()

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


@contextmanager
def open_reviews(path: Path) -> Iterator[ReviewFile]:
    """A file of reviewed documents, for oneself. Raises LeapSerializationError for what is none, and
    LeapUnavailableError where another process has it."""
    read_reviews(path)  # before a lock is left beside what is none
    with _for_oneself(path):
        yield ReviewFile(path, read_reviews(path))


def create_reviews(path: Path, reviews: Sequence[ReviewedDocument]) -> None:
    """Write a new file of documents. Raises LeapError, and LeapUnavailableError where there is one by now."""
    with _for_oneself(path):
        if path.exists():
            raise LeapUnavailableError(f"{path.name} has come to be meanwhile, and is not written over")
        write_reviews(path, reviews)


@contextmanager
def _for_oneself(path: Path) -> Iterator[None]:
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.review")
    try:
        with locked(beside, wait=False):
            try:
                yield
            finally:
                with suppress(OSError):
                    beside.unlink()
    except Busy:
        raise LeapUnavailableError(
            f"{path.name} is being reviewed already", hint="go on there, or end it with Ctrl-C"
        ) from None


def read_changes(value: object) -> tuple[int, list[Change]]:
    """A document's number and what is decided about it, from ``{"document": 0, "decisions": [{"entry": 1, "was": null,
    "now": {"decision": "accept"}}]}``. Raises LeapSerializationError."""
    fields = object_at(value, "body")
    changes = []
    for number, each in enumerate(list_at(fields.get("decisions"), "decisions")):
        path = f"decisions[{number}]"
        change = object_at(each, path)
        entry, was, now = change.get("entry"), change.get("was"), change.get("now")
        changes.append(Change(_number(entry, f"{path}.entry"), _decision(was, path), _decision(now, f"{path}.now")))
    return _number(fields.get("document"), "document"), changes


def decision_of(entry: JsonObject) -> Decision:
    """What a person decided about an entry of the evidence."""
    return {name: entry[name] for name in OF_PERSON if name in entry}


def _number(value: object, path: str) -> int:
    number = number_at(value, path)
    if not isinstance(number, int):
        raise LeapSerializationError("expected a whole number", path=path)
    return number


def _decision(value: object, path: str) -> Decision:
    if value is None:
        return {}
    fields = object_at(value, path)
    decision = fields.get("decision")
    if decision not in DECISIONS or (decision == CORRECT) != ("corrected" in fields):
        raise LeapSerializationError(
            f"expected a decision of {', '.join(DECISIONS)}; corrected goes with {CORRECT}", path=path
        )
    try:
        json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise LeapSerializationError(
            "is no JSON that a file can hold: it has NaN or half a character", path=path
        ) from None
    return decision_of(fields)


def _same(one: Decision, other: Decision) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
