"""How long a string of a format may become while it is generated. A finished text is checked by the schema alone.

Sources: RFC 5321, 4.5.3.1 (a local part of 64 octets, a path of 256 with its brackets), RFC 1035 (host names of 253
characters), RFC 3339 (times, here with up to nine digits of a second), RFC 3339's appendix A (durations). RFC 3986 sets
no bound for URIs: 2,048 characters are what common programs take.
"""

from __future__ import annotations

from ..json_fields import JsonObject
from typing import Any

from .subschemas import transform


URI = 2048
MOST_CHARACTERS = {
    "email": 254,
    "idn-email": 254,
    "hostname": 253,
    "idn-hostname": 253,
    "uri": URI,
    "uri-reference": URI,
    "iri": URI,
    "iri-reference": URI,
    "uri-template": URI,
    "date-time": len("2026-01-01T00:00:00.123456789+00:00"),
    "time": len("00:00:00.123456789+00:00"),
    "duration": 64,
    "json-pointer": URI,
    "relative-json-pointer": URI,
}
PARTS = {"email": r"^[^@]{1,64}@[^@.]{1,63}(\.[^@.]{1,63})*$", "uri": r"^[^:]{1,32}:"}
"""How long the parts are that may not go on for the whole length."""


def with_bounded_formats(document: JsonObject) -> JsonObject:
    """The schema in which strings of these formats have a greatest length, unless it gives one itself."""
    whole: JsonObject = transform(document, bounded)
    return whole


def bounded(schema: JsonObject) -> JsonObject:
    """One schema with the length of its format."""
    name = schema.get("format")
    most = MOST_CHARACTERS.get(name) if isinstance(name, str) else None
    if most is None or "enum" in schema or "const" in schema or "maxLength" in schema:
        return schema
    shorter = {**schema, "maxLength": max(most, schema.get("minLength", 0))}
    if name in PARTS and "pattern" not in schema and "minLength" not in schema:
        shorter["pattern"] = PARTS[name]
    return shorter
