"""JSON values of a known shape: what is another one is refused by its path."""

from __future__ import annotations

from typing import Any

from .errors import LeapSerializationError

JsonObject = dict[str, Any]


def object_at(value: object, path: str) -> JsonObject:
    """The value, which must be an object. Raises LeapSerializationError."""
    if not isinstance(value, dict):
        raise LeapSerializationError(f"expected an object, not {kind_of(value)}", path=path)
    return value


def list_at(value: object, path: str) -> list[Any]:
    """The value, which must be a list. Raises LeapSerializationError."""
    if not isinstance(value, (list, tuple)):
        raise LeapSerializationError(f"expected a list, not {kind_of(value)}", path=path)
    return list(value)


def text_at(value: object, path: str) -> str:
    """The value, which must be a string. Raises LeapSerializationError."""
    if not isinstance(value, str):
        raise LeapSerializationError(f"expected a string, not {kind_of(value)}", path=path)
    return value


def number_at(value: object, path: str) -> int | float:
    """The value, which must be a number. Raises LeapSerializationError."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise LeapSerializationError(f"expected a number, not {kind_of(value)}", path=path)
    return value


def kind_of(value: object) -> str:
    """What JSON calls a value of this type."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)
