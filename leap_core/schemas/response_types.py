"""Python types as the shape of an answer: their schema as text, and the answer's text back as a value of the type."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import typing
import uuid
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, get_origin

from ..errors import LeapGeneratableDeserializationError
from .python_types import (
    LISTS,
    MAPPINGS,
    UNIONS,
    Guide,
    enum_values,
    fields_of,
    is_object_type,
    own_schema,
    schema_of,
    without_annotations,
)

__all__ = ["Guide", "parse_result", "read_value", "schema_of", "schema_text_of"]

T = TypeVar("T")
READ_METHODS = ("model_validate_json", "__from_json__", "from_json")
"""Methods of a type that read a JSON text, in the order in which they are looked for."""


def schema_text_of(kind: Any) -> str:
    """The JSON schema of a type, as JSON text. Raises LeapGeneratableSchematizationError."""
    return json.dumps(schema_of(kind))


def parse_result(kind: type[T], text: str) -> T:
    """The value that an answer means. Properties that the type does not have are left out.

    Raises LeapGeneratableDeserializationError naming what does not fit.
    """
    read = _own_reader(kind)
    if read is not None:
        try:
            return read(text)  # type: ignore[no-any-return]
        except Exception as error:
            raise LeapGeneratableDeserializationError(f"{kind.__name__}: {error}") from error
    try:
        value = json.loads(text, parse_float=_Digits)
    except ValueError as error:
        raise LeapGeneratableDeserializationError(f"not JSON: {error}") from None
    except RecursionError:
        raise LeapGeneratableDeserializationError("not JSON: nested too deeply") from None
    return read_value(kind, value)  # type: ignore[no-any-return]


def read_value(kind: Any, value: Any, where: str = "") -> Any:
    """The value of a type that a JSON value means; ``where``: its JSON pointer, for messages.

    Raises LeapGeneratableDeserializationError naming what does not fit.
    """
    try:
        return _read(kind, value, where)
    except RecursionError:
        raise LeapGeneratableDeserializationError(f"{where or 'the answer'}: nested too deeply") from None


class _Digits(float):
    """A number that remembers how it was written, for decimals."""

    text: str

    def __new__(cls, text: str) -> _Digits:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _plain(value: Any) -> Any:
    """A JSON value with plain floats."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, float) else value


def _own_reader(kind: Any) -> Callable[[str], Any] | None:
    """What reads the type from a JSON text, if it brings that."""
    methods = (getattr(kind, name, None) for name in READ_METHODS)
    return next((method for method in methods if callable(method)), None)


def _read(hint: Any, value: Any, where: str) -> Any:
    kind, _ = without_annotations(hint)
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return _plain(value)
    if kind is None or kind is type(None):
        return value if value is None else _fail(where, "null", value)
    if isinstance(kind, type) and get_origin(kind) is None:
        return _read_class(kind, value, where)
    return _read_generic(get_origin(kind), get_args(kind), value, where)


def _read_class(kind: type, value: Any, where: str) -> Any:
    read = _own_reader(kind)
    if read is not None:
        return _try(read, json.dumps(value), where, kind.__name__)
    if issubclass(kind, enum.Enum):
        members = dict(zip(enum_values(kind), kind, strict=True))
        return members[value] if isinstance(value, str) and value in members else _fail(where, kind.__name__, value)
    if is_object_type(kind):
        return _read_object(kind, value, where)
    if hasattr(kind, "model_validate"):
        return _try(kind.model_validate, value, where, kind.__name__)
    if kind in LISTS:
        return _read_generic(kind, (Any, ...), value, where)
    if kind in MAPPINGS:
        return _plain(value) if isinstance(value, dict) else _fail(where, "an object", value)
    if issubclass(kind, bool):
        return value if isinstance(value, bool) else _fail(where, "a boolean", value)
    if issubclass(kind, (int, float, decimal.Decimal)):
        return _read_number(kind, value, where)
    if not isinstance(value, str):
        return _fail(where, kind.__name__, value)
    if issubclass(kind, str):
        return value if kind is str else _try(kind, value, where, kind.__name__)
    if issubclass(kind, (datetime.date, datetime.time)):
        return _try(kind.fromisoformat, value.replace("Z", "+00:00"), where, kind.__name__)
    if issubclass(kind, uuid.UUID):
        return _try(kind, value, where, kind.__name__)
    return _fail(where, kind.__name__, value)


