"""What further passes over a text found that the first has missed."""

from __future__ import annotations

from typing import Any

from .places import find_places

JsonObject = dict[str, Any]


def with_missed(document: JsonObject, more: JsonObject, text: str) -> JsonObject:
    """The document with the fields that it lacks, and the elements of lists that stand elsewhere in the text than its
    own do. Nothing is doubled, and what is not in the text is not added."""
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
