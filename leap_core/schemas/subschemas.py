"""Where schemas are inside a schema, for every draft."""

from __future__ import annotations

from ..json_fields import JsonObject
from collections.abc import Callable, Iterator
from typing import Any


IN_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
IN_LISTS = ("prefixItems", "allOf", "anyOf", "oneOf", "items")
ALONE = (
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "extends",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def walk(schema: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], JsonObject]]:
    """Every schema that is an object, with the path to it; the outermost first."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        if key in IN_MAPS and isinstance(value, dict):
            for name, inner in value.items():
                yield from walk(inner, (*path, key, name))
        if key in IN_LISTS and isinstance(value, list):
            for index, inner in enumerate(value):
                yield from walk(inner, (*path, key, index))
        if key in ALONE:
            yield from walk(value, (*path, key))


def transform(schema: Any, change: Callable[[JsonObject], JsonObject]) -> Any:
    """A copy in which every schema that is an object was replaced by ``change`` of it, the outermost first."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(change(schema))
    for key, value in changed.items():
        if key in IN_MAPS and isinstance(value, dict):
            changed[key] = {name: transform(inner, change) for name, inner in value.items()}
        elif key in IN_LISTS and isinstance(value, list):
            changed[key] = [transform(inner, change) for inner in value]
        elif key in ALONE:
            changed[key] = transform(value, change)
    return changed
