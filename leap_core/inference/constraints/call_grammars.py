"""Grammars of calls of declared functions, which llguidance enforces.

Arguments come in the declared order; optional ones may be left out; none is given by position. LFM2's plain types are
written as its models write them (either kind of quotes, True or true); whatever else a schema says is written as JSON,
which the parsers read as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...conversation.calls.dialects import Dialect
from ...conversation.calls.pythonic import ARGUMENT
from ...errors import LeapSchemaError
from ...schemas.json_values import JsonObject
from ...schemas.keywords import with_bounded_formats
from ...schemas.transforms import walk
from ...system.dataclass import dataclass
from .grammars import COMPACT, FREE_WHITE_SPACE, RELAXATIONS, occurs, relaxed

if TYPE_CHECKING:
    from ...conversation.calls import LeapFunction

ESCAPED = r"""\\["'\\nrtbf\/]|\\u[0-9a-fA-F]{4}"""
SPACES = r"\x00-\x20\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f\u3000"
WORD = "[a-zA-Z0-9_]"
NO_END = rf"""([;&|<>]|[ \t]+[^{SPACES}"'\\#,:)\]}}])"""
"""What after an unescaped quote shows that it ended nothing, so that the parser reads it as the model meant it."""


def _string(quote: str, apostrophe: str = "") -> str:
    """A string in these quotes. Others of the same kind may be in it unescaped, in pairs around words, where they
    cannot be taken for the ends of two strings with an operator between them."""
    plain = rf"([^{quote}\\]|{ESCAPED}{apostrophe})"
    pair = rf"[ \t(=\[{{]{quote}{WORD}(([^{quote}\\]|{ESCAPED})*{WORD})?{quote}"
    return rf"/{quote}({plain}|{pair}{NO_END})*({pair})?{quote}/"


TERMINALS = rf"""
DOUBLE: {_string('"')}
SINGLE: {_string("'", "|[a-zA-Z]'[a-zA-Z]")}
"""
TERMINALS += r"""INTEGER: /-?(0|[1-9][0-9]{0,18})/
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

PLAIN = {"string": "string", "integer": "INTEGER", "number": "NUMBER", "boolean": "boolean", "null": "null"}
OF_TYPE = {**PLAIN, "array": "list", "object": "dict"}
BESIDE_PROPERTIES = (
    *("allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "propertyNames"),
    *("minProperties", "maxProperties", "patternProperties", "unevaluatedProperties"),
)
"""What may be said of all arguments together, which only the check of a call looks at."""

ANNOTATIONS = {"description", "title", "default", "examples", "deprecated", "$comment", "readOnly", "writeOnly"}


@dataclass(frozen=True)
class Strictness:
    """How closely arguments follow their schemas. ``lenient``: llguidance leaves out the keywords that it does not
    know; ``left_out``: those whose values it refuses; ``anything``: where it has to write a schema, any value will do.
    """

    lenient: bool = False
    left_out: tuple[str, ...] = ()
    anything: bool = False


STRICT = Strictness()
STRICTNESSES = (
    STRICT,
    *(Strictness(lenient=True, left_out=keys) for keys in RELAXATIONS),
    Strictness(lenient=True, anything=True),
)
"""In the order of trying."""


def pythonic_grammar(
    functions: Sequence[LeapFunction], end: str, *, many: bool, strictness: Strictness = STRICT
) -> str:
    """The list of calls after an LFM start marker, then ``end`` (Lark for the end marker). ``many``: more than one
    call may be in the list."""
    rules = _Rules(strictness)
    names = [rules.call(function) for function in functions]
    more = f"(comma call){{0,{MOST_CALLS - 1}}}" if many else ""
    lines = [f'start: "[" call {more} "]" {end}', "call: " + " | ".join(names), *rules.lines]
    return "\n".join(lines) + TERMINALS


HERMES = Dialect("hermes", (), "<tool_call>", "</tool_call>")
NO_TOKENS: Mapping[str, int] = {}
INDEX = "\0"
"""Where in a dialect's text the number of a call is."""


def json_grammar(
    functions: Sequence[LeapFunction],
    end: str,
    *,
    dialect: Dialect = HERMES,
    special_tokens: Mapping[str, int] = NO_TOKENS,
    many: bool = True,
    strictness: Strictness = STRICT,
) -> str:
    """The calls of one block after a dialect's start marker, then ``end`` (Lark for the end marker). What of the
    dialect's texts is one of ``special_tokens`` is that token. ``many``: a block may hold several, where the dialect
    has them so."""
    rules = _Rules(strictness)
    spelled = partial(_spelled, special_tokens=special_tokens)
    calls = []
    for function in functions:
        head, tail = dialect.around(json.dumps(function.name, ensure_ascii=False)[1:-1], INDEX)
        arguments = rules.json(_closed(function.arguments_schema))
        calls.append(rules.add(f"{spelled(head)} {arguments} {spelled(tail)}"))
    more = f"({spelled(dialect.separator or '')} call){{0,{MOST_CALLS - 1}}}"
    more = more if many and dialect.separator is not None else ""
    start = f"start: gap {spelled(dialect.opening)} call {more} {spelled(dialect.closing)} gap {end}"
    return "\n".join([start, "call: " + " | ".join(calls), 'gap: "" | "\\n"', *rules.lines])


def _spelled(text: str, special_tokens: Mapping[str, int]) -> str:
    """A fixed text in Lark; INDEX in it is a number."""
    known = [re.escape(token) for token in sorted(special_tokens, key=len, reverse=True) if token in text]
    parts = re.split(f"({'|'.join([INDEX, *known])})", text)
    meanings = {INDEX: "/[0-9]{1,2}/"} | {token: f"<[{number}]>" for token, number in special_tokens.items()}
    return " ".join(meanings.get(part) or _literal(part) for part in parts if part)


def bare_grammar(functions: Sequence[LeapFunction], *, many: bool = True, strictness: Strictness = STRICT) -> str:
    """A reply that is a JSON call, or with ``many`` a list of them, with any white space and perhaps in a fence."""
    rules = _Rules(strictness)
    calls = [
        rules.json(
            {
                "type": "object",
                "properties": {"name": {"const": function.name}, key: _closed(function.arguments_schema)},
                "required": ["name", key],
                "additionalProperties": False,
            },
            any_white_space=True,
        )
        for function in functions
        for key in ("arguments", "parameters")
    ]
    lines = [
        "start: space calls | space opening space calls space closing",
        "calls: call" + (f' | "[" space call (space "," space call){{0,{MOST_CALLS - 1}}} space "]"' if many else ""),
        "call: " + " | ".join(calls),
        "opening: /```(json|tool_calls?)?/",
        'closing: "```"',
        r"space: /\s{0,32}/",
    ]
    return "\n".join([*lines, *rules.lines])


class _Rules:
    """Collects rules under fresh names."""

    def __init__(self, strictness: Strictness) -> None:
        self.lines: list[str] = []
        self._strictness = strictness

    def add(self, body: str) -> str:
        if len(self.lines) >= MOST_RULES:
            raise LeapSchemaError("the functions have too many parameters for one grammar", hint="declare fewer")
        name = f"r{len(self.lines)}"
        self.lines.append(f"{name}: {body}")
        return name

    def json(self, schema: JsonObject, *, any_white_space: bool = False) -> str:
        """A value spelled as JSON."""
        settings: JsonObject = dict(FREE_WHITE_SPACE if any_white_space else COMPACT)
        settings |= {"lenient": True} if self._strictness.lenient else {}
        plainer = {"type": "object"} if self._strictness.anything else relaxed(schema, self._strictness.left_out)
        return self.add(
            "%json " + json.dumps({**with_bounded_formats(plainer), "x-guidance": settings}, ensure_ascii=False)
        )

    def call(self, function: LeapFunction) -> str:
        schema = function.arguments_schema
        return self.add(f'{_literal(function.name + "(")} {self._arguments(schema)} ")"')

    def _arguments(self, schema: JsonObject) -> str:
        if _is_open(schema):
            pair = self.add('ARGUMENT_NAME "=" value')
            return self.add(f'"" | {pair} (comma {pair})*')
        shared: JsonObject = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}

        def named(name: str) -> str:
            return _literal(f"{name if ARGUMENT.fullmatch(name) else json.dumps(name, ensure_ascii=False)}=")

        return self._listed(schema, shared, named)

    def _listed(self, schema: JsonObject, shared: JsonObject, named: Callable[[str], str]) -> str:
        """The properties of a schema in their order, each ``named`` before its value."""
        properties, required = schema.get("properties", {}), schema.get("required", ())
        if len(properties) > MOST_PROPERTIES:
            count = f"an object of {len(properties)} properties"
            raise LeapSchemaError(f"{count}; at most {MOST_PROPERTIES} can be enforced")
        first, rest = '""', '""'  # what may follow when no property, or some property, comes before
        for name, detail in reversed(list(properties.items())):
            pair = self.add(f"{named(name)} {self._value(detail, shared)}")
            skip = name not in required
            first, rest = (
                self.add(f"{pair} {rest}" + (f" | {first}" if skip else "")),
                self.add(f"comma {pair} {rest}" + (f" | {rest}" if skip else "")),
            )
        return first

    def _value(self, schema: object, shared: JsonObject) -> str:
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, dict):
            return self.json({"not": {}})
        keywords = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
        kind = keywords.pop("type", None)
        written = self._of_parts(kind, keywords, shared) if keywords else self._of_type(kind)
        if written is not None:
            return written
        if self._strictness.anything or not _is_self_contained(schema):
            return "value"
        return self.json({**shared, **schema})

    def _of_type(self, kind: object) -> str | None:
        """A type of which nothing else is said, as models write it; None where it is written as JSON."""
        if isinstance(kind, str):
            return OF_TYPE.get(kind)
        if isinstance(kind, list) and kind and all(isinstance(each, str) and each in PLAIN for each in kind):
            return self.add(" | ".join(PLAIN[each] for each in kind))
        return "value" if kind is None else None

    def _of_parts(self, kind: object, keywords: JsonObject, shared: JsonObject) -> str | None:
        """A list of one type, an object of listed properties or one of some texts; None where it is written as JSON."""
        if kind == "array" and keywords.keys() == {"items"} and isinstance(keywords["items"], dict):
            item = self._value(keywords["items"], shared)
            return self.add(f'"[" "]" | "[" {item} (comma {item})* "]"')
        if kind == "object" and keywords.keys() <= {"properties", "required"} and keywords.get("properties"):
            listed = self._listed(keywords, shared, lambda name: f"({_either_quote(name)}) colon")
            return self.add(f'"{{" {listed} "}}"')
        texts = keywords["enum"] if keywords.keys() == {"enum"} else ()
        if texts and all(isinstance(text, str) for text in texts):
            return self.add(" | ".join(map(_either_quote, texts)))
        return None


def _is_self_contained(schema: JsonObject) -> bool:
    """Whether its references, if any, lead to what is shared."""
    references = [str(part["$ref"]) for _, part in walk(schema) if "$ref" in part]
    return all(reference.startswith(("#/$defs/", "#/definitions/")) for reference in references)


def unenforced(functions: Sequence[LeapFunction], strictness: Strictness) -> list[str]:
    """The keywords of the functions' parameters to which calls are not held."""
    schemas = [function.arguments_schema for function in functions]
    keywords = [key for key in BESIDE_PROPERTIES if any(key in schema and not _is_open(schema) for schema in schemas)]
    keywords += [key for key in strictness.left_out if any(occurs(key, schema) for schema in schemas)]
    if not all(_is_self_contained(part) for schema in schemas for part in _properties(schema)):
        keywords.append("$ref")
    return list(dict.fromkeys(keywords))


def _properties(schema: JsonObject) -> list[JsonObject]:
    return [part for part in schema.get("properties", {}).values() if isinstance(part, dict)]


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
