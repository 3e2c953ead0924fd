"""Schemas changed for generation: closed objects, joined definitions, optional fields; and where subschemas are.

An object is closed where the schema lists its properties and says nothing about others. What speaks of others stays as
it is: ``additionalProperties`` (also true), ``patternProperties``, ``unevaluatedProperties``, ``propertyNames``, more
``minProperties`` than there are names. Where several schemas describe one object (``allOf``, ``anyOf`` beside
``properties``, ...), it may have the keys of all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from itertools import chain, count
from typing import Any
from urllib.parse import unquote

from .json_values import JsonObject

IN_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
IN_LISTS = ("prefixItems", "allOf", "anyOf", "oneOf", "items")
ALONE = (
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "extends",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def walk(schema: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], JsonObject]]:
    """Every schema that is an object, with the path to it; the outermost first."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        if key in IN_MAPS and isinstance(value, dict):
            for name, inner in value.items():
                yield from walk(inner, (*path, key, name))
        if key in IN_LISTS and isinstance(value, list):
            for index, inner in enumerate(value):
                yield from walk(inner, (*path, key, index))
        if key in ALONE:
            yield from walk(value, (*path, key))


def transform(schema: Any, change: Callable[[JsonObject], JsonObject]) -> Any:
    """A copy in which every schema that is an object was replaced by ``change`` of it, the outermost first."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(change(schema))
    for key, value in changed.items():
        if key in IN_MAPS and isinstance(value, dict):
            changed[key] = {name: transform(inner, change) for name, inner in value.items()}
        elif key in IN_LISTS and isinstance(value, list):
            changed[key] = [transform(inner, change) for inner in value]
        elif key in ALONE:
            changed[key] = transform(value, change)
    return changed


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


DEFINITION = re.compile(r"#/\$defs/([^/]+)(.*)", re.DOTALL)


class Definitions:
    """The ``$defs`` of a schema that is put together from others: theirs move here, and their references follow."""

    def __init__(self) -> None:
        self.schemas: dict[str, JsonObject] = {}
        self._adopted: dict[str, JsonObject] = {}

    def keyword(self) -> JsonObject:
        """What the root of the whole schema needs."""
        return {"$defs": self.schemas} if self.schemas else {}

    def adopt(self, schema: JsonObject, name: str) -> JsonObject:
        """A schema of its own as a part of the whole; one that refers to its root becomes a definition."""
        if "$id" in schema:
            return schema
        text = json.dumps(schema, sort_keys=True, default=str)
        if text not in self._adopted:
            self._adopted[text] = self._moved(schema, name)
        return self._adopted[text]

    def _moved(self, schema: JsonObject, name: str) -> JsonObject:
        own = dict(schema.get("$defs", {}))
        part = {key: value for key, value in schema.items() if key != "$defs"}
        if any(_is_within(inner.get("$ref")) for _, inner in walk(schema)):
            name = unused_name(name, own)
            own[name], part = part, {"$ref": "#"}
        names = self._names(own, name)
        self.schemas |= {names[key]: _redirected(value, names, name) for key, value in own.items()}
        moved: JsonObject = _redirected(part, names, name)
        return moved

    def _names(self, own: Mapping[str, Any], root: str) -> dict[str, str]:
        """What each definition is called here: the same, or with a number where that is something else."""
        names = {name: name for name in own}
        numbers = dict.fromkeys(own, 1)
        while True:
            by_name: dict[str, Any] = dict(self.schemas)
            moved = {name: _redirected(value, names, root) for name, value in own.items()}
            clashes = [name for name in own if by_name.setdefault(names[name], moved[name]) != moved[name]]
            if not clashes:
                return names
            for name in clashes:
                numbers[name] += 1
                names[name] = f"{name}{numbers[name]}"


def unused_name(name: str, used: Container[str]) -> str:
    """The name, with a number if it is used."""
    numbered = (f"{name}{number}" for number in count(2))
    return next(new for new in chain([name], numbered) if new not in used)


def reference_to(name: str) -> str:
    """Where a definition is in the whole schema."""
    return "#/$defs/" + name.replace("~", "~0").replace("/", "~1").replace("%", "%25")


def _is_within(reference: object) -> bool:
    """Whether a reference leads into the schema itself, and not to one of its definitions."""
    if not isinstance(reference, str) or DEFINITION.fullmatch(reference):
        return False
    return reference == "#" or reference.startswith("#/")


def _redirected(schema: Any, names: Mapping[str, str], root: str) -> Any:
    """A schema with its references to definitions under their new names; ``root``: the definition that was the root."""

    def redirect(part: JsonObject) -> JsonObject:
        target = part.get("$ref")
        if _is_within(target):
            return {**part, "$ref": reference_to(names[root]) + part["$ref"][1:]}
        definition = DEFINITION.fullmatch(target) if isinstance(target, str) else None
        if definition is None:
            return part
        name = unquote(definition[1]).replace("~1", "/").replace("~0", "~")
        return {**part, "$ref": reference_to(names[name]) + definition[2]} if name in names else part

    return transform(schema, redirect)


COMBINED = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties")
"""Keywords of an object whose fields are not all among its properties."""


DEPENDING = ("minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies")
"""Keywords by which one field of an object decides about others."""
MUST = ("required", "minProperties", "dependentRequired")
"""Keywords that say what an object must have."""


def all_optional(schema: Mapping[str, Any]) -> JsonObject:
    """The same schema, in which missing data may stay out and nothing that it does not name may come in."""
    return _closed(schema, MUST)


def closed(schema: Mapping[str, Any]) -> JsonObject:
    """The same schema, in which nothing that it does not name may come in."""
    return _closed(schema, ())


def _closed(schema: Mapping[str, Any], without: Collection[str]) -> JsonObject:
    plain = {key: value for key, value in schema.items() if key not in without}
    if isinstance(schema.get("properties"), dict):
        plain["properties"] = _each_closed(schema["properties"], without)
        plain.setdefault("type", "object")  # else anything that is no object would do as well
        if not any(key in schema for key in COMBINED):
            plain.setdefault("additionalProperties", False)
        if plain.get("additionalProperties") is False and isinstance(plain.get("required"), list):
            plain["required"] = [name for name in plain["required"] if name in plain["properties"]]
    if isinstance(schema.get("items"), dict):
        plain["items"] = _closed(schema["items"], without)
    for key in ("$defs", "definitions"):
        if isinstance(schema.get(key), dict):
            plain[key] = _each_closed(schema[key], without)
    return plain


def _each_closed(schemas: Mapping[str, Any], without: Collection[str]) -> JsonObject:
    return {name: _closed(part, without) if isinstance(part, dict) else part for name, part in schemas.items()}


def absent_as_null(schema: JsonObject) -> JsonObject:
    """The schema of documents in which each optional field is present, with null where its value is absent. Objects
    whose fields depend on others stay as they are."""
    if any(not {"not", "if"}.isdisjoint(part) for _, part in walk(schema)):
        return schema
    return _with_nulls(schema)


def _with_nulls(schema: JsonObject) -> JsonObject:
    changed = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(schema.get(key), dict):
            changed[key] = {n: _with_nulls(part) if isinstance(part, dict) else part for n, part in schema[key].items()}
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            changed[key] = [_with_nulls(part) if isinstance(part, dict) else part for part in schema[key]]
    if isinstance(schema.get("items"), dict):
        changed["items"] = _with_nulls(schema["items"])
    if isinstance(schema.get("properties"), dict) and not any(key in schema for key in (*COMBINED, *DEPENDING)):
        required, fields = schema.get("required", []), changed["properties"]
        optional = {name: {"anyOf": [part, {"type": "null"}]} for name, part in fields.items() if name not in required}
        changed |= {"properties": {**fields, **optional}, "required": [*required, *optional]}
    return changed
