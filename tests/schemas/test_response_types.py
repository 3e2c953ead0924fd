"""Python types as shapes of answers."""

from __future__ import annotations

import datetime
import decimal
import json
import typing
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union

import pytest
from typing_extensions import NotRequired, Required

from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapGeneratableDeserializationError, LeapGeneratableSchematizationError
from leap_core.inference.constraints import parse_result, schema_of, schema_text_of
from leap_core.schemas.json_schema import check_schema
from leap_core.schemas.python_types import Guide


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Fact:
    """One fact."""

    text: str
    year: int


@dataclass
class City:
    """Facts about a city."""

    name: Annotated[str, Guide("its name")]
    population: int = field(metadata={"description": "how many live there"})
    area: float
    capital: bool
    mood: Mood
    best: Annotated[Fact, "the best fact"]
    worst: Fact
    tags: list[str]
    scores: dict[str, int]
    nick: str | None = None
    facts: list[Fact] = field(default_factory=list)
    level: Level = Level.LOW


FACT = {
    "type": "object",
    "title": "Fact",
    "description": "One fact.",
    "properties": {"text": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["text", "year"],
}


def test_a_dataclass_has_the_sdks_shape():
    assert schema_of(City) == {
        "type": "object",
        "title": "City",
        "description": "Facts about a city.",
        "properties": {
            "name": {"type": "string", "description": "its name"},
            "population": {"type": "integer", "description": "how many live there"},
            "area": {"type": "number"},
            "capital": {"type": "boolean"},
            "mood": {"type": "string", "enum": ["good", "bad"]},
            "best": {"description": "the best fact", "allOf": [FACT]},
            "worst": FACT,
            "tags": {"type": "array", "items": {"type": "string"}},
            "scores": {"type": "object", "additionalProperties": {"type": "integer"}},
            "nick": {"type": "string"},
            "facts": {"type": "array", "items": FACT},
            "level": {"type": "string", "enum": ["LOW", "HIGH"]},
        },
        "required": ["name", "population", "area", "capital", "mood", "best", "worst", "tags", "scores"],
    }


def test_an_answer_becomes_the_dataclass():
    fact = {"text": "old", "year": 52}
    answer = {"name": "Paris", "population": 2, "area": 105, "capital": True, "mood": "good", "best": fact}
    answer |= {"worst": fact, "tags": ["a"], "scores": {"x": 1}, "facts": [fact], "level": "HIGH", "more": "ignored"}
    city = parse_result(City, json.dumps(answer))
    assert city == City(
        "Paris", 2, 105.0, True, Mood.GOOD, Fact("old", 52), Fact("old", 52), ["a"], {"x": 1}, None, [Fact("old", 52)],
        Level.HIGH,
    )  # fmt: skip
    assert type(city.area) is float


def test_options_take_a_type():
    options = GenerationOptions()
    options.set_response_format(Fact)
    assert json.loads(options.json_schema_constraint or "") == FACT


@dataclass
class Node:
    value: int
    children: list[Node]


def test_a_type_may_contain_itself():
    schema = schema_of(Node)
    check = check_schema(schema)
    assert check.problems('{"value": 1, "children": [{"value": 2, "children": []}]}') == []
    assert check.problems('{"value": 1, "children": [{"value": "2", "children": []}]}') != []
    tree = parse_result(Node, '{"value": 1, "children": [{"value": 2, "children": []}]}')
    assert tree == Node(1, [Node(2, [])])


class Movie(TypedDict, total=False):
    """A film."""

    title: str
    year: int


class Point(NamedTuple):
    x: int
    y: int = 0


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Movie, '{"title": "M"}', {"title": "M"}),
        (Point, '{"x": 1}', Point(1, 0)),
        (Mood, '"bad"', Mood.BAD),
        (list[int], "[1, 2.0]", [1, 2]),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (tuple[int, ...], "[1, 2]", (1, 2)),
        (set[str], '["a", "a"]', {"a"}),
        (Sequence[int], "[1]", [1]),
        (Mapping[str, bool], '{"a": true}', {"a": True}),
        (Literal["a", 2], "2", 2),
        (Literal["a", 1, True, None], "true", True),
        (Literal[True, 1], "1", 1),
        (Literal["a", None], "null", None),
        (Union[int, str], '"a"', "a"),  # noqa: UP007
        (Optional[int], "null", None),  # noqa: UP045
        (int | float, "1.5", 1.5),
        (Any, '{"x": [1]}', {"x": [1]}),
        (dict, '{"x": 1}', {"x": 1}),
        (list, "[1]", [1]),
        (None, "null", None),
        (datetime.date, '"2024-02-29"', datetime.date(2024, 2, 29)),
        (datetime.datetime, '"2024-02-29T12:00:00Z"', datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)),
        (uuid.UUID, '"12345678-1234-5678-1234-567812345678"', uuid.UUID("12345678123456781234567812345678")),
        (decimal.Decimal, "1.10", decimal.Decimal("1.1")),
        (decimal.Decimal, "12345678901234567890.12", decimal.Decimal("12345678901234567890.12")),
        (float, "1.5", 1.5),
        (float | str, "1.0", 1.0),
        (typing.List, "[1.5]", [1.5]),  # noqa: UP006
        (typing.Dict, '{"x": [1]}', {"x": [1]}),  # noqa: UP006
        (typing.Tuple, '[1, "a"]', (1, "a")),  # noqa: UP006
        (Optional[typing.List], "[1]", [1]),  # noqa: UP006, UP045
        (tuple[()], "[]", ()),
    ],
)
def test_other_types_have_schemas(kind: Any, text: str, value: object):
    schema = check_schema(json.loads(schema_text_of(kind)))
    assert schema.problems(text) == []
    found = parse_result(kind, text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "where"),
    [
        (Fact, '{"text": "a"}', "/year is missing"),
        (Fact, '{"text": "a", "year": "x"}', "/year: expected a number"),
        (Fact, '{"text": "a", "year": 1.5}', "/year: expected a whole number"),
        (Fact, "[]", "expected an object"),
        (Fact, "{", "not JSON"),
        (list[Fact], '[{"text": 1, "year": 1}]', "/0/text: expected str"),
        (Mood, '"fine"', "expected Mood"),
        (bool, "1", "expected a boolean"),
        (int, "true", "expected a number"),
        (datetime.date, '"tomorrow"', "not date"),
        (Literal["a"], '"b"', "expected 'a'"),
        (Literal[1], "true", "expected 1"),
        (tuple[int, int], "[1]", "expected 2 items"),
        (Union[int, bool], '"x"', "expected a number"),  # noqa: UP007
        (tuple[()], "[1]", "expected 0 items"),
        (int, "1e999", "expected a whole number"),
        (float, "1" + "0" * 400, "not float"),
        (Any, "[" * 200_000, "nested too deeply"),
    ],
)
def test_an_answer_that_does_not_fit_is_named(kind: Any, text: str, where: str):
    with pytest.raises(LeapGeneratableDeserializationError, match=where):
        parse_result(kind, text)


