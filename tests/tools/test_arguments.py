"""Arguments of Python functions: they arrive as what the annotations say."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall, LeapFunctionParameter, SchemaType
from leap_core.conversation.responses import FunctionResult
from leap_core.tools.execution import run_call
from leap_core.tools.policy import ToolPolicy
from leap_core.tools.sources import functions_of_file

TOOLS = """
import datetime, enum
from dataclasses import dataclass
from typing import Annotated

class Color(enum.Enum):
    RED = "red"

@dataclass
class Point:
    x: int
    y: int = 0

def paint(color: Color) -> str:
    return color.name

def norm(points: list[Point]) -> int:
    return sum(p.x + p.y for p in points)

def year(day: Annotated[datetime.date, "a day"] | None = None):
    return None if day is None else day.year

def repeat(n: int, anything=None) -> str:
    return "ab" * n + str(anything)

def weather(city: str, unit: str | None, days: int | None = 3) -> str:
    return f"{city} {unit} {days}"
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LeapFunction]:
    file = tmp_path_factory.mktemp("tools") / "tools.py"
    file.write_text(TOOLS, encoding="utf-8")
    return {function.name: function for function in functions_of_file(file)}


def run(function: LeapFunction, isolated: bool = True, **arguments: object) -> FunctionResult:
    return run_call(function, LeapFunctionCall(function.name, arguments), ToolPolicy("allow", isolated=isolated))


@pytest.mark.slow
def test_arguments_have_their_declared_types(tools: dict[str, LeapFunction]):
    assert run(tools["paint"], color="red").text == "RED"
    assert run(tools["norm"], points=[{"x": 1, "y": 2}, {"x": 3}]).text == "6"
    assert run(tools["year"], day="2024-02-29").text == "2024"
    assert run(tools["year"]).text == "null"
    assert run(tools["repeat"], n=2.0, anything=[1.5]).text == "abab[1.5]"


def test_an_argument_that_does_not_fit_is_named(tools: dict[str, LeapFunction]):
    loose = LeapFunction(
        "year", "", [LeapFunctionParameter("day", SchemaType({"type": "string"}))], call=tools["year"].call
    )
    assert "the arguments are wrong: /day: not date" in str(run(loose, day="someday").error)


class Color(enum.Enum):
    RED = "red"


@dataclass
class Node:
    value: int
    next: Node | None = None


def test_arguments_in_this_process_have_their_types_too():
    def describe(color: Color, day: datetime.date, node: Node) -> str:
        return f"{color.name} {day.year} {node.next}"

    arguments = {"color": "red", "day": "2024-02-29", "node": {"value": 1, "next": {"value": 2}}}
    result = run(LeapFunction.from_callable(describe), isolated=False, **arguments)
    assert result.text == "RED 2024 Node(value=2, next=None)"


def test_annotations_that_leap_cannot_read_leave_arguments_as_they_are():
    def size(path: Path, other: Unknown) -> str:  # type: ignore[name-defined]  # noqa: F821
        return f"{path!r} {other}"

    def turn(angle: complex, times: int) -> str:
        return f"{angle!r} {times!r}"

    anything = [LeapFunctionParameter(name, SchemaType()) for name in ("path", "other", "angle", "times")]
    assert run(LeapFunction("size", "", anything[:2], call=size), False, path="a", other=1).text == "'a' 1"
    assert run(LeapFunction("turn", "", anything[2:], call=turn), False, angle="i", times=2.0).text == "'i' 2"


def test_a_schema_that_cannot_be_used_is_the_results_error():
    broken = LeapFunction("f", "", schema={"properties": {"a": {"$ref": "#/nowhere"}}}, call=print)
    assert "leads nowhere" in str(run(broken, a=1).error)


def forecast(city: str, unit: Optional[str]) -> str:  # noqa: UP045  (both spellings count)
    return f"{city} {unit}"


def test_none_is_not_passed_to_variadic_parameters(tools: dict[str, LeapFunction]):
    def catch_all(a: int, *more: Optional[int], **rest: Optional[str]) -> str:  # noqa: UP045
        return f"{a} {more} {rest}"

    declared = LeapFunction("f", "", [LeapFunctionParameter("a", SchemaType({"type": "integer"}))], call=catch_all)
    assert run(declared, isolated=False, a=1).text == "1 () {}"


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [True, False])
def test_none_is_given_where_it_is_missing_and_may_be_passed(tools: dict[str, LeapFunction], isolated: bool):
    assert run(tools["weather"], city="Rome").text == "Rome None 3"
    assert run(tools["weather"], city="Rome", unit=None, days=None).text == "Rome None None"
    assert "'city' is a required property" in str(run(tools["weather"], unit="C").error)
    assert "/n" in str(run(tools["repeat"], n=None).error)
    declared = LeapFunction.from_callable(forecast)
    assert run(declared, isolated, city="Rome").text == run(declared, isolated, city="Rome", unit=None).text
