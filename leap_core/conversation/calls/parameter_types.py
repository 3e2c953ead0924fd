"""Types of a function's parameters and their JSON schemas, with the keys in the LEAP SDK's order: description first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass


class LeapFunctionParameterType:
    """A type of JSON value: StringType, NumberType, IntegerType, BooleanType, ArrayType, ObjectType, NullType, or
    SchemaType for what these cannot say. Types are immutable and compare by value."""

    description: str | None

    def to_json_object(self) -> JsonObject:
        """The JSON schema of a value."""
        return {} if self.description is None else {"description": self.description}


@dataclass(frozen=True)
class StringType(LeapFunctionParameterType):
    """Text; ``enumeration`` lists the only values allowed."""

    enumeration: Sequence[str] | None = None
    description: str | None = None

    def to_json_object(self) -> JsonObject:
        return super().to_json_object() | {"type": "string"} | _enum(self.enumeration)


@dataclass(frozen=True)
class NumberType(LeapFunctionParameterType):
    """A number; ``enumeration`` lists the only values allowed."""

    enumeration: Sequence[float] | None = None
    description: str | None = None

    def to_json_object(self) -> JsonObject:
        return super().to_json_object() | {"type": "number"} | _enum(self.enumeration)


@dataclass(frozen=True)
class IntegerType(LeapFunctionParameterType):
    """A whole number; ``enumeration`` lists the only values allowed."""

    enumeration: Sequence[int] | None = None
    description: str | None = None

    def to_json_object(self) -> JsonObject:
        return super().to_json_object() | {"type": "integer"} | _enum(self.enumeration)


@dataclass(frozen=True)
class BooleanType(LeapFunctionParameterType):
    """True or false."""

    description: str | None = None

    def to_json_object(self) -> JsonObject:
        return super().to_json_object() | {"type": "boolean"}


@dataclass(frozen=True)
class NullType(LeapFunctionParameterType):
    """Only null."""

    description: str | None = None

    def to_json_object(self) -> JsonObject:
        return super().to_json_object() | {"type": "null"}


@dataclass(frozen=True)
class ArrayType(LeapFunctionParameterType):
    """A list whose items are all of ``item_type``."""

    item_type: LeapFunctionParameterType
    description: str | None = None

    def to_json_object(self) -> JsonObject:
        return super().to_json_object() | {"type": "array", "items": self.item_type.to_json_object()}


@dataclass(frozen=True)
class ObjectType(LeapFunctionParameterType):
    """An object with these properties; those named in ``required`` must be there."""

    properties: Mapping[str, LeapFunctionParameterType] = field(default_factory=dict)
    required: Sequence[str] = ()
    description: str | None = None

    def to_json_object(self) -> JsonObject:
        properties = {name: kind.to_json_object() for name, kind in self.properties.items()}
        return super().to_json_object() | {"type": "object", "properties": properties, "required": list(self.required)}


@dataclass(frozen=True)
class SchemaType(LeapFunctionParameterType):
    """Any JSON schema, word for word: for tools declared by other programs that say more than the other types can."""

    schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> str | None:  # type: ignore[override]
        text = self.schema.get("description")
        return text if isinstance(text, str) else None

    def to_json_object(self) -> JsonObject:
        return _described_first(self.schema)


def _described_first(schema: Mapping[str, Any]) -> JsonObject:
    first = {"description": schema["description"]} if "description" in schema else {}
    return first | {key: value for key, value in schema.items() if key != "description"}


def _enum(values: Sequence[Any] | None) -> JsonObject:
    return {} if values is None else {"enum": list(values)}
