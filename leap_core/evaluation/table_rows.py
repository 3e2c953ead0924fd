"""Rows of a table as cases."""

from __future__ import annotations

import json
from typing import Any

from ..schemas.json_values import JsonObject
from .expectations import KINDS

FIELDS = ("id", "group", "prompt", "system", "image", "audio", "task")
"""Columns that are fields of a case."""
OF_TASKS = ("text", "to", "from", "question", "labels", "choices", "score", "kind", "schema")
"""Columns that are fields where the row has a task."""
SETTINGS = ("of", "ignore_case", "threshold")


def of_table(row: JsonObject) -> JsonObject:
    """A case of a row: columns called like an expectation (``contains``, ``not_regex``) are expected, ``expect`` is a
    text that the answer equals or JSON, and columns of other names are variables of a template. Empty cells say
    nothing."""
    cells = {name: value for name, value in row.items() if value != ""}
    fields = (*FIELDS, *OF_TASKS) if "task" in cells else FIELDS
    case: JsonObject = {name: cells[name] for name in fields if name in cells}
    if "weight" in cells:
        case["weight"] = _json(cells["weight"])
    expected = _json(cells["expect"]) if "expect" in cells else []
    kinds = {name: _json(value) for name, value in cells.items() if name in KINDS or name.removeprefix("not_") in KINDS}
    settings = {name: _json(cells[name]) for name in SETTINGS if name in cells}
    wanted = (
        expected if isinstance(expected, list) else [expected if isinstance(expected, dict) else str(cells["expect"])]
    )
    if kinds:
        wanted = [*wanted, {**kinds, **settings}]
    if wanted:
        case["expect"] = wanted
    known = {*fields, "weight", "expect", *kinds, *settings}
    variables = {name: value for name, value in cells.items() if name not in known}
    return {**case, "vars": variables} if variables else case


def _json(text: str) -> Any:
    """An object, a list, a truth or a number that a cell spells, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value
