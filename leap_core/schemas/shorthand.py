"""Schemas in one line: ``name, age int, tags list[str]: what they did``.

Fields are separated by commas, or by line breaks where there are any. A field is a name, then a type (a string when
there is none), then a colon and a description if wanted. ``name?`` may be left out. Types: str, int, float, bool, date,
date-time, any, ``list[T]``, and choices ``red|green|blue``.
"""

from __future__ import annotations

import json
import re

from ..errors import LeapSchemaError
from .json_values import JsonObject

TYPES: dict[str, JsonObject] = {
    "str": {"type": "string"},
    "string": {"type": "string"},
    "int": {"type": "integer"},
    "integer": {"type": "integer"},
    "float": {"type": "number"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    **dict.fromkeys(("date-time", "datetime"), {"type": "string", "format": "date-time"}),
    "any": {},
}
FIELD = re.compile(r"(?P<name>[^\W\d][\w-]*)(?P<optional>\?)?(?:\s+(?P<type>\S.*))?")
LIST = re.compile(r"(?:list|array)(?:\[(?P<items>.*)\])?")
CHOICE = re.compile(r"[^|\s\[\]]+(?:\|[^|\s\[\]]+)+")


def schema_from_shorthand(text: str) -> JsonObject:
    """The schema that a shorthand means: an object with these fields and no others. Raises LeapSchemaError."""
    lines = text.splitlines() if "\n" in text.strip() else text.split(",")
    properties: dict[str, JsonObject] = {}
    required = []
    for line in filter(None, (line.strip().rstrip(",").strip() for line in lines)):
        head, _, description = line.partition(":")
        match = FIELD.fullmatch(head.strip())
        if match is None:
            raise _error(f"{line!r} is not a field", text)
        name = match["name"]
        if name in properties:
            raise _error(f"the field {name!r} is given twice", text)
        schema = _type(match["type"] or "str", text)
        properties[name] = schema | ({"description": description.strip()} if description.strip() else {})
        if not match["optional"]:
            required.append(name)
    if not properties:
        raise _error("it names no field", text)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def list_of(schema: JsonObject | bool) -> JsonObject:
    """The schema of a list of what ``schema`` describes; references within it still lead to the same places."""
    if not isinstance(schema, dict):
        return {"type": "array", "items": schema}
    moved: JsonObject = {}
    inner = dict(schema)
    has_name = isinstance(schema.get("$id", schema.get("id")), str)  # then references are resolved from there
    for key in ("$schema",) if has_name else ("$schema", "$defs", "definitions"):
        if key in inner:
            moved[key] = inner.pop(key)
    if has_name:
        return {**moved, "type": "array", "items": inner}
    if '"$ref": "#"' in json.dumps(inner) or '"$ref": "#/properties' in json.dumps(schema):
        raise LeapSchemaError("a list cannot be made of a schema that refers to its own root")
    return {**moved, "type": "array", "items": inner}


def _type(text: str, whole: str) -> JsonObject:
    text = text.strip()
    if text.lower() in TYPES:
        return dict(TYPES[text.lower()])
    list_type = LIST.fullmatch(text)
    if list_type:
        items = _type(list_type["items"], whole) if list_type["items"] else {}
        return {"type": "array", "items": items}
    if CHOICE.fullmatch(text):
        if any(part.lower() in TYPES or part.lower() == "null" for part in text.split("|")):
            raise _error(f"{text!r} mixes types; a|b|c are choices of texts, and name? may be left out", whole)
        return {"type": "string", "enum": text.split("|")}
    known = "str, int, float, bool, date, date-time, any, list[…] and choices a|b|c"
    raise _error(f"{text!r} is not a type; known are {known}", whole)


def _error(reason: str, text: str) -> LeapSchemaError:
    excerpt = text if len(text) <= 80 else text[:79] + "…"
    return LeapSchemaError(
        f"the schema shorthand {excerpt!r} cannot be read: {reason}",
        hint="write fields as in 'name, age int, tags list[str]: what they did', or give a JSON schema or a file",
    )
