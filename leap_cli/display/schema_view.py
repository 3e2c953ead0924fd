"""JSON schemas as people read them."""

from __future__ import annotations

from typing import Any


def in_words(document: Any) -> str:
    """The beginning of a schema for people: ``name string, age integer``; what it is where it has no fields."""
    if not isinstance(document, dict):
        return "anything" if document else "nothing"
    if document.get("type") == "array":
        return f"list of {in_words(document.get('items', True))}"
    fields = document.get("properties")
    if not isinstance(fields, dict) or not fields:
        return str(document.get("type", "a schema"))
    kinds = ((name, field.get("type") if isinstance(field, dict) else None) for name, field in fields.items())
    return ", ".join(f"{name} {kind}" if isinstance(kind, str) else name for name, kind in kinds)
