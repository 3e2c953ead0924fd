"""What of a schema is enforced while generating, and what is left to the check."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

from leap_core.errors import LeapGenerationError, LeapSchemaError
from leap_core.inference.constraints.grammars import Freedom, enforce
from leap_core.inference.constraints.token_constraints import GrammarConstraint
from leap_core.schemas.grammar_matcher import byte_tokenizer
from leap_core.schemas.json_schema import check_schema


def accepts(grammar: str, text: str) -> bool:
    matcher = byte_tokenizer().matcher(grammar)
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (True, ["1", '"x"', '{"a": [null]}'], ["", "{"]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, ['{"a": 1}'], ["{}"]),
        ({"description": "d", "allOf": [{"type": "integer"}]}, ["5"], ['"5"']),
        ({"enum": ["a", 1, None]}, ['"a"', "1", "null"], ['"b"']),
        ({"type": "string", "format": "date"}, ['"2024-01-01"'], ['"2024-13-01"']),
        ({"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}, ["[1, 2]"], ['["a"]']),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/n", "minimum": 9,
          "definitions": {"n": {"type": "integer"}}}, ["3"], ['"3"']),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, ["1", '"a"'], ["[]"]),
    ],
)  # fmt: skip
def test_keywords_that_are_enforced_completely(schema: object, right: list[str], wrong: list[str]):
    enforced = enforce(check_schema(schema), byte_tokenizer())
    assert enforced.exact and enforced.warnings == ()
    assert [text for text in right if not accepts(enforced.grammar, text)] == []
    assert [text for text in wrong if accepts(enforced.grammar, text)] == []


@pytest.mark.parametrize(
    ("keyword", "place", "schema", "allowed", "refused"),
    [
        ("not", "/properties/a/not",
         {"properties": {"a": {"not": {"type": "string"}}}, "type": "object"}, '{"a": 1}', "1"),
        ("if", "/if", {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}, '{"b": 1}', "[]"),
        ("uniqueItems", "/uniqueItems",
         {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1]", '["a"]'),
        ("oneOf", "/oneOf", {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]}, "3", '"a"'),
        ("pattern", "/items/pattern",
         {"type": "array", "items": {"type": "string", "pattern": "^(?!a)"}}, '["b"]', "[1]"),
        ("patternProperties", "/patternProperties",
         {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "^ab": {}}}, '{"ab": 1}', "1"),
        ("minimum", "/items/minimum", {"type": "array", "items": {"type": "integer", "minimum": 1e30}}, "[1]", '["a"]'),
        ("unevaluatedProperties", "/unevaluatedProperties",
         {"type": "object", "unevaluatedProperties": False}, "{}", "1"),
        ("minProperties", "/minProperties",
         {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {}}, "additionalProperties": False,
          "minProperties": 2, "uniqueItems": True, "$defs": {"n": {"type": "integer"}}},
         '{"a": 1, "b": 2}', '{"c": 1}'),
    ],
)  # fmt: skip
def test_keywords_that_are_not_enforced_are_named_with_their_path(
    keyword: str, place: str, schema: dict, allowed: str, refused: str
):
    enforced = enforce(check_schema(schema), byte_tokenizer())
    assert not enforced.exact
    warning = next(text for text in enforced.warnings if text.startswith(keyword))
    assert warning == f"{keyword} is not enforced while generating, but checked afterwards ({place})"
    assert accepts(enforced.grammar, allowed) and not accepts(enforced.grammar, refused)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("const", 12345678901234567), ("enum", [1, 1234567890123456789]), ("minimum", 1234567890123456789)],
)
def test_integers_beyond_a_double_are_checked_afterwards(keyword: str, value: object):
    enforced = enforce(check_schema({"type": "integer", keyword: value}), byte_tokenizer())
    assert not enforced.exact and enforced.warnings[0].startswith(f"{keyword} is not enforced")
    assert accepts(enforced.grammar, "1234567890123456789") and accepts(enforced.grammar, "12345678901234567")


def test_an_unknown_dialect_is_the_newest():
    schema = check_schema({"$schema": "https://example.com/mine.json", "type": "integer"})
    enforced = enforce(schema, byte_tokenizer())
    assert enforced.exact and accepts(enforced.grammar, "1") and not accepts(enforced.grammar, '"1"')


def test_formats_that_are_only_checked_afterwards():
    enforced = enforce(check_schema({"type": "string", "format": "json-pointer"}), byte_tokenizer())
    assert not enforced.exact and "'json-pointer' is not enforced while generating" in enforced.warnings[0]


def test_unknown_formats_are_ignored():
    enforced = enforce(check_schema({"type": "integer", "format": "int32"}), byte_tokenizer())
    assert enforced.exact and enforced.warnings == ("format 'int32' is unknown and means nothing",)


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"enum": []},
        {"type": "array", "minItems": 2, "maxItems": 1},
    ],
)
def test_a_schema_that_no_document_satisfies_is_an_error(schema: dict):
    with pytest.raises(LeapSchemaError, match="no document can satisfy"):
        enforce(check_schema(schema), byte_tokenizer())


def test_the_path_of_an_unsatisfiable_schema_is_named():
    schema = {"type": "object", "properties": {"a": {"items": {"allOf": [{"type": "string"}, {"type": "null"}]},
              "type": "array", "minItems": 1}}, "required": ["a"]}  # fmt: skip
    with pytest.raises(LeapSchemaError, match="because of /properties/a/items") as caught:
        enforce(check_schema(schema), byte_tokenizer())
    assert caught.value.pointer == "/properties/a/items"


def test_a_schema_of_schemas_is_checked_afterwards():
    enforced = enforce(check_schema({"$ref": "http://json-schema.org/draft-07/schema#"}), byte_tokenizer())
    assert not enforced.exact and accepts(enforced.grammar, '{"type": 5}')


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a":1}', '{\n  "a": 1\n}', '{\n\t"a": 1\n}'])
def test_whitespace_in_json_is_allowed_on_request(text: str):
    schema = check_schema({"type": "object", "properties": {"a": {}}})
    assert accepts(enforce(schema, byte_tokenizer(), Freedom(white_space=True)).grammar, text)
    assert accepts(enforce(schema, byte_tokenizer()).grammar, text) is (text == '{"a": 1}')


@pytest.mark.parametrize(
    "text", ['{\n\n"a": 1}', '{  "a": 1}', "{\n" + " " * 41 + '"a": 1}', ' {"a": 1}', '{"a": 1}\n']
)
def test_endless_whitespace_is_not_allowed(text: str):
    schema = check_schema({"type": "object", "properties": {"a": {}}})
    enforced = enforce(schema, byte_tokenizer(), Freedom(white_space=True))
    assert not accepts(enforced.grammar, text)


@pytest.mark.parametrize(("name", "rest"), [("date", ""), ("date-time", "T12:00:00Z")])
def test_a_date_exists_in_the_calendar(name: str, rest: str):
    grammar = enforce(check_schema({"type": "string", "format": name}), byte_tokenizer()).grammar
    years, days = ("0000", "0400", "1900", "2000", "2023", "2024"), (0, 1, 28, 29, 30, 31, 32)
    for text in (f"{year}-{month:02}-{day:02}" for year in years for month in range(14) for day in days):
        try:
            exists = bool(datetime.date.fromisoformat(text))
        except ValueError:
            exists = False
        assert accepts(grammar, f'"{text}{rest}"') == exists, text


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
)
def test_values_of_enforced_formats_pass_their_check(name: str):
    """A generated text must not be refused by the check for a format that the grammar has let it write."""
    import random

    checked = check_schema({"type": "string", "format": name})
    grammar = enforce(checked, byte_tokenizer()).grammar
    refused = []
    for seed in range(40):
        draw = random.Random(seed)
        matcher = byte_tokenizer().matcher(grammar)
        text = b""
        while not matcher.is_stopped() and len(text) < 60:
            bits = matcher.compute_bitmask()
            allowed = [t for t in range(256) if bits[t // 8] >> t % 8 & 1 and t < 127]
            closing = [t for t in allowed if t == ord('"') and text]
            token = closing[0] if closing and draw.random() < 0.4 else draw.choice(allowed)
            assert matcher.consume_token(token)
            text += bytes([token])
        if matcher.is_accepting() and checked.problems(text.decode()):
            refused.append(text)
    assert refused == []


@pytest.mark.slow
def test_large_schemas_compile():
    properties = {f"field_{n}": {"type": "object", "properties": {"v": {"enum": list(range(20))}}} for n in range(300)}
    enforced = enforce(check_schema({"type": "object", "properties": properties}), byte_tokenizer())
    assert enforced.exact and accepts(enforced.grammar, json.dumps({"field_7": {"v": 3}}))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"a": 1}', True),
        ('{\n    "a": 1\n}', True),
        ('{\n\t\t"a": 1\n}', True),
        ('{"a": 9223372036854775807}', True),
        ("{\n" + "\t" * 20 + '"a": 1}', False),
        ('{\n \t"a": 1}', False),
        ('{\n\n"a": 1}', False),
    ],
)
def test_whitespace_is_bounded(text: str, allowed: bool):
    schema = check_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    matcher = byte_tokenizer().matcher(enforce(schema, byte_tokenizer(), Freedom(white_space=True)).grammar)
    tokens = list(text.encode())
    assert (matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()) is allowed


def test_an_exhausted_lexer_is_recreated():
    """Copies of a matcher share their lexer, and what one has made too complex fails for all."""
    words = {"type": "string", "maxLength": 500, "pattern": r"^(?:\S+\s+){0,49}\S+$"}
    names = [f"p{n}" for n in range(12)]
    properties = dict.fromkeys(names, words)
    schema = check_schema({"type": "object", "properties": properties, "required": names})
    grammar = enforce(schema, byte_tokenizer()).grammar
    text = json.dumps({name: "some words of " * 30 + name for name in names}).encode()
    for _ in range(3):
        byte_tokenizer().matcher(grammar).try_consume_tokens(list(text))
    constraint = GrammarConstraint(byte_tokenizer().matcher(grammar), byte_tokenizer())
    with pytest.raises(LeapGenerationError):
        for token in text:
            constraint.apply(np.zeros(byte_tokenizer().n_tokens, dtype=np.float32))
            constraint.accept(token)
    matcher = byte_tokenizer().matcher(grammar)
    assert matcher.try_consume_tokens(list(b'{"p0": "a')) == 9 and not matcher.is_error()


def test_property_counts_that_the_grammar_miscounts_are_checked_afterwards():
    extension = {"patternProperties": {"^_": {}}, "additionalProperties": False}
    author = {"type": "object", "properties": {"name": {}, "url": {}}, "minProperties": 1, **extension}
    enforced = enforce(check_schema(author), byte_tokenizer())
    assert accepts(enforced.grammar, '{"name": "x"}') and not enforced.exact


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"exclusiveMinimum": 1, "maximum": 1.5}, ["1.1", "1.5"], ["1", "1.0", "1.00", "1.6"]),
        ({"exclusiveMinimum": 0, "maximum": 0.01}, ["0.001", "0.01"], ["0", "0.0", "0.00", "0.02"]),
        ({"exclusiveMinimum": -3, "exclusiveMaximum": -2}, ["-2.5"], ["-2", "-2.0", "-3", "-3.00"]),
        ({"minimum": 0.5, "exclusiveMaximum": 1}, ["0.5", "0.98"], ["1", "1.0", "1.000"]),
        ({"exclusiveMinimum": 0, "multipleOf": 0.5}, ["0.5", "1"], ["0", "0.0"]),
    ],
)
def test_an_exclusive_bound_excludes_every_spelling_of_it(schema: dict, right: list[str], wrong: list[str]):
    enforced = enforce(check_schema({"type": "number", **schema}), byte_tokenizer())
    assert enforced.exact
    assert [text for text in right if not accepts(enforced.grammar, text)] == []
    assert [text for text in wrong if accepts(enforced.grammar, text)] == []


@pytest.mark.parametrize("dialect", [{}, {"$schema": "https://json-schema.org/draft/2020-12/schema"}])
def test_dependencies_are_checked_in_every_draft(dialect: dict):
    schema = check_schema({**dialect, "type": "object", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}})
    assert "'b' is a dependency of 'a'" in schema.problems_of({"a": 1})[0] and schema.problems_of({"c": 1})
    assert schema.problems_of({"a": 1, "b": 2, "c": 3, "d": 4}) == []
    assert "dependencies is not enforced" in enforce(schema, byte_tokenizer()).warnings[0]


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{"type": "string"}]}, "prefixItems"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "dependentRequired": {"a": ["b"]}},
            "dependentRequired",
        ),
        ({"additionalItems": False}, "additionalItems"),
        ({"properties": {"a": {"divisibleBy": 3}}}, "divisibleBy"),
    ],
)
def test_a_keyword_of_another_draft_is_named(schema: dict, keyword: str):
    warnings = enforce(check_schema(schema), byte_tokenizer()).warnings
    assert f"{keyword} belongs to another draft of JSON Schema and means nothing here" in warnings
