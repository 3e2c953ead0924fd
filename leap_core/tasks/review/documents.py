"""Documents that a person looks over: lines of JSON, the decisions about them, and the documents these leave.

{"file": "a.txt", "text": "…", "schema": {…}, "document": {…}, "evidence": [{"pointer": "/age", "value": 19, …}]}

An entry of the evidence is as ``evidence.evidence_of`` makes it, and has a ``decision`` (``accept``, ``correct`` with
the ``corrected`` value, ``reject``) once there is one. A property of the schema that the document lacks or has an empty
list for is an entry too, ``absent``; so is the end of another list (``/tags/-``), which needs no decision: it is
``corrected`` by a list of the elements that are missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, count
from math import inf
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapSerializationError, LeapUnavailableError
from ...schemas.json_schema import parse_json, pointer, read_schema, resolved_schema
from ...schemas.json_values import JsonObject, list_at, number_at, object_at, text_at
from ...schemas.transforms import all_optional
from ...system.dataclass import dataclass
from ...system.files import replace_text
from ...system.locks import Busy, locked
from ..evidence.evidence import without
from ..evidence.places import leaves
from ..evidence.values import EXACT, FUZZY, NO_PLACE, NOT_IN_TEXT, PARTIAL

ABSENT = "absent"
HOW = (EXACT, PARTIAL, FUZZY, NOT_IN_TEXT, NO_PLACE, ABSENT)
ACCEPT, CORRECT, REJECT = "accept", "correct", "reject"
DECISIONS = (ACCEPT, CORRECT, REJECT)


@dataclass(frozen=True)
class ReviewedDocument:
    """A text, the document that was taken from it by a schema, and for each value what is known and was decided."""

    file: str
    text: str
    schema: JsonObject
    document: JsonObject
    evidence: tuple[JsonObject, ...]

    @property
    def decided(self) -> int:
        """The entries with a decision."""
        return sum("decision" in each for each in self.evidence)

    @property
    def undecided(self) -> int:
        """The entries that wait for a decision."""
        return sum("decision" not in each and not is_end(each) for each in self.evidence)

    def to_json(self) -> JsonObject:
        """The line's value; the entries are the document's own."""
        fields = {"file": self.file, "text": self.text, "schema": self.schema, "document": self.document}
        return {**fields, "evidence": list(self.evidence)}


def review_document(
    file: str, text: str, schema: JsonObject, document: JsonObject, evidence: Sequence[Mapping[str, Any]]
) -> ReviewedDocument:
    """What is to be looked over of an extraction, also the properties that it did not fill. Raises
    LeapSerializationError for evidence of another document."""
    fields = {"file": file, "text": text, "schema": schema, "document": document, "evidence": list(evidence)}
    return read_review(fields)


def read_reviews(path: Path) -> list[ReviewedDocument]:
    """The documents of a file. Raises LeapSerializationError with the line's number."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LeapSerializationError(f"cannot read {path}: {error.strerror}") from None
    found = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            try:
                found.append(read_review(parse_json(line.decode())))
            except LeapError as error:
                raise LeapSerializationError(f"{path.name}, line {number}: {error.message}", hint=error.hint) from None
            except ValueError as error:
                raise LeapSerializationError(
                    f"{path.name}, line {number} is not JSON: {error}",
                    hint="a review is a file of JSON lines that leap extract --review wrote",
                ) from None
    if not found:
        raise LeapSerializationError(f"{path.name} has no reviewed documents")
    return found


def write_reviews(path: Path, reviews: Sequence[ReviewedDocument]) -> None:
    """Replace a file by these documents in one step. Raises LeapError."""
    replace_text(path, "".join(map(line_of, reviews)))


def line_of(review: ReviewedDocument) -> str:
    """The document's line."""
    return json.dumps(review.to_json(), ensure_ascii=False) + "\n"


