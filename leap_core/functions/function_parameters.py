"""The parameters of a function that a model may call."""

from __future__ import annotations

from ..json_fields import JsonObject
from dataclasses import dataclass

from ..errors import LeapOptionsError
from . import parameter_types as types
from .parameter_types import LeapFunctionParameterType, SchemaType


@dataclass(frozen=True)
class LeapFunctionParameter:
    """One named parameter. An ``optional`` one may be left out of a call."""

    name: str
    type: LeapFunctionParameterType
    description: str = ""
    optional: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.type, LeapFunctionParameterType):
            raise LeapOptionsError(
                "type", f"{self.type!r} of the parameter {self.name!r} is no type; StringType() is one, for instance"
            )

    def to_json_object(self) -> JsonObject:
        """The JSON schema of the parameter's value: the description, then the type's own keys."""
        schema = self.type.to_json_object()
        text = self.description or schema.get("description")
        described: JsonObject = {} if text is None else {"description": text}
        return described | {key: value for key, value in schema.items() if key != "description"}


def type_of_schema(schema: JsonObject) -> LeapFunctionParameterType:
    """One of the plain types where it says all that the schema says, else the schema itself."""
    kind = schema.get("type")
    described = {key: schema[key] for key in ("description",) if isinstance(schema.get(key), str)}
    plain: LeapFunctionParameterType | None = None
    if kind == "array" and isinstance(schema.get("items"), dict):
        plain = types.ArrayType(type_of_schema(schema["items"]), **described)
    elif kind == "object" and isinstance(schema.get("properties"), dict):
        properties = schema["properties"]
        if all(isinstance(value, dict) for value in properties.values()) and isinstance(schema.get("required"), list):
            inner = {name: type_of_schema(value) for name, value in properties.items()}
            plain = types.ObjectType(inner, tuple(schema["required"]), **described)
    elif kind in ("string", "number", "integer"):
        values = tuple(schema["enum"]) if isinstance(schema.get("enum"), list) else None
        simple = {"string": types.StringType, "number": types.NumberType, "integer": types.IntegerType}[kind]
        plain = simple(values, **described)
    elif kind in ("boolean", "null"):
        plain = (types.BooleanType if kind == "boolean" else types.NullType)(**described)
    return plain if plain is not None and plain.to_json_object() == schema else SchemaType(schema)
