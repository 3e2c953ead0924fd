"""Schemas as documents: what is refused, what is checked, and how."""

from __future__ import annotations

import json
import re

import pytest

from leap_core.errors import LeapSchemaError
from leap_core.schemas.expressions import compiled, matches
from leap_core.schemas.json_schema import check_schema, read_schema
from leap_core.schemas.keywords import CHECKS, format_checker
from leap_core.schemas.shorthand import list_of, schema_from_shorthand
from leap_core.schemas.transforms import walk


@pytest.mark.parametrize(
    ("text", "pointer", "problem"),
    [
        ("{", "", "not JSON"),
        ("NaN", "", "NaN is not JSON"),
        ('{"maximum": 1e999}', "", "the number 1e999 is too large"),
        ("5", "", "a schema is a JSON object"),
        ("false", "", "allows no document"),
        ('{"type": "objekt"}', "/type", "objekt"),
        ('{"properties": {"a/b": {"minimum": "1"}}}', "/properties/a~1b/minimum", "'1' is not of type 'number'"),
        ('{"required": ["a", "a"]}', "/required", "non-unique"),
        ('{"properties": {"a": {"pattern": "(("}}}', "/properties/a/pattern", "cannot be used"),
        ('{"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": 2}', "", "invalid"),
        ("[" * 100_000, "", "not JSON"),
        (r'{"const": "\ud800"}', "", "half of a surrogate pair"),
        ('{"$schema": 5}', "/$schema", "not a string"),
        ('{"$schema": "http://[bad"}', "/$schema", "Invalid"),
        ('{"$ref": "#/title", "title": "x"}', "/$ref", "leads to no schema"),
        ('{"$ref": "#/parts/a", "parts": {"a": {"$ref": "#/parts/b"}}}', "/parts/a/$ref", "leads nowhere"),
        ('{"$ref": "#/parts/a", "parts": {"a": {"items": {"type": "no"}}}}', "/parts/a/items/type", "'no' is not"),
    ],
)
def test_an_invalid_schema_is_refused_with_its_path(text: str, pointer: str, problem: str):
    with pytest.raises(LeapSchemaError, match=re.escape(problem)) as caught:
        read_schema(text)
    if pointer:
        assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "string", "pattern": "^a$"}, ['"a"'], ['"a\\n"', '"b"']),
        ({"type": "string", "pattern": r"^\d+$"}, ['"12"'], ['"١"']),
        ({"type": "string", "pattern": r"^\p{Lu}\w*$"}, ['"Éa"'], ['"éa"']),
        ({"type": "string", "pattern": r"^(?<year>\d{4})\/\cJ?$"}, ['"2024/"'], ['"24/"']),
        (
            {"patternProperties": {"^x$": {"type": "integer"}}, "additionalProperties": False},
            ['{"x": 1}'],
            ['{"x\\n": 1}'],
        ),
        ({"multipleOf": 0.01}, ["1.13", "19.99", "3"], ["1.135"]),
        ({"type": "integer"}, ["1", "1.0"], ["1.5", "true", '"1"']),
        ({"format": "date"}, ['"2024-02-29"', "5"], ['"2023-02-29"']),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}, ['["a", 1]'], ["[1]"]),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}, ["2"], ["1"]),
        ({"$schema": "https://example.com/my-own", "type": "integer"}, ["1"], ["true"]),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, ["{}", '{"a": 1, "b": 2}'], ['{"a": 1}']),
        ({"const": 1}, ["1"], ["2", "1 1", "", "NaN", "{"]),
    ],
)
def test_texts_are_checked(schema: dict, right: list[str], wrong: list[str]):
    checked = check_schema(schema)
    assert [text for text in right if checked.problems(text)] == []
    assert [text for text in wrong if not checked.problems(text)] == []


def test_problems_have_their_path():
    checked = check_schema({"properties": {"a": {"items": {"type": "integer"}}}, "required": ["b"]})
    assert checked.problems('{"a": [1, "x"]}') == [
        "/a/1: 'x' is not of type 'integer'",
        "the document: 'b' is a required property",
    ]


def test_a_pattern_that_would_take_python_for_ever_does_not():
    checked = check_schema({"pattern": "^(?:[A-Za-z0-9]+[-]?)+[A-Za-z0-9]$"})
    assert checked.problems(json.dumps("a" * 200)) == []
    assert checked.problems(json.dumps("a" * 200 + "!")) != []
    assert checked.problems(json.dumps("ä" * 200)) != []


