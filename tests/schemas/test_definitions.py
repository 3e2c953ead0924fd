"""Types with definitions of their own, inside other types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from leap_core.inference.constraints import parse_result, schema_of
from leap_core.schemas.json_schema import check_schema

pydantic = pytest.importorskip("pydantic")


class Street(pydantic.BaseModel):
    name: str


class Address(pydantic.BaseModel):
    street: Street


class Tree(pydantic.BaseModel):
    branches: list[Tree] = []


@dataclass
class Person:
    address: Address
    parents: list[Person]


HOME = {"street": {"name": "High Street"}}


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (list[Address], [HOME], [{"street": {}}]),
        (Address | None, HOME, {"street": {}}),
        (list[Tree], [{"branches": [{"branches": []}]}], [{"branches": [{"branches": 1}]}]),
        (
            Person,
            {"address": HOME, "parents": [{"address": HOME, "parents": []}]},
            {"address": HOME, "parents": [{"address": {"street": {}}, "parents": []}]},
        ),
    ],
)
def test_references_lead_to_definitions_at_the_root(kind: Any, right: object, wrong: object):
    schema = check_schema(schema_of(kind))
    assert schema.problems_of(right) == []
    assert schema.problems_of(wrong) != []


def test_a_model_inside_a_dataclass_is_read_back():
    text = '{"address": {"street": {"name": "High Street"}}, "parents": []}'
    assert parse_result(Person, text) == Person(Address(street=Street(name="High Street")), [])


def own(schema: dict[str, Any]) -> Any:
    """A type with this schema of its own."""
    return type("Own", (), {"__json_schema__": staticmethod(lambda: schema)})


def test_definitions_of_one_name_are_told_apart():
    numbers = own({"$ref": "#/$defs/Item", "$defs": {"Item": {"type": "integer"}}})
    texts = own(
        {"$ref": "#/$defs/Pair", "$defs": {"Item": {"type": "string"}, "Pair": {"items": {"$ref": "#/$defs/Item"}}}}
    )
    assert schema_of(tuple[numbers, texts, numbers, texts]) == {
        "type": "array",
        "prefixItems": [{"$ref": "#/$defs/Item"}, {"$ref": "#/$defs/Pair"}] * 2,
        "items": False,
        "minItems": 4,
        "$defs": {
            "Item": {"type": "integer"},
            "Item2": {"type": "string"},
            "Pair": {"items": {"$ref": "#/$defs/Item2"}},
        },
    }


def test_a_schema_that_refers_to_its_root_becomes_a_definition():
    chain = own({"type": "object", "properties": {"next": {"$ref": "#"}}})
    schema = check_schema(schema_of(list[chain]))
    assert schema.problems_of([{"next": {"next": {}}}]) == []
    assert schema.problems_of([{"next": []}]) != []


def test_what_only_looks_like_a_reference_stays():
    odd = own({"properties": {"$ref": {"const": {"$ref": "#/$defs/x"}}}, "$defs": {"x": {}}})
    assert schema_of(list[odd])["items"] == {"properties": {"$ref": {"const": {"$ref": "#/$defs/x"}}}}


def two_nodes() -> list[Any]:
    def node(kind: type) -> Any:
        @dataclass
        class Node:
            value: kind  # type: ignore[valid-type]
            next: Node | None

        Node.__annotations__ = {"value": kind, "next": Node | None}
        return Node

    return [node(int), node(str)]


def test_recursive_types_of_one_name_are_told_apart():
    numbers, texts = two_nodes()
    schema = check_schema(schema_of(tuple[numbers, texts]))
    assert schema.problems_of([{"value": 1, "next": {"value": 2}}, {"value": "a", "next": {"value": "b"}}]) == []
    assert schema.problems_of([{"value": 1}, {"value": "a", "next": {"value": 2}}]) != []
