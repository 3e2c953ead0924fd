"""Schemas that are made to cost time or memory, or to end in a bug. ``hostile_schemas`` gives 300, by name."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

PATTERNS = (
    "^(a+)+$",
    "^(?=a)(a+)+$",
    "(a|aa)+$",
    "(a|a?)+$",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(.*)*x",
    "(x+x+)+y",
    "^(a{1000000})$",
    "(a{1000}){1000}",
    "((((a{50}){50}){50}){50})",
    "\\p{x1=L}" * 60,
    "\\u{FFFFFFFFFFFF}",
    "(?=a)" * 500,
    "(a?){30}a{30}",
    "[" * 1000,
    "(" * 3000,
    "a{1,100}{1,100}{1,100}",
    "(?:a|b|c|d|e|f|g){1,500}$",
    "(\\w|\\d|_)*!",
    "^(?!.*(.).*\\1)[a-z]+$",
    "|".join(f"w{n}" for n in range(3000)),
    ".{0,1000}" * 20,
    "(a*)*b",
    "^(\\s*\\S+\\s*)*$",
)
TEXT = "a" * 40 + "!"


def nested(keyword: str, depth: int, width: int = 2) -> Schema:
    schema: Schema = {"type": "integer"}
    for _ in range(depth):
        schema = {keyword: [schema] * width}
    return schema


def chained(keyword: str, length: int, width: int = 2) -> Schema:
    """Definitions of which each refers to the next several times: a small text, exponentially many ways."""
    definitions: Schema = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * width} for n in range(length)}
    definitions[f"d{length}"] = {"type": "integer", "minimum": 5}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def deep(key: str, depth: int) -> Schema:
    schema: Any = {}
    for _ in range(depth):
        schema = {"type": "object", key: {"a": schema} if key == "properties" else schema}
    return schema


def deep_value(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def fixed() -> Iterator[tuple[str, Any]]:
    for number, pattern in enumerate(PATTERNS):
        yield f"pattern {number}", {"type": "string", "pattern": pattern}
        yield f"pattern and enum {number}", {"enum": [TEXT], "pattern": pattern}
        yield f"patternProperties {number}", {"enum": [{TEXT: 1}], "type": "object", "patternProperties": {pattern: {}}}
        closed = {"patternProperties": {pattern: {}}, "additionalProperties": False}
        yield f"closed {number}", {"enum": [{TEXT: 1}], **closed}
        yield (
            f"unevaluated {number}",
            {
                "enum": [{TEXT: 1}],
                "patternProperties": {pattern: {}},
                "unevaluatedProperties": False,
            },
        )
        yield f"names {number}", {"type": "object", "propertyNames": {"pattern": pattern}}
        inner = {"$schema": "https://json-schema.org/draft/2020-12/schema", "enum": [TEXT], "pattern": pattern}
        yield f"own dialect {number}", {"properties": {"a": inner}}
    for keyword in ("anyOf", "oneOf", "allOf"):
        for depth in (10, 14, 18):
            yield f"{keyword} nested {depth}", nested(keyword, depth)
        for length in (16, 24, 60):
            yield f"{keyword} chained {length}", chained(keyword, length)
            yield f"{keyword} chained {length} with a value", {**chained(keyword, length), "enum": [1, 2, 3]}
        yield f"{keyword} wide", {keyword: [{"type": "string", "const": f"v{n}"} for n in range(5000)]}
    for depth in (60, 400, 900, 5000):
        yield f"const {depth} deep", {"const": deep_value(depth)}
        yield f"enum {depth} deep", {"enum": [deep_value(depth)]}
        yield f"properties {depth} deep", deep("properties", depth)
        yield f"items {depth} deep", deep("items", depth)
        yield f"not {depth} deep", deep("not", depth)
    for count in (1000, 10_000, 40_000):
        names = {f"p{n}": {"type": "string"} for n in range(count)}
        yield f"{count} properties", {"type": "object", "properties": names, "required": list(names)}
        yield f"{count} optional properties", {"type": "object", "properties": names}
        yield f"{count} choices", {"enum": [f"choice {n}" for n in range(count)]}
        yield f"{count} numbers", {"enum": list(range(count))}
    for most in (1000, 100_000, 10**9, 10**30):
        yield f"maxLength {most}", {"type": "string", "minLength": most, "maxLength": most}
        yield f"maxItems {most}", {"type": "array", "items": {}, "minItems": most, "maxItems": most}
        yield f"maxProperties {most}", {"type": "object", "minProperties": most, "maxProperties": most}
        yield f"multipleOf {most}", {"type": "integer", "multipleOf": most, "minimum": most}
        yield f"range {most}", {"type": "number", "minimum": -most, "maximum": most, "multipleOf": 0.01}
    yield "long text", {"type": "string", "const": "x" * 1_000_000}
    yield "long number", {"const": 10**4000}
    yield "small factor", {"type": "number", "multipleOf": 1e-300}
    yield "self", {"$ref": "#"}
    circle = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    yield "two that refer to each other", {"$defs": circle, "$ref": "#/$defs/a"}
    yield "all of itself", {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    yield "formats", {"allOf": [{"type": "string", "format": name} for name in ("uri", "email", "regex") * 50]}
    yield "recursive tree", {"type": "array", "items": {"$ref": "#"}, "minItems": 5}
    yield "items everywhere", {"prefixItems": [{"type": "integer"}] * 5000}
    yield "surrogate", {"const": "\ud800"}


def random_schema(chance: random.Random, depth: int) -> Any:
    """A schema of many keywords with odd values."""
    if depth == 0 or chance.random() < 0.1:
        return chance.choice([True, False, {}, {"type": "string"}, {"const": TEXT}, {"type": ["null", "number"]}])
    schema: Schema = {}
    for _ in range(chance.randint(1, 4)):
        keyword = chance.choice(
            ["properties", "items", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "pattern", "enum", "$ref"]
            + ["patternProperties", "additionalProperties", "minLength", "maxItems", "required", "dependentSchemas"]
            + ["unevaluatedProperties", "contains", "uniqueItems", "prefixItems", "minimum", "multipleOf", "format"]
        )
        inner = random_schema(chance, depth - 1)
        schema[keyword] = {
            "properties": {f"p{n}": inner for n in range(chance.randint(1, 6))},
            "patternProperties": {chance.choice(PATTERNS[:8]): inner},
            "dependentSchemas": {"p0": inner},
            "anyOf": [inner] * chance.randint(1, 5),
            "oneOf": [inner, random_schema(chance, depth - 1)],
            "allOf": [inner] * chance.randint(1, 3),
            "prefixItems": [inner],
            "pattern": chance.choice(PATTERNS),
            "enum": [TEXT, 1, None, {TEXT: [TEXT]}],
            "$ref": chance.choice(
                ["#", "#/properties/p0", "#/nowhere", "https://json-schema.org/draft/2020-12/schema"]
            ),
            "minLength": chance.choice([0, 5, 10**6]),
            "maxItems": chance.choice([0, 3, 10**7]),
            "required": ["p0", TEXT],
            "uniqueItems": True,
            "minimum": chance.choice([-1, 1e300, 10**25]),
            "multipleOf": chance.choice([0.1, 7, 10**20]),
            "format": chance.choice(["date", "uri", "nonsense"]),
        }.get(keyword, inner)
    return schema


def hostile_schemas(count: int = 340) -> list[tuple[str, str]]:
    """Names and JSON texts."""
    schemas = list(fixed())
    chance = random.Random(2026)
    while len(schemas) < count:
        schemas.append((f"random {len(schemas)}", random_schema(chance, 6)))
    return [(name, json_text(schema)) for name, schema in schemas]


def json_text(schema: Any) -> str:
    """A schema as JSON, however deep."""
    try:
        return json.dumps(schema)
    except RecursionError:
        return _deep_text(schema)


def _deep_text(value: Any) -> str:
    """JSON of what is nested deeper than json writes: a chain of single items."""
    head, tail = "", ""
    while isinstance(value, (dict, list)) and value:
        if isinstance(value, list):
            head, tail, value = head + "[", "]" + tail, value[0]
        else:
            *rest, last = value.items()
            plain = "".join(f"{json.dumps(key)}: {json.dumps(item)}, " for key, item in rest)
            head, tail, value = f"{head}{{{plain}{json.dumps(last[0])}: ", "}" + tail, last[1]
    return head + json.dumps(value) + tail