def test_nothing_is_fetched_and_nothing_loops():
    assert check_schema({"$ref": "#"}).problems("1") == ["the schema refers to itself without end"]
    with pytest.raises(LeapSchemaError, match="leads nowhere") as caught:
        check_schema({"items": {"$ref": "http://127.0.0.1:9/schema.json"}})
    assert caught.value.pointer == "/items/$ref"


def test_references_within_the_document_are_followed():
    schema = {
        "$id": "https://example.com/root",
        "$defs": {"a": {"$id": "inner", "$anchor": "x", "type": "integer", "items": {"$ref": "#x"}}},
        "properties": {"b": {"$ref": "inner"}, "c": {"$ref": "#/$defs/a"}, "d": {"$ref": "inner#x"}},
    }
    assert check_schema(schema).problems('{"b": 1, "c": 2, "d": "x"}') == ["/d: 'x' is not of type 'integer'"]
    own = {"$ref": "http://json-schema.org/draft-07/schema#"}
    assert check_schema(own).problems('{"type": "integer"}') == [] and check_schema(own).problems('{"type": 1}')


FORMATS = {
    "date": (["2024-02-29", "0001-01-01"], ["2023-02-29", "2024-1-1", "20240101", "२०२४-01-01"]),
    "time": (["12:00:00Z", "23:59:60Z", "00:59:60+01:00", "12:00:00.5-08:30"], ["24:00:00Z", "12:00:60Z", "12:00:00"]),
    "date-time": (["2024-01-01T00:00:00Z", "2024-01-01t00:00:00.1+01:00"], ["2024-01-01 00:00:00Z", "2024-01-01"]),
    "duration": (["P1D", "PT1H30M", "P1Y2M3DT4H5M6S", "P4W", "PT0.5S"], ["P", "PT", "1D", "P1S", "P1DT"]),
    "email": (
        ["a@b.co", "a.b+c@d-e.org", '"a b"@c.de', "a@[127.0.0.1]"],
        ["a", "@b", "a@", "a b@c.de", "a@-b.c", "a@[x]"],
    ),
    "idn-email": (["ä@ü.de"], ["ä", "a b@c.d"]),
    "hostname": (["a", "a-b.c", "x" * 63], ["", "-a", "a-", "a..b", "x" * 64, "a_b", ".".join(["x" * 60] * 5)]),
    "idn-hostname": (
        ["münchen.de", "MÜNCHEN.de", "실례。테스트", "l·l", "α͵β", "א׳ב", "ぁ・", "क्\u200dष", "1host"],
        ["", "a b", "a..b", "〮한국", "a·l", "α͵", "׳ב", "def・abc", "क\u200dष", "٠۰", "\u0300hello", "-a"],
    ),
    "ipv4": (["1.2.3.4"], ["1.2.3", "01.2.3.4", "256.1.1.1", "1.2.3.4.5"]),
    "ipv6": (["::1", "2001:db8::1"], ["1", ":::", "fe80::1%eth0", "12345::"]),
    "uuid": (["12345678-1234-5678-1234-567812345678"], ["12345678123456781234567812345678", "x"]),
    "uri": (
        ["http://a.b/c?d#e", "urn:x:y", "http://[::1]:80/", "mailto:a@b"],
        ["a", "//a/b", "http://a b", "http://[x]/", "a:[b"],
    ),
    "uri-reference": (["", "a/b", "//h/p", "#x", "?q=%20"], ["a b", "1:2", "%zz", "a#b#c"]),
    "iri": (["http://ü.de/ä"], ["ä", "http://a b"]),
    "iri-reference": (["ä/ö"], ["a b"]),
    "uri-template": (["/a/{b}", "{?x,y*}", "{+p:3}"], ["{", "{a b}", "}"]),
    "json-pointer": (["", "/a/0", "/~0~1", "/"], ["a", "/~2", "/~"]),
    "relative-json-pointer": (["0", "1/a", "2#"], ["/a", "01", "-1", ""]),
    "regex": (["a+", r"\p{L}", "(?<n>x)", ""], ["(", "[", "a**"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_checked(name: str):
    checker = format_checker()
    right, wrong = FORMATS[name]
    assert [text for text in right if not checker.conforms(text, name)] == []
    assert [text for text in wrong if checker.conforms(text, name)] == []
    assert checker.conforms(5, name)


def test_every_format_has_its_row():
    assert set(FORMATS) | {"ip-address"} == set(CHECKS)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a$", "a", "a\n"),
        ("[$]", "$", "a"),
        (r"\$", "$", ""),
        (r"[\]$]", "$", "a"),
        ("[^]", "\n", ""),
        ("a|b[]", "a", "b"),
        (r"\u{1F600}", "😀", "u"),
        (r"[\p{Ll}]", "é", "É"),
        (r"^\P{L}$", "1", "a"),
        (r"\-\:\Z", "-:Z", "-:"),
        ("[[a]", "[", "b"),
        ("(?i)^abc", "ABC", "b"),
        ("(?s)a.b", "a\nb", "ab"),
        (r"^[\p{Graph}\x20]$", "~", "\t"),
        (r"^\d$", "1", "١"),
        (r"^[\D]$", "١", "1"),
        (r"^\w\W$", "_é", "é_"),
        (r"^\s$", "\v", "\u200b"),
        (r"\bb", "éb", "ab"),
    ],
)
def test_patterns_mean_what_ecma_says(pattern: str, matching: str, other: str):
    assert matches(pattern, matching) and not matches(pattern, other)


UNUSABLE = (r"\p{Klingon}", r"(a", r"\k<n>", "a{2,1}", r"\u{FFFFFFFFFFFF}", r"\u{110000}", "(" * 5000, "(a{99}){999}")


@pytest.mark.parametrize("pattern", UNUSABLE)
def test_patterns_that_cannot_be_used(pattern: str):
    with pytest.raises(ValueError):
        compiled(pattern)


def test_every_place_of_a_schema_is_walked():
    schema = {
        "properties": {"a": {"items": [{}, {"not": {}}]}, "properties": {}},
        "allOf": [{"if": {}}],
        "enum": [{"properties": {}}],
        "dependencies": {"a": ["b"], "c": {}},
        "additionalProperties": True,
    }
    assert ["/".join(map(str, path)) for path, _ in walk(schema)] == [
        "",
        "properties/a",
        "properties/a/items/0",
        "properties/a/items/1",
        "properties/a/items/1/not",
        "properties/properties",
        "allOf/0",
        "allOf/0/if",
        "dependencies/c",
    ]


def test_the_shorthand_is_expanded():
    assert schema_from_shorthand("name, age int, tags list[str]: what they did") == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "what they did"},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(("name", "format"), [("date", "date"), ("date-time", "date-time"), ("datetime", "date-time")])