@dataclass
class Range:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


def test_a_type_may_refuse_its_values():
    with pytest.raises(LeapGeneratableDeserializationError, match="/0: not Range: low is above high"):
        parse_result(list[Range], '[{"low": 2, "high": 1}]')


def test_an_answer_nested_deeper_than_python_can_read_is_refused():
    text = '{"value": 1, "children": [' * 900 + "]}" * 900
    with pytest.raises(LeapGeneratableDeserializationError, match="nested too deeply"):
        parse_result(Node, text)


class Options(TypedDict):
    name: str
    size: NotRequired[int]
    tag: Annotated[NotRequired[str], "a word"]


class MoreOptions(Options, total=False):
    colour: str
    shape: Required[str]


def test_keys_of_typed_dicts_are_required_as_they_are_marked():
    assert schema_of(Options)["required"] == ["name"]
    assert sorted(schema_of(MoreOptions)["required"]) == ["name", "shape"]
    assert schema_of(Options)["properties"]["tag"] == {"type": "string", "description": "a word"}


@dataclass
class Cat:
    name: str


@dataclass
class Dog:
    name: str
    breed: str = ""


def test_a_union_prefers_the_type_that_loses_nothing():
    assert parse_result(Cat | Dog, '{"name": "x", "breed": "y"}') == Dog("x", "y")
    assert parse_result(Cat | Dog, '{"name": "x"}') == Cat("x")
    assert parse_result(Cat | Dog, '{"name": "x", "age": 1}') == Cat("x")


class OwnSchema:
    """A type with a JSON schema of its own."""

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def __json_schema__(cls) -> dict[str, Any]:
        return {"type": "integer"}

    @classmethod
    def from_json(cls, text: str) -> OwnSchema:
        return cls(int(text))


def test_a_type_may_bring_its_own_schema():
    assert schema_of(OwnSchema) == {"type": "integer"}
    assert parse_result(OwnSchema, "5").n == 5
    assert schema_of(list[OwnSchema]) == {"type": "array", "items": {"type": "integer"}}
    assert [own.n for own in parse_result(list[OwnSchema], "[5, 6]")] == [5, 6]
    with pytest.raises(LeapGeneratableDeserializationError, match="/0: not OwnSchema"):
        parse_result(list[OwnSchema], "[null]")


def test_pydantic_models():
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Person", name=(str, ...), age=(int, 3))
    assert schema_of(model)["properties"]["name"]["type"] == "string"
    assert parse_result(model, '{"name": "Ann"}') == model(name="Ann")
    with pytest.raises(LeapGeneratableDeserializationError, match="Person"):
        parse_result(model, "{}")


@dataclass
class Unknown:
    value: complex


@dataclass
class Keys:
    table: dict[int, str]


@dataclass
class Missing:
    value: NoSuchType  # noqa: F821


class Empty(Enum):
    pass


@pytest.mark.parametrize(
    ("kind", "problem"),
    [(Unknown, "Unknown.value: complex"), (Keys, "Keys.table: the keys"), (Missing, "NoSuchType"), (Empty, "is empty")],
)
def test_a_type_without_a_schema_is_named(kind: Any, problem: str):
    with pytest.raises(LeapGeneratableSchematizationError, match=problem):
        schema_of(kind)
