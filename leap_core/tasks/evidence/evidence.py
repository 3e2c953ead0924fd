"""The evidence of a document: for each value its place in the text, how it was found, and how sure the model was.

They rank values by how doubtful they are; they are no frequency of being right. Tokens that the shape forced were no
choice and do not count.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ...conversation.responses import TokenLogprob
from ...errors import LeapSerializationError
from ...schemas.grounding import FROM_TEXT
from ...schemas.json_schema import pointer
from ...schemas.json_values import JsonObject, number_at, object_at
from ...system.dataclass import dataclass
from .places import Leaf, Place, ValuePath, find_places, leaves
from .values import NO_PLACE, NOT_IN_TEXT, SourceText, TextSource

Entry = Mapping[str, Any]
COLUMNS = {
    **dict.fromkeys(("pointer", "value", "how", "file"), str),
    **dict.fromkeys(("page", "line", "start", "end"), int),
    "text": str,
    **dict.fromkeys(("mean", "least", "allowed_mean", "allowed_least"), float),
}
"""The fields of a row, and what they hold where they hold something."""


def cells_of(name: str, value: Any, evidence: Sequence[Entry]) -> tuple[str, float | str]:
    """Where a field's value is, and the least probability of its tokens; empty for what is not known. Places are
    ``start-end``, or ``page:start-end``, with spaces between them: one for each element of a list, from the first of
    its values to the last, and one for each value of an object."""
    top = pointer((name,))
    own = [each for each in evidence if each["pointer"] == top or each["pointer"].startswith(f"{top}/")]
    groups: dict[str, list[Entry]] = {}
    for each in own:
        rest = each["pointer"][len(top) + 1 :]
        groups.setdefault(rest.split("/")[0] if isinstance(value, list) else rest, []).append(each)
    sure = [each["confidence"]["least"] for each in own if "least" in each.get("confidence", ())]
    return " ".join(map(_place, groups.values())), min(sure, default="")


def _place(entries: Sequence[Entry]) -> str:
    """Of neighbouring values; where one of them is not in the text, that."""
    if any(each["how"] == NOT_IN_TEXT for each in entries):
        return NOT_IN_TEXT
    places = [each["place"] for each in entries if "place" in each]
    if not places:
        return str(entries[0]["how"])
    first, last = min(places, key=lambda place: place["start"]), max(place["end"] for place in places)
    page = f"{first['page']}:" if "page" in first else ""
    return f"{page}{first['start']}-{last}"


def row_of(entry: Entry) -> dict[str, Any]:
    """An entry with all its fields side by side; a value that is no text as JSON."""
    value = entry["value"]
    flat = {**entry, **entry.get("place", {}), **entry.get("confidence", {})}
    flat["value"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {name: flat.get(name) for name in COLUMNS}


def invented_last(documents: Sequence[JsonObject], pieces: Sequence[str], schema: JsonObject) -> list[JsonObject]:
    """The documents of pieces so that, where the first one with a field counts, one that has it from its piece does:
    what a piece does not say comes after all that pieces say."""
    said, invented = [], []
    for document, piece in zip(documents, pieces, strict=True):
        places = find_places(piece, document, schema)
        wrong = {each.leaf.path[0] for each in places if each.how == NOT_IN_TEXT and len(each.leaf.path) == 1}
        said.append({name: value for name, value in document.items() if name not in wrong})
        invented.append({name: value for name, value in document.items() if name in wrong})
    return [*said, *invented]


def with_missed(document: JsonObject, more: JsonObject, text: str) -> JsonObject:
    """The document with the fields that it lacks, and the elements of lists that are at other places in the text than
    its own do. Nothing is doubled, and what is not in the text is not added."""
    whole = dict(document)
    for name, value in more.items():
        if name not in whole:
            whole[name] = value
        elif isinstance(whole[name], list) and isinstance(value, list):
            for item in value:
                if item not in whole[name] and _stands_apart({name: [*whole[name], item]}, name, text):
                    whole[name] = [*whole[name], item]
    return whole


def _stands_apart(document: JsonObject, name: str, text: str) -> bool:
    """Whether the last element of a list has a place, and shares none with the others."""
    last = (name, len(document[name]) - 1)
    places = [each for each in find_places(text, document) if each.start is not None and each.end is not None]
    own = [(each.start, each.end) for each in places if each.leaf.path[:2] == last]
    others = [(each.start, each.end) for each in places if each.leaf.path[:2] != last]
    return bool(own) and not set(own) & set(others)


STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
SCALAR = re.compile(rb"[^\s,\]}]+")
BETWEEN = re.compile(rb"[\s,:]*")


def confidences(tokens: Sequence[TokenLogprob]) -> dict[ValuePath, dict[str, float]]:
    """By the path of each value in the JSON document that the tokens spell: the geometric mean and the least of its
    tokens' probabilities, before the shape's mask and (``allowed_…``) among what it left."""
    text, starts = b"", []
    for token in tokens:
        starts.append(len(text))
        text += token.token
    begin = max(0, min((at for char in b"{[" if (at := text.find(char)) >= 0), default=0))
    found: dict[ValuePath, dict[str, float]] = {}
    at = 0
    for path, start, end in _values(text, begin):
        while at + 1 < len(starts) and starts[at + 1] <= start:
            at += 1
        own = []
        for number in range(at, len(tokens)):
            if starts[number] >= end:
                break
            if tokens[number].allowed_logprob is None or not _is_forced(tokens[number]):
                own.append(tokens[number])
        found[path] = _summary(own)
    return found


def _is_forced(token: TokenLogprob) -> bool:
    return token.logprob == 0.0 and token.allowed_logprob == 0.0


def _summary(tokens: Sequence[TokenLogprob]) -> dict[str, float]:
    before = [token.logprob for token in tokens] or [0.0]
    allowed = [token.logprob if token.allowed_logprob is None else token.allowed_logprob for token in tokens] or [0.0]
    return {
        "mean": math.exp(math.fsum(before) / len(before)),
        "least": math.exp(min(before)),
        "allowed_mean": math.exp(math.fsum(allowed) / len(allowed)),
        "allowed_least": math.exp(min(allowed)),
    }


def _values(text: bytes, at: int) -> Iterator[tuple[ValuePath, int, int]]:
    """The values of a JSON text that are neither objects nor lists, with the byte range of each, without
    its quotes. Ends where the text is no JSON."""
    stack: list[list[object]] = []  # of [closing byte, name or number of the part]
    while at < len(text):
        at = BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        if at >= len(text):
            return
        char = text[at : at + 1]
        if char in (b"}", b"]"):
            stack.pop()
            at += 1
        elif stack and stack[-1][0] == b"}" and stack[-1][1] is None:
            name = STRING.match(text, at)
            if name is None:
                return
            stack[-1][1] = _name(name[1])
            at = name.end()
            continue
        elif char in (b"{", b"["):
            stack.append([b"}" if char == b"{" else b"]", None if char == b"{" else 0])
            at += 1
            continue
        else:
            match = STRING.match(text, at) if char == b'"' else SCALAR.match(text, at)
            if match is None:
                return
            path = tuple(part[1] for part in stack)
            yield path, *(match.span(1) if char == b'"' else match.span())  # type: ignore[misc]
            at = match.end()
        if not stack:
            return
        part = stack[-1][1]
        stack[-1][1] = part + 1 if isinstance(part, int) else None


def _name(raw: bytes) -> str:
    import json

    return str(json.loads(b'"' + raw + b'"', strict=False))


Sure = dict[tuple[ValuePath, str], list[dict[str, float]]]


def evidence_of(text: str, document: JsonObject, schema: JsonObject, sure: Sure, name: str) -> list[JsonObject]:
    """For each value in the document's order: its JSON pointer, the value, how it was found, its place, confidence."""
    source = SourceText(text)
    left = {key: list(found) for key, found in sure.items()}
    places = find_places(text, document, schema)
    if not text.strip():  # a picture: nothing can be looked for
        places = [replace(place, how=NO_PLACE) for place in places]
    return [_entry(place, source, left, name) for place in places]