def _read_number(kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _fail(where, "a number", value)
    if issubclass(kind, int) and isinstance(value, float) and not value.is_integer():
        return _fail(where, "a whole number", value)
    if issubclass(kind, decimal.Decimal):
        return _try(kind, value.text if isinstance(value, _Digits) else str(value), where, kind.__name__)
    return _try(kind, value, where, kind.__name__)


def _read_object(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        return _fail(where, "an object", value)
    members: dict[str, Any] = {}
    for field in fields_of(kind):
        place = f"{where}/{field.name}"
        if field.name not in value:
            if field.required:
                raise LeapGeneratableDeserializationError(f"{place} is missing")
            if not _has_default(kind, field.name):
                members[field.name] = None
        elif value[field.name] is None and not field.required:
            members[field.name] = None
        else:
            members[field.name] = _read(field.kind, value[field.name], place)
    return members if typing.is_typeddict(kind) else _try(lambda fields: kind(**fields), members, where, kind.__name__)


def _has_default(kind: type, name: str) -> bool:
    if typing.is_typeddict(kind):
        return True  # a key that is left out stays out
    if dataclasses.is_dataclass(kind):
        field = {f.name: f for f in dataclasses.fields(kind)}[name]
        return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return name in getattr(kind, "_field_defaults", {})


def _read_generic(origin: Any, args: tuple[Any, ...], value: Any, where: str) -> Any:
    if origin is Literal:
        for choice in args:
            plain = choice.value if isinstance(choice, enum.Enum) else choice
            if plain == value and isinstance(plain, bool) is isinstance(value, bool):  # True == 1
                return choice
        return _fail(where, " or ".join(map(repr, args)), value)
    if origin in UNIONS:
        return _read_union(args, value, where)
    if origin in MAPPINGS:
        if not isinstance(value, dict):
            return _fail(where, "an object", value)
        return {key: _read(args[1], item, f"{where}/{key}") for key, item in value.items()}
    if origin in LISTS:
        if not isinstance(value, list):
            return _fail(where, "an array", value)
        if origin is tuple and args[-1:] != (Ellipsis,):
            if len(args) != len(value):
                return _fail(where, f"{len(args)} items", value)
            return tuple(
                _read(kind, item, f"{where}/{n}") for n, (kind, item) in enumerate(zip(args, value, strict=True))
            )
        items = [_read(args[0], item, f"{where}/{n}") for n, item in enumerate(value)]
        return origin(items) if origin in (tuple, set, frozenset) else items
    return _fail(where, str(origin), value)


def _read_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    """The first type that the value fits. Exact scalars come before conversions, so that 1 stays an int in
    int | float, and types that have all of an object's keys before those that would lose some."""
    plain = _plain(value)
    if type(plain) in args:
        return plain
    failure: LeapGeneratableDeserializationError | None = None
    for kind in sorted(args, key=lambda kind: not _has_keys(kind, value)):
        try:
            return _read(kind, value, where)
        except LeapGeneratableDeserializationError as error:
            failure = failure or error
    raise failure or LeapGeneratableDeserializationError(f"{where}: no type fits")


def _has_keys(hint: Any, value: Any) -> bool:
    """Whether a type has a place for every key of an object, as far as that is known."""
    kind, _ = without_annotations(hint)
    if not isinstance(value, dict):
        return True
    if is_object_type(kind):
        return value.keys() <= {field.name for field in fields_of(kind)}
    properties = (own_schema(kind) or {}).get("properties")
    return not isinstance(properties, dict) or value.keys() <= properties.keys()


def _try(read: Callable[[Any], Any], value: Any, where: str, name: str) -> Any:
    try:
        return read(value)
    except RecursionError:
        raise
    except Exception as error:  # whatever the type's own code raises
        raise LeapGeneratableDeserializationError(f"{where or 'the answer'}: not {name}: {error}") from error


def _fail(where: str, expected: str, value: Any) -> Any:
    excerpt = json.dumps(value, ensure_ascii=False)
    excerpt = excerpt if len(excerpt) <= 80 else excerpt[:79] + "…"
    raise LeapGeneratableDeserializationError(f"{where or 'the answer'}: expected {expected}, found {excerpt}")
