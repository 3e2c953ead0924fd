"""Evidence in tables: a cell of places for each field of a CSV table, and rows of one shape for Parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...schemas.json_schema import pointer
from .value_places import NOT_IN_TEXT

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
    """Of values that stand together; where one of them is not in the text, that."""
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
