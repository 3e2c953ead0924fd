"""Schemas without required fields, as extraction holds answers to them."""

from __future__ import annotations

from ..json_fields import JsonObject
from collections.abc import Mapping
from typing import Any


COMBINED = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties")
"""Keywords of an object whose fields are not all among its properties."""


def all_optional(schema: Mapping[str, Any]) -> JsonObject:
    """The same schema, in which missing data may stay out and nothing that it does not name may come in."""
    plain = {
        key: value for key, value in schema.items() if key not in ("required", "minProperties", "dependentRequired")
    }
    if isinstance(schema.get("properties"), dict):
        plain["properties"] = _each_optional(schema["properties"])
        plain.setdefault("type", "object")  # else anything that is no object would do as well
        if not any(key in schema for key in COMBINED):
            plain.setdefault("additionalProperties", False)
    if isinstance(schema.get("items"), dict):
        plain["items"] = all_optional(schema["items"])
    for key in ("$defs", "definitions"):
        if isinstance(schema.get(key), dict):
            plain[key] = _each_optional(schema[key])
    return plain


def _each_optional(schemas: Mapping[str, Any]) -> JsonObject:
    return {name: all_optional(part) if isinstance(part, dict) else part for name, part in schemas.items()}
