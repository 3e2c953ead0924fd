"""JSON values compared as values: 1 is 1.0 and true is not 1; the order of keys is free, that of lists counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

SHOWN = 80
"""Characters of a value that a difference shows."""


def first_difference(expected: Any, actual: Any, *, ignore_order: bool = False, tolerance: float = 0.0) -> str | None:
    """Where two values differ first, as a JSON pointer, and how; None where they are equal. ``ignore_order``: lists are
    equal in any order. ``tolerance``: numbers may differ by this."""
    return _difference(expected, actual, "", ignore_order, tolerance)


def _difference(expected: Any, actual: Any, place: str, ignore_order: bool, tolerance: float) -> str | None:
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _of_objects(expected, actual, place, ignore_order, tolerance)
    if isinstance(expected, list) and isinstance(actual, list):
        return _of_lists(expected, actual, place, ignore_order, tolerance)
    if _is_number(expected) and _is_number(actual):
        same = expected == actual or abs(expected - actual) <= tolerance
    else:
        same = type(expected) is type(actual) and expected == actual
    return None if same else f"{place or 'the document'}: {_shown(actual)} instead of {_shown(expected)}"


def _of_objects(expected: Any, actual: Any, place: str, ignore_order: bool, tolerance: float) -> str | None:
    for name in expected:
        here = f"{place}/{_escaped(name)}"
        if name not in actual:
            return f"{here}: missing"
        found = _difference(expected[name], actual[name], here, ignore_order, tolerance)
        if found is not None:
            return found
    further = next((name for name in actual if name not in expected), None)
    return None if further is None else f"{place}/{_escaped(further)}: not expected"


def _of_lists(
    expected: Sequence[Any], actual: Sequence[Any], place: str, ignore_order: bool, tolerance: float
) -> str | None:
    if ignore_order and len(expected) == len(actual):
        rest = list(actual)
        for n, value in enumerate(expected):
            match = next((m for m, each in enumerate(rest) if not _difference(value, each, "", True, tolerance)), None)
            if match is None:
                return f"{place}/{n}: no {_shown(value)} in the list"
            del rest[match]
        return None
    for n, (one, other) in enumerate(zip(expected, actual, strict=False)):
        found = _difference(one, other, f"{place}/{n}", ignore_order, tolerance)
        if found is not None:
            return found
    if len(expected) == len(actual):
        return None
    return f"{place or 'the document'}: {len(actual)} items instead of {len(expected)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
