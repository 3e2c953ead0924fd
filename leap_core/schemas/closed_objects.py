"""Objects of a schema without further keys, for generating: a small model left free to add keys adds them.

An object is closed where the schema lists its properties and says nothing about others. What speaks of others stays as
it is: ``additionalProperties`` (also true), ``patternProperties``, ``unevaluatedProperties``, ``propertyNames``, more
``minProperties`` than there are names. Where several schemas describe one object (``allOf``, ``anyOf`` beside
``properties``, ...), it may have the keys of all of them.
"""

from __future__ import annotations

from ..json_fields import JsonObject
from collections.abc import Iterator
from typing import Any

from .subschemas import ALONE, IN_LISTS, IN_MAPS, transform


OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames")
"""Keywords that say what other keys an object has."""
MAPS_IN_PLACE = ("dependentSchemas", "dependencies")
IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "extends", *MAPS_IN_PLACE, "$ref")
"""Keywords whose schemas describe the same value as the schema that has them."""
PASSING_ON = {"allOf", "anyOf", "oneOf", "$ref"}
"""Those whose schemas describe it alone where nothing else does."""
NEVER_CLOSED = ("not", "if")
"""A narrower schema there would allow more."""
OBJECT_KEYWORDS = {"properties", "required", "minProperties", "maxProperties", "dependentRequired", *OPEN}
DYNAMIC = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor")
ANNOTATIONS = ("title", "description", "default", "examples", "$comment")


def with_closed_objects(document: JsonObject) -> JsonObject:
    """The schema with its objects closed; the same document where there is nothing to close, or where references lead
    to what cannot be followed here."""
    schemas = _Schemas(document)
    try:
        schemas.visit(document, True)
    except _Unknown:
        return document
    closed: JsonObject = transform(document, schemas.closed)
    return closed if closed != document else document


class _Unknown(Exception):
    """A reference that is none into the document by pointer."""


class _Schemas:
    """Which schemas of a document describe an object by themselves."""

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._alone: dict[int, bool] = {}

    def visit(self, schema: Any, alone: bool) -> None:
        """Note a schema and those in it. ``alone``: no other schema describes the same value."""
        if not isinstance(schema, dict):
            return
        if id(schema) in self._alone and self._alone[id(schema)] <= alone:
            return
        if any(key in schema for key in DYNAMIC):
            raise _Unknown
        self._alone[id(schema)] = alone
        members = list(self._members(schema))
        in_place = {key for key, _ in members}
        only_member = len(in_place) == 1 and in_place <= PASSING_ON and not OBJECT_KEYWORDS & schema.keys()
        passes_on = only_member and len(schema.get("allOf", ())) <= 1
        for key, member in members:
            self.visit(member, alone and passes_on and key not in NEVER_CLOSED)
        beside = not passes_on and any(_describes_parts(member) for _, member in members)
        for part in _inner(schema):
            self.visit(part, alone and not beside and "patternProperties" not in schema)

    def closed(self, schema: JsonObject) -> JsonObject:
        """The schema, closed where it may be."""
        if not self._alone.get(id(schema), False) or any(key in schema for key in OPEN):
            return schema
        names = self._names(schema, set())
        joins = "properties" in schema or len(schema.get("allOf", ())) > 1
        if not joins or not names or schema.get("minProperties", 0) > len(names):
            return schema
        listed = schema.get("properties", {})
        added: JsonObject = {name: {} for name in names if name not in listed}
        return {**schema, "properties": {**listed, **added}, "additionalProperties": False}

    def _members(self, schema: JsonObject) -> Iterator[tuple[str, Any]]:
        """The schemas that describe the same value, with the keywords that hold them."""
        for key in IN_PLACE:
            value = schema.get(key)
            if key == "$ref" and isinstance(value, str):
                yield key, self._target(value)
            elif key in MAPS_IN_PLACE and isinstance(value, dict):
                yield from ((key, part) for part in value.values() if isinstance(part, dict))
            elif isinstance(value, list):
                yield from ((key, part) for part in value)
            elif isinstance(value, dict):
                yield key, value

    def _names(self, schema: Any, seen: set[int]) -> list[str] | None:
        """All keys that an object may have by a schema; None where it does not list them."""
        if not isinstance(schema, dict) or id(schema) in seen:
            return []
        seen.add(id(schema))
        if any(schema.get(key, False) is not False for key in OPEN):
            return None
        required = schema.get("required")
        names = [*schema.get("properties", {}), *(required if isinstance(required, list) else ())]
        for key in ("dependentRequired", "dependencies"):
            for name, others in (schema.get(key) or {}).items():
                names += [name, *(others if isinstance(others, list) else ())]
        for _, member in self._members(schema):
            more = self._names(member, seen)
            if more is None:
                return None
            names += more
        return list(dict.fromkeys(names))

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise _Unknown
        value: Any = self._document
        for part in reference[1:].split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, ValueError, IndexError, TypeError):
                raise _Unknown from None
        return value


def _inner(schema: JsonObject) -> Iterator[Any]:
    """The schemas of the parts of a value."""
    for key, value in schema.items():
        if key in IN_PLACE or key in ("$defs", "definitions"):
            continue
        if key in IN_MAPS and isinstance(value, dict):
            yield from value.values()
        elif key in IN_LISTS and isinstance(value, list):
            yield from value
        elif key in ALONE:
            yield value


def _describes_parts(schema: Any) -> bool:
    return isinstance(schema, dict) and not schema.keys() <= {*ANNOTATIONS, "type", "required"}
