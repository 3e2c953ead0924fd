"""JSON values of a known shape, refused by their path when they are of another; and errors as JSON."""

from __future__ import annotations

import json
from typing import Any

from .. import errors
from ..errors import GenerationStats, LeapError, LeapGenerationError, LeapSerializationError

JsonObject = dict[str, Any]


def canonical(value: object) -> str:
    """A JSON text that is equal for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


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


UNSENT = ("facts", "part")
"""Fields of errors that stay here: they may quote another prompt, or are a picture."""


def error_to_json(error: LeapError) -> JsonObject:
    """``classes`` go from the error's own to its last base, so that a client without the first may know the second."""
    classes = [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, LeapError)]
    fields = {name: value for name, value in vars(error).items() if name not in UNSENT}
    return {"classes": classes, **{name: _plain(value) for name, value in fields.items()}}


def error_from_json(value: object) -> LeapError:
    """The error that was written; what cannot be read becomes a LeapGenerationError that shows it."""
    if not isinstance(value, dict) or not isinstance(value.get("message"), str):
        return LeapGenerationError(f"the host failed: {value!r}")
    fields: JsonObject = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
    names = fields.pop("classes", ())
    kind = next((error_class for name in names if (error_class := _class(name)) is not None), LeapGenerationError)
    stats = fields.get("stats")
    if isinstance(stats, dict):
        try:
            fields["stats"] = GenerationStats(**stats)
        except TypeError:  # of another version of leap
            fields["stats"] = None
    error = kind.__new__(kind)
    error.args = (value["message"],)
    vars(error).update({"hint": None, **fields})
    return error


def _plain(value: Any) -> Any:
    if isinstance(value, GenerationStats):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


def _class(name: object) -> type[LeapError] | None:
    error_class = getattr(errors, name, None) if isinstance(name, str) else None
    return error_class if isinstance(error_class, type) and issubclass(error_class, LeapError) else None


def whole_number(value: Any) -> Any:
    """The integer that a float is, as JSON may write one (16.0); anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_number(value: object) -> bool:
    """Whether this is a number; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