def _entry(place: Place, source: SourceText, sure: Sure, name: str) -> JsonObject:
    entry: JsonObject = {"pointer": place.pointer, "value": place.leaf.value, "how": place.how}
    if place.start is not None and place.end is not None:
        spelled = source.text[place.start : place.end]
        page = source.page(place.start)
        where = {"file": name, **({} if page is None else {"page": page}), "line": source.line(place.start)}
        entry["place"] = {**where, "start": place.start, "end": place.end, "text": spelled}
    known = sure.get(_key(place.leaf.path, place.leaf.value))
    if known:
        entry["confidence"] = {key: round(value, 6) for key, value in known.pop(0).items()}
    return entry


def sure_of(answers: Sequence[tuple[JsonObject, Any]]) -> Sure:
    """How sure the model was of the values of several pieces' documents, with the tokens that spell each; the same
    value of the same field as often as it was written."""
    sure: Sure = defaultdict(list)
    for document, tokens in answers:
        found = confidences(tokens)
        for leaf in leaves(document, None):
            if leaf.path in found:
                sure[_key(leaf.path, leaf.value)].append(found[leaf.path])
    return sure


def _key(path: ValuePath, value: Any) -> tuple[ValuePath, str]:
    return tuple(part for part in path if isinstance(part, str)), repr(value)


def without_invented(document: JsonObject, evidence: Sequence[Mapping[str, Any]]) -> JsonObject:
    """The document without the values that are not in the text; elements of lists that are left with nothing go too."""
    return without(document, {each["pointer"] for each in evidence if each["how"] == NOT_IN_TEXT})


