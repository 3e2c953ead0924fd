"""How large a schema may be: what it costs to check and to compile grows with its size, and with its depth far more."""

from __future__ import annotations

from typing import Any

from ..errors import LeapSchemaError
from .subschemas import walk

MOST_CHARACTERS = 2_000_000
"""The schema's JSON text has at most these."""
MOST_SCHEMAS = 5000
"""Schemas within the schema, itself included. Checking one against its draft takes about a millisecond."""
MOST_VALUES = 50_000
"""Values in the schema, at all levels: keywords, names, numbers, texts."""
DEEPEST = 120
"""Levels of nested objects and lists. Two make a level of a document: a keyword and its schema."""


def check_limits(document: Any) -> None:
    """Raises LeapSchemaError for a schema beyond the limits. Reads level by level, so that no depth overflows a
    stack."""
    level, depth, values, characters = [document], 0, 0, 0
    while level:
        depth += 1
        values += len(level)
        if depth > DEEPEST:
            raise LeapSchemaError(f"the schema is nested too deeply: more than {DEEPEST} levels")
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                characters += sum(len(key) for key in value if isinstance(key, str))
                deeper += value.values()
            elif isinstance(value, (list, tuple)):
                deeper += value
            elif isinstance(value, str):
                characters += len(value)
        if values + len(deeper) > MOST_VALUES:
            raise LeapSchemaError(f"the schema is too large: more than {MOST_VALUES} values")
        if characters > MOST_CHARACTERS:
            raise LeapSchemaError(f"the schema is too large: more than {MOST_CHARACTERS} characters")
        level = deeper
    if sum(1 for _ in walk(document)) > MOST_SCHEMAS:
        raise LeapSchemaError(f"the schema is too large: more than {MOST_SCHEMAS} schemas in it")


def check_length(text: str) -> None:
    """Raises LeapSchemaError for a text that is too long to be read at all."""
    if len(text) > MOST_CHARACTERS:
        raise LeapSchemaError(f"the schema is too large: more than {MOST_CHARACTERS} characters")
