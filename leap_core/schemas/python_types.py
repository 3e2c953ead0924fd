"""JSON schemas of Python types, in the shape in which the LEAP SDK's ``@Generatable`` writes them.

A type's description is its docstring; a field's is a string or ``Guide`` in its ``Annotated``, or the entry
``description`` of a dataclass field's metadata.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import LeapGeneratableSchematizationError, LeapSchemaError
from .json_values import JsonObject
from .transforms import Definitions, reference_to, unused_name

SCHEMA_METHODS = ("model_json_schema", "__json_schema__", "json_schema")
"""Methods of a type that give its own schema: pydantic's, and two plain spellings."""

SCALARS: dict[Any, JsonObject] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    decimal.Decimal: {"type": "number"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
}
LISTS = {list, tuple, set, frozenset, Sequence, MutableSequence, Iterable}
MAPPINGS = {dict, Mapping, MutableMapping}
UNIONS = {Union, types.UnionType}
BARE_ALIAS = type(typing.List)  # noqa: UP006


@dataclass(frozen=True)
class Guide:
    """What a field means, for ``Annotated[str, Guide("…")]``."""

    description: str


class Field(NamedTuple):
    """One field of an object type. ``required``: it must be there when the object is read back."""

    name: str
    kind: Any
    description: str | None
    required: bool


def schema_of(kind: Any) -> JsonObject:
    """The JSON schema of a type. Raises LeapGeneratableSchematizationError naming the field that has none."""
    own = own_schema(kind)
    if own is not None:
        return own
    writer = _Writer()
    schema = writer.schema(kind, _name(kind))
    return schema | writer.definitions.keyword()


def own_schema(kind: Any) -> JsonObject | None:
    """What the type's own method says, if it has one."""
    for name in SCHEMA_METHODS:
        method = getattr(kind, name, None)
        if callable(method):
            try:
                schema = method()
            except LeapSchemaError:
                raise
            except Exception as error:
                raise LeapGeneratableSchematizationError(f"{_name(kind)}.{name}() fails: {error}") from error
            if not isinstance(schema, dict):
                raise LeapGeneratableSchematizationError(f"{_name(kind)}.{name}() gives no object")
            return schema
    return None


def is_object_type(kind: Any) -> bool:
    """Whether values of the type are objects with known fields."""
    if not isinstance(kind, type):
        return False
    named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or named_tuple


