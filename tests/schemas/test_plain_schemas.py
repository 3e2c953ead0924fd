"""What is told without the meta-schema is what the meta-schema says."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from leap_core.errors import LeapSchemaError
from leap_core.schemas.json_schema import CHECKS, check_schema, is_plain
from leap_core.schemas.keywords import regex_checker

EVERY_KEYWORD: dict[str, Any] = {
    "type": ["object", "null"],
    "title": "t",
    "description": "d",
    "$comment": "c",
    "format": "date",
    "pattern": "^a+$",
    "properties": {"a": {"type": "string", "minLength": 1, "maxLength": 5}, "b": True},
    "patternProperties": {"^x": {"enum": [1, "a", None]}},
    "additionalProperties": False,
    "required": ["a", "b"],
    "items": {"const": {"any": 1}},
    "prefixItems": [{"multipleOf": 0.5}, {"minimum": 1, "maximum": 2.5}],
    "contains": {"exclusiveMinimum": 0, "exclusiveMaximum": 9},
    "minContains": 1,
    "maxContains": 2,
    "minItems": 0,
    "maxItems": 3,
    "uniqueItems": True,
    "minProperties": 0,
    "maxProperties": 9,
    "propertyNames": {"$ref": "#/$defs/name"},
    "allOf": [{}],
    "anyOf": [{"deprecated": True}, {"readOnly": True}],
    "oneOf": [{"writeOnly": False}],
    "not": {"examples": [1]},
    "if": True,
    "then": {},
    "else": {},
    "default": 5,
    "unevaluatedItems": {},
    "unevaluatedProperties": False,
    "contentSchema": {},
    "dependentSchemas": {"a": {"minItems": 1}},
    "$defs": {"name": {"type": "string"}},
}
ODD: list[Any] = [None, True, -1, 0, 1.5, 3.0, "", "text", "(", [], ["a", "a"], [1], {}, {"a": 5}, {"type": "no"}, "#x"]


def accepts(schema: Any) -> bool:
    try:
        Draft202012Validator.check_schema(schema, format_checker=regex_checker())
    except SchemaError:
        return False
    return True


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container within, with each of its keys."""
    if not isinstance(value, (dict, list)):
        return []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def test_every_keyword_is_known() -> None:
    keywords = {key for container, key in places(EVERY_KEYWORD) if isinstance(container, dict)}
    assert keywords | set(EVERY_KEYWORD) >= set(CHECKS)
    assert is_plain(EVERY_KEYWORD) and accepts(EVERY_KEYWORD)


@pytest.mark.slow
def test_plain_schemas_are_valid() -> None:
    dice = random.Random(5)
    plain = 0
    for _ in range(1500):
        schema = copy.deepcopy(EVERY_KEYWORD)
        for key in dice.sample(list(schema), 25):  # so that few of the others change anything
            del schema[key]
        for _ in range(dice.choice((1, 1, 2))):
            container, key = dice.choice(places(schema))
            container[key] = copy.deepcopy(dice.choice(ODD))
        if is_plain(schema):
            plain += 1
            try:
                check_schema(schema)  # refuses expressions that cannot be compiled before
            except LeapSchemaError as error:
                assert "regular expression" in error.message or "leads nowhere" in error.message, (schema, error)
                continue
            assert accepts(schema), schema
    assert plain > 150


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"properties": {"a": {"minimum": "1"}}},
        {"required": ["a", "a"]},
        {"minLength": True},
        {"items": [{}]},
        {"$id": "#x"},
        {"anyOf": []},
        {"multipleOf": 0},
    ],
)
def test_errors_come_from_the_meta_schema(schema: dict[str, Any]) -> None:
    with pytest.raises(LeapSchemaError, match="the schema is invalid at"):
        check_schema(schema)


def test_another_draft_has_its_own_rules() -> None:
    check_schema({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True})
    with pytest.raises(LeapSchemaError):
        check_schema({"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": 1})
