"""Schemas that their meta-schema plainly accepts, found without it.

jsonschema takes 0.3 s of computing to hold a schema of 66 kB against the meta-schema of draft 2020-12, most of it to
resolve the meta-schema's own references; this takes 3 ms. About what is not plain here jsonschema decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .subschemas import ALONE, IN_LISTS, IN_MAPS

TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))


def is_plain(schema: Any) -> bool:
    """Whether the meta-schema of draft 2020-12 certainly accepts a schema whose expressions were compiled. Raises
    RecursionError for one that is nested too deeply."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    for key, value in schema.items():
        check = CHECKS.get(key)
        if check is None or not check(value):
            return False
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and value in TYPES


def _are_types(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(map(_is_type, names)) and len(set(names)) == len(names)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_local(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("#")


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_plain, value))


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_plain, value.values()))


NOT_HERE = ("additionalItems", "dependencies", "extends", "definitions")
"""Keywords of other drafts."""
CHECKS: dict[str, Callable[[Any], bool]] = {
    **{key: is_plain for key in ALONE if key not in NOT_HERE},
    **{key: _are_named_schemas for key in IN_MAPS if key not in NOT_HERE},
    **{key: _are_schemas for key in IN_LISTS if key not in ALONE},
    **dict.fromkeys(("$comment", "title", "description", "format", "pattern"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), _is_switch),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("enum", "examples"), _is_list),
    **dict.fromkeys(("const", "default"), lambda value: True),
    "type": _are_types,
    "required": _are_names,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "$ref": _is_local,
}
"""By keyword."""
