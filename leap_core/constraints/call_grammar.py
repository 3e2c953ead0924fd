"""The grammar of calls of declared functions, in llguidance's Lark, for what stands after a start marker.

Arguments come in the declared order; optional ones may be left out; none is given by position. Plain types are written
as the models write them (either kind of quotes, True or true); whatever else a schema says is written as JSON, which
the parsers read as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LeapSchemaError
from ..functions.pythonic import ARGUMENT

if TYPE_CHECKING:
    from ..functions import LeapFunction

JsonObject = dict[str, Any]

TERMINALS = r"""
DOUBLE: /"([^"\\]|\\["'\\nrtbf\/]|\\u[0-9a-fA-F]{4})*"/
SINGLE: /'([^'\\]|\\["'\\nrtbf\/]|\\u[0-9a-fA-F]{4})*'/
INTEGER: /-?(0|[1-9][0-9]{0,18})/
NUMBER: /-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?/
ARGUMENT_NAME: /[a-zA-Z_][a-zA-Z0-9_]{0,63}/
string: DOUBLE | SINGLE
boolean: "True" | "False" | "true" | "false"
null: "None" | "null"
value: string | NUMBER | boolean | null | list | dict
list: "[" "]" | "[" value (comma value)* "]"
dict: "{" "}" | "{" pair (comma pair)* "}"
pair: string colon value
comma: "," " "?
colon: ":" " "?
"""
"""Shared rules. Digits are bounded, so that a number ends."""

MOST_CALLS = 32
"""Calls in one list, so that a list ends."""

MOST_RULES, MOST_PROPERTIES = 20_000, 500
"""llguidance reads a chain of rules by recursion, one for each property, and a full stack ends the process."""

COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
PLAIN = {"string": "string", "integer": "INTEGER", "number": "NUMBER", "boolean": "boolean", "null": "null"}
ANNOTATIONS = {"description", "title", "default", "examples", "deprecated", "$comment", "readOnly", "writeOnly"}


def pythonic_grammar(functions: Sequence[LeapFunction], end: str, *, many: bool, lenient: bool) -> str:
    """The list of calls after an LFM start marker, then ``end`` (Lark for the end marker). ``many``: more than one
    call may stand in the list. ``lenient``: keywords that llguidance cannot enforce are left out."""
    rules = _Rules(lenient)
    names = [rules.call(function) for function in functions]
    more = f"(comma call){{0,{MOST_CALLS - 1}}}" if many else ""
    lines = [f'start: "[" call {more} "]" {end}', "call: " + " | ".join(names), *rules.lines]
    return "\n".join(lines) + TERMINALS


def json_grammar(functions: Sequence[LeapFunction], end: str, *, lenient: bool) -> str:
    """One JSON call after a Hermes start marker, then ``end``."""
    rules = _Rules(lenient)
    calls = []
    for function in functions:
        opening = json.dumps({"name": function.name}, ensure_ascii=False)[:-1] + ', "arguments": '
        calls.append(rules.add(f'{_literal(opening)} {rules.json(_closed(function.arguments_schema))} "}}"'))
    return "\n".join([f"start: gap call gap {end}", "call: " + " | ".join(calls), 'gap: "" | "\\n"', *rules.lines])


class _Rules:
    """Collects rules under fresh names."""

    def __init__(self, lenient: bool) -> None:
        self.lines: list[str] = []
        self._lenient = lenient

    def add(self, body: str) -> str:
        if len(self.lines) >= MOST_RULES:
            raise LeapSchemaError("the functions have too many parameters for one grammar", hint="declare fewer")
        name = f"r{len(self.lines)}"
        self.lines.append(f"{name}: {body}")
        return name

    def json(self, schema: Mapping[str, Any]) -> str:
        """A value spelled as JSON."""
        settings = COMPACT | ({"lenient": True} if self._lenient else {})
        return self.add("%json " + json.dumps({**schema, "x-guidance": settings}, ensure_ascii=False))

    def call(self, function: LeapFunction) -> str:
        schema = function.arguments_schema
        return self.add(f'{_literal(function.name + "(")} {self._arguments(schema)} ")"')

    def _arguments(self, schema: JsonObject) -> str:
        if _is_open(schema):
            pair = self.add('ARGUMENT_NAME "=" value')
            return self.add(f'"" | {pair} (comma {pair})*')
        shared: JsonObject = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
        required = schema.get("required", ())
        _check_count(schema.get("properties", {}))
        first, rest = '""', '""'  # what may follow when no argument, or some argument, stands before
        for name, detail in reversed(list(schema.get("properties", {}).items())):
            spelled = name if ARGUMENT.fullmatch(name) else json.dumps(name, ensure_ascii=False)
            argument = self.add(f"{_literal(spelled + '=')} {self._value(detail, shared)}")
            skip = name not in required
            first, rest = (
                self.add(f"{argument} {rest}" + (f" | {first}" if skip else "")),
                self.add(f"comma {argument} {rest}" + (f" | {rest}" if skip else "")),
            )
        return first

    def _value(self, schema: object, shared: JsonObject) -> str:
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, dict):
            return self.json({"not": {}})
        said = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
        kind = said.pop("type", None)
        if not said and isinstance(kind, str) and kind in PLAIN:
            return PLAIN[kind]
        if not said and isinstance(kind, str) and kind in ("array", "object"):
            return "list" if kind == "array" else "dict"
        if not said and kind is None:
            return "value"
        if not said and isinstance(kind, list) and kind and all(isinstance(k, str) and k in PLAIN for k in kind):
            return self.add(" | ".join(PLAIN[k] for k in kind))
        if kind == "array" and said.keys() == {"items"} and isinstance(said["items"], dict):
            item = self._value(said["items"], shared)
            return self.add(f'"[" "]" | "[" {item} (comma {item})* "]"')
        if kind == "object" and said.keys() <= {"properties", "required"} and said.get("properties"):
            return self._object(said, shared)
        if said.keys() == {"enum"} and all(isinstance(value, str) for value in said["enum"]) and said["enum"]:
            return self.add(" | ".join(_either_quote(value) for value in said["enum"]))
        return self.json({**shared, **schema})

    def _object(self, schema: JsonObject, shared: JsonObject) -> str:
        required = schema.get("required", ())
        _check_count(schema["properties"])
        first, rest = '""', '""'
        for name, detail in reversed(list(schema["properties"].items())):
            pair = self.add(f"({_either_quote(name)}) colon {self._value(detail, shared)}")
            skip = name not in required
            first, rest = (
                self.add(f"{pair} {rest}" + (f" | {first}" if skip else "")),
                self.add(f"comma {pair} {rest}" + (f" | {rest}" if skip else "")),
            )
        return self.add(f'"{{" {first} "}}"')


def _check_count(properties: Mapping[str, object]) -> None:
    if len(properties) > MOST_PROPERTIES:
        raise LeapSchemaError(f"an object of {len(properties)} properties; at most {MOST_PROPERTIES} can be enforced")


def _is_open(schema: JsonObject) -> bool:
    """Whether the names of the arguments are not all listed."""
    listed = isinstance(schema.get("properties"), dict) and bool(schema["properties"])
    structural = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"} & schema.keys()
    return not listed and (bool(structural) or bool(schema.get("additionalProperties")))


def _closed(schema: JsonObject) -> JsonObject:
    """With the listed arguments and no others."""
    if _is_open(schema) or {"additionalProperties", "patternProperties"} & schema.keys():
        return schema
    return {**schema, "additionalProperties": False}


def _either_quote(text: str) -> str:
    double = json.dumps(text, ensure_ascii=False)
    single = "'" + double[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
    return f"{_literal(double)} | {_literal(single)}"


def _literal(text: str) -> str:
    """A string of Lark."""
    return json.dumps(text, ensure_ascii=False)