def fields_of(kind: type) -> list[Field]:
    """The fields of an object type, in order."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception as error:  # a name in an annotation that cannot be found
        raise LeapGeneratableSchematizationError(f"the annotations of {_name(kind)} cannot be read: {error}") from None
    if dataclasses.is_dataclass(kind):
        return [
            _field(f.name, hints[f.name], _has_no_default(f), f.metadata.get("description"))
            for f in dataclasses.fields(kind)
            if f.init
        ]
    if typing.is_typeddict(kind):
        return [_field(name, hint, _is_required(kind, name, hint)) for name, hint in hints.items()]
    defaults = getattr(kind, "_field_defaults", {})
    return [_field(name, hints.get(name, Any), name not in defaults) for name in kind._fields]  # type: ignore[attr-defined]


def without_annotations(hint: Any) -> tuple[Any, str | None]:
    """A type without Annotated, Required and NotRequired, and its description. A bare ``List`` becomes
    ``list``."""
    description: str | None = None
    while True:
        if get_origin(hint) is Annotated:
            for note in hint.__metadata__:
                text = note if isinstance(note, str) else getattr(note, "description", None)
                description = text if isinstance(text, str) else description
            hint = get_args(hint)[0]
        elif _marker(hint):
            hint = get_args(hint)[0]
        elif isinstance(hint, BARE_ALIAS):
            hint = get_origin(hint)
        else:
            return hint, description


def optional_of(hint: Any) -> Any | None:
    """T where the hint is ``T | None``; None where it is not."""
    if get_origin(hint) not in UNIONS or type(None) not in get_args(hint):
        return None
    others = [part for part in get_args(hint) if part is not type(None)]
    return Union[tuple(others)] if others else None  # noqa: UP007  (made at run time)


def enum_values(kind: type[enum.Enum]) -> list[str]:
    """What represents the members in JSON: their values where all are strings, else their names."""
    if all(isinstance(member.value, str) for member in kind):
        return [member.value for member in kind]
    return [member.name for member in kind]


class _Writer:
    """Writes schemas; a type that contains itself is a definition and is referred to."""

    def __init__(self) -> None:
        self.definitions = Definitions()
        self._names: dict[Any, str] = {}
        self._open: dict[Any, JsonObject] = {}

    def schema(self, hint: Any, where: str) -> JsonObject:
        kind, description = without_annotations(hint)
        schema = self._plain(kind, where)
        return described(schema, description)

    def _plain(self, kind: Any, where: str) -> JsonObject:
        if kind in (Any, object, inspect.Parameter.empty):
            return {}
        if kind is None:
            return dict(SCALARS[type(None)])
        own = own_schema(kind)
        if own is not None:
            return self.definitions.adopt(own, _name(kind))
        if isinstance(kind, typing.ForwardRef):
            raise LeapGeneratableSchematizationError(f"{where}: the type {kind.__forward_arg__!r} is not known")
        if isinstance(kind, type) and get_origin(kind) is None:
            return self._class(kind, where)
        if isinstance(kind, TypeVar):
            return {}
        return self._generic(get_origin(kind), get_args(kind), where)

    def _class(self, kind: type, where: str) -> JsonObject:
        if issubclass(kind, enum.Enum):
            if not list(kind):
                raise LeapGeneratableSchematizationError(f"{where}: the enumeration {kind.__name__} is empty")
            return {"type": "string", "enum": enum_values(kind)}
        if is_object_type(kind):
            return self._object(kind)
        for scalar in kind.__mro__:
            if scalar in SCALARS:
                return dict(SCALARS[scalar])
        if kind in LISTS:
            return {"type": "array", "items": {}}
        if kind in MAPPINGS:
            return {"type": "object"}
        raise LeapGeneratableSchematizationError(
            f"{where}: {_name(kind)} has no JSON schema",
            hint="use a dataclass, TypedDict, Enum, pydantic model or the plain types",
        )

    def _generic(self, origin: Any, args: tuple[Any, ...], where: str) -> JsonObject:
        if origin is Literal:
            return _literal_schema(args)
        if origin in UNIONS:
            return {"anyOf": [self.schema(part, where) for part in args]}
        if origin is tuple and not args:
            return {"type": "array", "maxItems": 0}
        if origin is tuple and args[-1] is not Ellipsis:
            items = [self.schema(part, f"{where}[{n}]") for n, part in enumerate(args)]
            return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
        if origin in LISTS:
            return {"type": "array", "items": self.schema(args[0], f"{where}[]")}
        if origin in MAPPINGS:
            if without_annotations(args[0])[0] is not str:
                raise LeapGeneratableSchematizationError(f"{where}: the keys of JSON objects are strings")
            values = self.schema(args[1], f"{where}[]")
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        raise LeapGeneratableSchematizationError(f"{where}: {origin or args} has no JSON schema")

    def _object(self, kind: type) -> JsonObject:
        if kind in self._open or kind in self._names:
            return self._reference(kind)
        schema: JsonObject = {"type": "object", "title": kind.__name__}
        self._open[kind] = schema
        text = _docstring(kind)
        if text:
            schema["description"] = text
        schema["properties"] = {f.name: self._property(f, kind) for f in fields_of(kind)}
        schema["required"] = [f.name for f in fields_of(kind) if f.required]
        del self._open[kind]
        return self._reference(kind) if kind in self._names else schema

    def _reference(self, kind: type) -> JsonObject:
        if kind not in self._names:
            name = self._names[kind] = unused_name(kind.__name__, self.definitions.schemas)
            self.definitions.schemas[name] = self._open[kind]
        return {"$ref": reference_to(self._names[kind])}

    def _property(self, field: Field, owner: type) -> JsonObject:
        schema = self.schema(field.kind, f"{owner.__name__}.{field.name}")
        nested = is_object_type(without_annotations(field.kind)[0]) or "$ref" in schema
        if field.description and nested:
            return {"description": field.description, "allOf": [schema]}
        return described(schema, field.description)


def described(schema: JsonObject, description: str | None) -> JsonObject:
    """The schema with a description, after the type as the SDK has it."""
    if not description:
        return schema
    if "$ref" in schema or "title" in schema:
        return {"description": description, "allOf": [schema]}
    return {**schema, "description": description}


def _field(name: str, hint: Any, required: bool, description: object = None) -> Field:
    """An optional type means a field that may be left out."""
    kind, annotation = without_annotations(hint)
    inner = optional_of(kind)
    if inner is not None:
        kind, inner_said = without_annotations(inner)
        annotation, required = annotation or inner_said, False
    return Field(name, kind, description if isinstance(description, str) else annotation, required)


def _marker(hint: Any) -> str:
    """Required or NotRequired, where the hint is one of them."""
    origin = get_origin(hint)
    name = getattr(origin, "__name__", getattr(origin, "_name", ""))
    return name if name in ("Required", "NotRequired") else ""


def _is_required(kind: Any, name: str, hint: Any) -> bool:
    """``__required_keys__`` does not see markers in annotations that are strings."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return _marker(hint) == "Required" or (name in kind.__required_keys__ and not _marker(hint))


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _literal_schema(values: tuple[Any, ...]) -> JsonObject:
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
    schema: JsonObject = {"enum": plain}
    for kind in (str, bool, int):
        if all(type(value) is kind for value in plain):
            return {**SCALARS[kind], **schema}
    return schema


def _docstring(kind: type) -> str | None:
    text = kind.__dict__.get("__doc__")
    if not isinstance(text, str):
        return None
    if dataclasses.is_dataclass(kind) and text.startswith(f"{kind.__name__}("):
        return None  # written by the dataclass decorator
    if issubclass(kind, tuple) and text.startswith(f"{kind.__name__}("):
        return None
    return " ".join(inspect.cleandoc(text).split()) or None


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
