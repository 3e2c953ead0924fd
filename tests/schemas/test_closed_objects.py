"""Objects closed for generating, and what stays open."""

from __future__ import annotations

import pytest

from leap_core.schemas.transforms import with_closed_objects

A, B = {"a": {"type": "integer"}}, {"b": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        ({"properties": A}, {"properties": A, "additionalProperties": False}),
        ({"properties": A, "required": ["c"]}, {"properties": {**A, "c": {}}, "required": ["c"],
                                                "additionalProperties": False}),
        ({"items": {"properties": A}}, {"items": {"properties": A, "additionalProperties": False}}),
        ({"anyOf": [{"properties": A}, {"type": "null"}]},
         {"anyOf": [{"properties": A, "additionalProperties": False}, {"type": "null"}]}),
        ({"allOf": [{"properties": A}, {"properties": B}]},
         {"allOf": [{"properties": A}, {"properties": B}], "properties": {"a": {}, "b": {}},
          "additionalProperties": False}),
        ({"properties": A, "anyOf": [{"required": ["a"]}, {"properties": B}]},
         {"properties": {**A, "b": {}}, "anyOf": [{"required": ["a"]}, {"properties": B}],
          "additionalProperties": False}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": A}}},
         {"$ref": "#/$defs/x", "$defs": {"x": {"properties": A, "additionalProperties": False}}}),
    ],
)  # fmt: skip
def test_objects_that_list_their_keys_are_closed(schema: dict, closed: dict):
    assert with_closed_objects(schema) == closed


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"properties": A, "additionalProperties": True},
        {"properties": A, "patternProperties": {"^x": {}}},
        {"properties": A, "propertyNames": {"maxLength": 3}},
        {"properties": A, "minProperties": 2},
        {"not": {"properties": A}},
        {"if": {"properties": A}},
        {"allOf": [{"properties": A}, {"additionalProperties": True}]},
        {"$ref": "other.json"},
        {"properties": A, "$anchor": "x"},
    ],
)
def test_objects_that_mention_other_keys_stay_open(schema: dict):
    assert with_closed_objects(schema) == schema


def test_a_definition_that_is_also_a_part_of_another_object_stays_open():
    base = {"properties": A}
    whole = {
        "properties": {
            "one": {"$ref": "#/$defs/base"},
            "two": {"allOf": [{"$ref": "#/$defs/base"}, {"properties": B}]},
        },
        "$defs": {"base": base},
    }
    closed = with_closed_objects(whole)
    assert closed["$defs"]["base"] == base and closed["additionalProperties"] is False
    assert closed["properties"]["two"]["additionalProperties"] is False
    assert set(closed["properties"]["two"]["properties"]) == {"a", "b"}