def read_review(value: object) -> ReviewedDocument:
    """A line's value, checked, with entries of absent properties. Raises LeapSerializationError, LeapSchemaError."""
    fields = object_at(value, "the line")
    for name in ("file", "text", "schema", "document", "evidence"):
        if name not in fields:
            raise LeapSerializationError("missing", path=name)
    text = text_at(fields["text"], "text")
    schema, document = object_at(fields["schema"], "schema"), object_at(fields["document"], "document")
    try:
        json.dumps(fields, ensure_ascii=False).encode()
        read_schema(json.dumps(schema))
        values = {pointer(leaf.path): leaf.value for leaf in leaves(document, schema)}
        absent = list(absent_properties(document, schema))
    except UnicodeEncodeError:
        raise LeapSerializationError("has half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise LeapSerializationError("is nested too deeply") from None
    entries: dict[str, JsonObject] = {}
    for number, each in enumerate(list_at(fields["evidence"], "evidence")):
        entry = _checked(each, f"evidence[{number}]", values, absent, len(text))
        if entry["pointer"] in entries:
            raise LeapSerializationError(f"{entry['pointer']} is there twice", path=f"evidence[{number}].pointer")
        entries[entry["pointer"]] = entry
    for where in values:
        if where not in entries:
            raise LeapSerializationError(f"says nothing about the value at {where}", path="evidence")
    for where in absent:
        entries.setdefault(where, {"pointer": where, "value": None, "how": ABSENT})
    return ReviewedDocument(text_at(fields["file"], "file"), text, schema, document, tuple(entries.values()))


def is_end(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is the end of a list, where elements can be added."""
    return entry["how"] == ABSENT and str(entry["pointer"]).endswith("/-")


def absent_properties(document: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """The pointers of the schema's properties that a document lacks, or has an empty list for, and of the ends of other
    lists that may have more elements."""

    def of(value: Any, part: Any, path: tuple[str | int, ...]) -> Iterator[str]:
        part = resolved_schema(part, schema) if isinstance(part, Mapping) else {}
        if isinstance(value, dict):
            properties = part.get("properties", {})
            for name in [*value, *(each for each in properties if each not in value)]:
                if name not in value or value[name] == []:
                    yield pointer((*path, name))
                else:
                    yield from of(value[name], properties.get(name, part.get("additionalProperties")), (*path, name))
        elif isinstance(value, list):
            for number, each in enumerate(value):
                yield from of(each, part.get("items"), (*path, number))
            if isinstance(part.get("items"), Mapping) and 0 < len(value) < part.get("maxItems", inf):
                yield pointer((*path, "-"))

    return of(document, schema, ())


def _checked(value: object, path: str, values: Mapping[str, Any], absent: Sequence[str], length: int) -> JsonObject:
    """An entry of the evidence of a text of this ``length``."""
    entry = object_at(value, path)
    where, how = text_at(entry.get("pointer"), f"{path}.pointer"), entry.get("how")
    if how not in HOW:
        raise LeapSerializationError(f"{how!r} is not one of {', '.join(HOW)}", path=f"{path}.how")
    if where not in (absent if how == ABSENT else values):
        reason = f"lacks no {where}" if how == ABSENT else f"has no value at {where}"
        raise LeapSerializationError(f"the document {reason}", path=f"{path}.pointer")
    if "value" not in entry or not _same(entry["value"], None if how == ABSENT else values[where]):
        raise LeapSerializationError("is not the document's", path=f"{path}.value")
    if "place" in entry:
        place = object_at(entry["place"], f"{path}.place")
        start, end = (number_at(place.get(name), f"{path}.place.{name}") for name in ("start", "end"))
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= length):
            raise LeapSerializationError(f"{start} to {end} is no place in the text", path=f"{path}.place")
    if "confidence" in entry:
        for name, sure in object_at(entry["confidence"], f"{path}.confidence").items():
            number_at(sure, f"{path}.confidence.{name}")
    decision = entry.get("decision")
    if decision not in (None, *DECISIONS):
        raise LeapSerializationError(f"{decision!r} is not one of {', '.join(DECISIONS)}", path=f"{path}.decision")
    if (decision == CORRECT) != ("corrected" in entry):
        raise LeapSerializationError("goes with the decision correct, and only with it", path=f"{path}.corrected")
    return {name: part for name, part in entry.items() if (name, part) != ("decision", None)}


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


def corrected_document(review: ReviewedDocument) -> JsonObject:
    """The document with its corrected values and without the rejected ones; those without a decision stay, and elements
    of lists that are left with nothing go. Raises LeapSerializationError where corrections break the schema; what is
    rejected leaves a gap, whatever the schema says."""
    document: JsonObject = json.loads(json.dumps(review.document))
    for entry in review.evidence:
        if entry.get("decision") == CORRECT:
            _put(document, entry["pointer"], entry["corrected"], review.file)
    schema = read_schema(json.dumps(all_optional(review.schema)))
    before = schema.problems_of(review.document)
    problems = [each for each in schema.problems_of(document) if each not in before]
    if problems:
        raise LeapSerializationError(
            f"{review.file}: with its corrections the document does not fit the schema: {problems[0]}",
            hint="correct this value again, as the schema wants it",
        )
    rejected = {each["pointer"] for each in review.evidence if each.get("decision") == REJECT and each["how"] != ABSENT}
    try:
        document = without(document, rejected)
    except RecursionError:
        raise LeapSerializationError(f"{review.file}: the document is nested too deeply") from None
    return document


def _put(document: Any, pointer: str, value: Any, file: str) -> None:
    """Replace the value at a JSON pointer, or add it to an object, or a list of elements to the end of a list."""
    *above, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
    for part in above:
        document = document[int(part) if isinstance(document, list) else part]
    if not isinstance(document, list):
        document[last] = value
    elif last != "-":
        document[int(last)] = value
    elif isinstance(value, list):
        document.extend(value)
    else:
        raise LeapSerializationError(f"{file}: what is added at {pointer} must be a list of elements")


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
            if not _same_decision(now, each.now) and not _same_decision(now, each.was):
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
            f"{path.name} is already being reviewed", hint="continue there, or stop it with Ctrl-C"
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


def _same_decision(one: Decision, other: Decision) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def reviews_as_cases(reviews: Sequence[ReviewedDocument], *, undecided: bool) -> Iterator[JsonObject]:
    """A case of evaluation for each text of which everything was decided; ``undecided``: also for the others.
    Pictures, whose files reviews do not have, are left out. Raises LeapSerializationError where a correction breaks the
    schema."""
    names: set[str] = set()
    for review in reviews:
        if (review.undecided and not undecided) or not review.text.strip():
            continue
        again = (f"{review.file}#{n}" for n in count(2))
        name = next(each for each in chain([review.file], again) if each not in names)
        names.add(name)
        request = {"task": "extract", "schema": review.schema, "text": review.text}
        yield {"id": name, **request, "expect": {"json": corrected_document(review)}}


def example_of(fields: JsonObject) -> JsonObject:
    """Fields of an example, with the document of a review as it was decided. Raises LeapSerializationError."""
    if "evidence" in fields and "schema" in fields:
        return {**fields, "document": corrected_document(read_review(fields))}
    return fields
