"""The evidence of a document: for each value its place in the text, how it was found, and how sure the model was."""

from __future__ import annotations

from ...json_fields import JsonObject
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...schemas.json_schema import pointer
from .confidence import confidences
from .places import Path, Place, find_places, leaves
from .value_places import NO_PLACE, NOT_IN_TEXT
from .words import SourceText

Sure = dict[tuple[Path, str], list[dict[str, float]]]


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


def _key(path: Path, value: Any) -> tuple[Path, str]:
    return tuple(part for part in path if isinstance(part, str)), repr(value)


def without_invented(document: JsonObject, evidence: Sequence[Mapping[str, Any]]) -> JsonObject:
    """The document without the values that are not in the text; elements of lists that are left with nothing go too."""
    return without(document, {each["pointer"] for each in evidence if each["how"] == NOT_IN_TEXT})


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
