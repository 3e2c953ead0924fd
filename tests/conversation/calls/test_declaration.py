"""Declaring functions, and their JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal, Optional

import pytest

from leap_core.conversation.calls import (
    ArrayType,
    BooleanType,
    IntegerType,
    LeapFunction,
    LeapFunctionParameter,
    NullType,
    NumberType,
    ObjectType,
    SchemaType,
    StringType,
)
from leap_core.errors import LeapGeneratableSchematizationError, LeapSerializationError
from leap_core.schemas.json_schema import check_schema
from leap_core.schemas.python_types import Guide

WEATHER = LeapFunction(
    "get_weather",
    "Query the weather of a city",
    [
        LeapFunctionParameter("city", StringType(), "The city"),
        LeapFunctionParameter("unit", StringType(["celsius", "fahrenheit"]), "The unit", optional=True),
    ],
)


def test_the_json_has_the_sdks_shape_and_order():
    assert json.dumps(WEATHER.to_json_object()) == (
        '{"type": "function", "function": {"name": "get_weather", "description": "Query the weather of a city", '
        '"parameters": {"type": "object", "properties": {"city": {"description": "The city", "type": "string"}, '
        '"unit": {"description": "The unit", "type": "string", "enum": ["celsius", "fahrenheit"]}}, '
        '"required": ["city"]}}}'
    )


def test_the_type_wrapper_is_optional():
    bare = WEATHER.to_json_object(with_tool_type_wrapper=False)
    assert bare == WEATHER.to_json_object()["function"]


def test_every_type_has_its_schema():
    kinds = ObjectType(
        {
            "s": StringType(description="text"),
            "n": NumberType([0.5, 1]),
            "i": IntegerType(),
            "b": BooleanType("yes or no"),
            "a": ArrayType(NullType(), "nothings"),
        },
        ["s"],
        "all of them",
    )
    assert json.dumps(kinds.to_json_object()) == (
        '{"description": "all of them", "type": "object", "properties": {'
        '"s": {"description": "text", "type": "string"}, '
        '"n": {"type": "number", "enum": [0.5, 1]}, '
        '"i": {"type": "integer"}, '
        '"b": {"description": "yes or no", "type": "boolean"}, '
        '"a": {"description": "nothings", "type": "array", "items": {"type": "null"}}}, '
        '"required": ["s"]}'
    )


def test_openais_declaration_is_read_and_written_back():
    assert LeapFunction.from_openai(WEATHER.to_json_object()).parameters == list(WEATHER.parameters) or (
        LeapFunction.from_openai(WEATHER.to_json_object()).to_json_object() == WEATHER.to_json_object()
    )
    assert LeapFunction.from_openai(WEATHER.to_json_object(with_tool_type_wrapper=False)).name == "get_weather"


def test_no_detail_of_a_given_schema_is_lost():
    parameters = {
        "type": "object",
        "$defs": {"day": {"type": "string", "format": "date"}},
        "properties": {
            "when": {"$ref": "#/$defs/day"},
            "count": {"type": "integer", "minimum": 1, "description": "how many"},
            "tag": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "any": {},
        },
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "book", "description": "d", "parameters": parameters}}
    read = LeapFunction.from_openai(tool)
    assert read.to_json_object() == tool
    assert [parameter.optional for parameter in read.parameters] == [True] * 4
    assert read.parameters[1].type == SchemaType({"type": "integer", "minimum": 1})
    assert read.parameters[1].description == "how many"


def test_a_declaration_without_parameters_takes_none():
    assert LeapFunction.from_openai({"name": "now"}).arguments_schema == {
        "type": "object",
        "properties": {},
        "required": [],
    }


@pytest.mark.parametrize(
    ("tool", "where"),
    [
        (5, "tool"),
        ({}, "tool.name"),
        ({"name": "a b"}, "tool"),
        ({"type": "retrieval", "function": {}}, "tool.type"),
        ({"function": {"name": "f", "parameters": []}}, "tool.function.parameters"),
        ({"function": {"name": "f", "parameters": {"type": "string"}}}, "tool.function.parameters.type"),
        ({"function": {"name": "f", "parameters": {"properties": {"a": 1}}}}, "tool.function.parameters.properties.a"),
        ({"function": {"name": "f", "parameters": {"required": "a"}}}, "tool.function.parameters.required"),
    ],
)
def test_a_wrong_declaration_is_an_error_with_its_path(tool: object, where: str):
    with pytest.raises(LeapSerializationError) as caught:
        LeapFunction.from_openai(tool)
    assert caught.value.path == where


@pytest.mark.parametrize("name", ["", "a b", "f(", ".f", "f.", "a..b"])
def test_an_invalid_function_name_is_refused(name: str):
    with pytest.raises(LeapSerializationError):
        LeapFunction(name, "")


def test_a_parameter_is_declared_once():
    twice = LeapFunctionParameter("a", StringType())
    with pytest.raises(LeapSerializationError, match="twice"):
        LeapFunction("f", "", [twice, twice])


class Unit(Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclass
class Place:
    """Where something is."""

    city: str
    country: Optional[str] = None  # noqa: UP045


def forecast(
    place: Place,
    days: Annotated[int, "how many days"],
    unit: Unit = Unit.C,
    kind: Literal["short", "long"] = "short",
    tags: list[str] | None = None,
    ratio: Annotated[float, Guide("between 0 and 1")] = 0.5,
    anything=None,
):
    """Forecast the weather
    for some days.

    Args:
        place: the place, which
            may be long
        days (int): not used, Annotated wins
        unit: the unit

    Returns:
        A forecast: long text.
    """


def test_a_python_function_declares_itself():
    declared = LeapFunction.from_callable(forecast)
    assert declared.name == "forecast" and declared.description == "Forecast the weather for some days."
    assert declared.arguments_schema == {
        "type": "object",
        "properties": {
            "place": {
                "description": "the place, which may be long",
                "type": "object",
                "title": "Place",
                "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
                "required": ["city"],
            },
            "days": {"description": "how many days", "type": "integer"},
            "unit": {"description": "the unit", "type": "string", "enum": ["celsius", "fahrenheit"]},
            "kind": {"type": "string", "enum": ["short", "long"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "ratio": {"description": "between 0 and 1", "type": "number"},
            "anything": {},
        },
        "required": ["place", "days"],
    }
    assert declared.call is forecast


def numpy_style(a: int, b: str):
    """Do it.

    Parameters
    ----------
    a : int
        The first
        of them.
    b
        The second.

    Returns
    -------
    None
    """


def sphinx_style(a: int, b: str):
    """Do it.

    :param a: The first
        of them.
    :param str b: The second.
    :return: nothing
    """


@pytest.mark.parametrize("function", [numpy_style, sphinx_style])
def test_docstrings_of_other_styles(function):
    declared = LeapFunction.from_callable(function)
    assert declared.description == "Do it."
    assert [parameter.description for parameter in declared.parameters] == ["The first of them.", "The second."]


def test_a_method_leaves_self_out():
    class Home:
        def light(self, on: bool) -> None: ...

    assert [parameter.name for parameter in LeapFunction.from_callable(Home().light).parameters] == ["on"]


def open_names(**kwargs: int) -> None: ...
def by_position(a: int, /) -> None: ...
def odd_type(a: complex) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"), [(open_names, "'kwargs'"), (by_position, "'a'"), (odd_type, "'a'.*complex")]
)
def test_unsupported_parameter_types_are_named(function, problem: str):
    with pytest.raises(LeapGeneratableSchematizationError, match=problem):
        LeapFunction.from_callable(function)


@dataclass
class Part:
    name: str
    parts: list[Part]


class Cart:
    """A type with a schema of its own, of pydantic's shape."""

    @staticmethod
    def model_json_schema() -> dict[str, object]:
        return {
            "title": "Cart",
            "type": "object",
            "properties": {"part": {"$ref": "#/$defs/Part"}},
            "$defs": {"Part": {"type": "string"}},
        }


def build(cart: Cart, whole: Annotated[Part, "all of it"], spare: list[Cart]) -> None: ...


def test_definitions_of_parameters_are_at_the_root():
    declared = LeapFunction.from_callable(build)
    schema = check_schema(declared.arguments_schema)
    carts = {"cart": {"part": "wheel"}, "spare": [{"part": "wheel"}]}
    assert schema.problems_of({**carts, "whole": {"name": "a", "parts": [{"name": "b", "parts": []}]}}) == []
    assert schema.problems_of({**carts, "whole": {"name": "a", "parts": [{"name": "b"}]}}) != []
    assert declared.parameters[1].to_json_object()["description"] == "all of it"


def test_a_declaration_with_definitions_is_read_and_written_back():
    declared = LeapFunction.from_callable(build)
    assert LeapFunction.from_openai(declared.to_json_object()).to_json_object() == declared.to_json_object()