def test_the_shorthand_has_dates(name, format):
    schema = schema_from_shorthand(f"name, due {name}: when, all list[{name}]")
    assert schema["properties"]["due"] == {"type": "string", "format": format, "description": "when"}
    assert schema["properties"]["all"] == {"type": "array", "items": {"type": "string", "format": format}}
    assert check_schema(schema).problems('{"name": "x", "due": "soon", "all": []}')


def test_the_shorthand_in_lines_with_commas_choices_and_options():
    schema = schema_from_shorthand("colour red|green: one, of two\nprice? float\nextra list[list[int]]\nx any\n")
    assert schema["properties"] == {
        "colour": {"type": "string", "enum": ["red", "green"], "description": "one, of two"},
        "price": {"type": "number"},
        "extra": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "x": {},
    }
    assert schema["required"] == ["colour", "extra", "x"]


@pytest.mark.parametrize("text", ["", "  ,", "a, a", "a nonsense", "a list[", "1a", "a int int", "a b|", "a int|null"])
def test_a_wrong_shorthand_says_what_is_wrong(text: str):
    with pytest.raises(LeapSchemaError, match="shorthand"):
        schema_from_shorthand(text)


def test_a_list_of_what_a_schema_describes():
    one = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    many = check_schema(list_of(one))
    assert many.problems('[{"a": 1}, {}]') == [] and many.problems('[{"a": "x"}]') and many.problems('{"a": 1}')
    assert list_of(True) == {"type": "array", "items": True}
    named = {"$id": "http://a/b", **one}
    assert check_schema(list_of(named)).problems('[{"a": "x"}]')
    with pytest.raises(LeapSchemaError, match="own root"):
        list_of({"properties": {"a": {"$ref": "#"}}})
