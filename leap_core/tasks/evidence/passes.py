"""What several answers about a text make together: those of its pieces, and those of further passes."""

from __future__ import annotations

from ...json_fields import JsonObject
from collections.abc import Sequence
from typing import Any

from .places import find_places
from .value_places import NOT_IN_TEXT



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