def without_repeats(document: JsonObject, schema: JsonObject, text: str) -> JsonObject:
    """The document without optional values that are where the text has a required one: small models fill a field that
    the text does not have from another one's value."""
    found = [
        each
        for each in find_places(text, document, schema)
        if each.start is not None and not each.leaf.is_choice and each.leaf.schema.get(FROM_TEXT) is not False
    ]
    taken = {(each.start, each.end): each.leaf for each in found if each.leaf.is_required}
    repeats = [each for each in found if each.leaf.is_optional and (each.start, each.end) in taken]
    source = TextSource(text)
    wrong = {each.pointer for each in repeats if not _is_of_both(source, each, taken[each.start, each.end])}
    return without(document, wrong) if wrong else document


def _is_of_both(source: TextSource, place: Place, other: Leaf) -> bool:
    """Whether the text has no other date (or number) than this one, and its sentence a word of the field's name that
    the other field's lacks, as in "issued and due on 3 May"."""
    kinds = (source.dates, source.numbers)
    if not any([(each.start, each.end) for each in kind] == [(place.start, place.end)] for kind in kinds):
        return False
    clause = source.clause(place.start or 0)
    sentence = {word for word, start, _ in source.words if source.clause(start) == clause}
    return not sentence.isdisjoint(set(place.leaf.name_words).difference(other.name_words))


def evidence_left(evidence: Sequence[JsonObject], document: JsonObject) -> list[JsonObject]:
    """The evidence of a document ``without_invented``: elements of its lists have other numbers."""
    left = [each for each in evidence if each["how"] != NOT_IN_TEXT]
    values = leaves(document, None)
    return [{**each, "pointer": pointer(leaf.path)} for each, leaf in zip(left, values, strict=True)]


def without(document: JsonObject, pointers: Collection[str]) -> JsonObject:
    """A copy of the document without these values; elements of lists that are left with nothing go too."""

    def kept(value: Any, place: str) -> Any:
        if isinstance(value, dict):
            escaped = {name: f"{place}/{name.replace('~', '~0').replace('/', '~1')}" for name in value}
            parts = {name: kept(part, escaped[name]) for name, part in value.items() if escaped[name] not in pointers}
            return parts
        if isinstance(value, list):
            items = [
                (kept(part, f"{place}/{n}"), part) for n, part in enumerate(value) if f"{place}/{n}" not in pointers
            ]
            return [item for item, before in items if item or not before]
        return value

    cleaned: JsonObject = kept(document, "")
    return cleaned


WRITTEN = "leap extract --calibrate REVIEWED -o FILE writes thresholds"


@dataclass(frozen=True)
class Thresholds:
    """Probabilities below which values are doubtful: of the ``fields`` that have their own, and of all others."""

    common: float = 0.5
    fields: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What ``read_thresholds`` reads."""
        return {"below": self.common, "fields": dict(self.fields)}

    def of(self, pointer: str) -> float:
        """The threshold of the value at a JSON pointer."""
        return self.fields.get(field_of(pointer), self.common)


def field_of(pointer: str) -> str:
    """The field that a value belongs to: its JSON pointer with ``*`` for the numbers of elements."""
    return re.sub(r"/\d+(?=/|$)", "/*", pointer)


def is_doubtful(entry: Mapping[str, Any], below: float | Thresholds) -> bool:
    """Whether a person should look at an entry of the evidence: its value is not in the text, or a token of the value
    was less likely than ``below``."""
    least = below.of(entry["pointer"]) if isinstance(below, Thresholds) else below
    return bool(entry["how"] == NOT_IN_TEXT or entry.get("confidence", {}).get("least", 1.0) < least)


def read_thresholds(path: Path) -> Thresholds:
    """Thresholds from a file: ``{"below": 0.6, "fields": {"/orders/*/count": 0.9}}``. Raises
    LeapSerializationError."""
    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise LeapSerializationError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise LeapSerializationError(f"{path.name} is not JSON", hint=WRITTEN) from None
    try:
        value = object_at(found, "the thresholds")
        if unknown := set(value) - {"below", "fields"}:
            raise LeapSerializationError("there is no such field", path=min(unknown))
        fields = object_at(value.get("fields", {}), "fields")
        return Thresholds(
            _probability(value.get("below"), "below"),
            {name: _probability(each, f"fields.{name}") for name, each in fields.items()},
        )
    except LeapSerializationError as error:
        raise LeapSerializationError(f"{path.name}: {error.message}", hint=WRITTEN) from None


def _probability(value: object, path: str) -> float:
    number = number_at(value, path)
    if not 0 <= number <= 1:
        raise LeapSerializationError("expected a number from 0 to 1", path=path)
    return float(number)
