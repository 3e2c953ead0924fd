"""Documents that a person looks over, as lines of JSON:

{"file": "a.txt", "text": "…", "schema": {…}, "document": {…}, "evidence": [{"pointer": "/age", "value": 19, …}]}

An entry of the evidence is as ``evidence.evidence_of`` makes it, and has a ``decision`` (``accept``, ``correct`` with
the ``corrected`` value, ``reject``) once there is one. A property of the schema that the document lacks or has an empty
list for is an entry too, ``absent``; so is the end of another list (``/tags/-``), which needs no decision: it is
``corrected`` by a list of the elements that are missing.
"""

from __future__ import annotations

from ...json_fields import JsonObject
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from ...errors import LeapError, LeapSerializationError
from ...json_fields import list_at, number_at, object_at, text_at
from ...schemas.json_schema import parse_json, pointer, read_schema
from ...storage.atomic_files import replace_text
from ..evidence.places import leaves, resolved_schema
from ..evidence.value_places import EXACT, FUZZY, NO_PLACE, NOT_IN_TEXT, PARTIAL

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
        raise LeapSerializationError(f"{how!r} is none of {', '.join(HOW)}", path=f"{path}.how")
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
        raise LeapSerializationError(f"{decision!r} is none of {', '.join(DECISIONS)}", path=f"{path}.decision")
    if (decision == CORRECT) != ("corrected" in entry):
        raise LeapSerializationError("goes with the decision correct, and only with it", path=f"{path}.corrected")
    return {name: part for name, part in entry.items() if (name, part) != ("decision", None)}


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)
