"""Numbers of calls against the declared types: what a spelling means is decided by the schema, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from leap_core.conversation.calls import LeapFunction, LeapFunctionCall, parser_named
from leap_core.conversation.calls.fitting import fits, fitted, misfit

INTEGER, NUMBER, TEXT = ({"type": kind} for kind in ("integer", "number", "string"))


def read(written: str, schema: Any, **root: Any) -> Any:
    """The argument ``a`` of a call of ``f`` that is written so."""
    parameters = {"type": "object", "properties": {"a": schema}, **root}
    (call,) = parser_named("lfm").parse(f"[f(a={written})]")
    return fitted(call, [LeapFunction.from_openai({"name": "f", "parameters": parameters})]).arguments["a"]


@pytest.mark.parametrize(
    ("written", "schema", "value"),
    [
        ("07", INTEGER, 7),
        ("-007", NUMBER, -7),
        ("00", INTEGER, 0),
        ("08", {"type": ["integer", "null"]}, 8),
        ("08", {"anyOf": [INTEGER, {"type": "null"}]}, 8),
        ("08", {"enum": [7, 8, 9]}, 8),
        ("08", {"enum": ["07", "08"]}, "08"),
        ("01234", TEXT, "01234"),
        ("01234", {"type": ["integer", "string"]}, "01234"),
        ("01234", {}, "01234"),
        ("+4915112345678", TEXT, "+4915112345678"),
        ("+5", INTEGER, 5),
        ("+5", {}, 5),
        ("1_000", INTEGER, 1000),
        ("1_000", TEXT, "1_000"),
        ("0x1F", INTEGER, 31),
        ("0x1F", TEXT, "0x1F"),
        ("5.", INTEGER, 5),
        ("1e3", INTEGER, 1000),
        ("1e3", NUMBER, 1000.0),
        (".5", INTEGER, 0.5),
        ("True", {"type": "boolean"}, True),
        ("null", {"type": ["integer", "null"]}, None),
        ("'07'", INTEGER, "07"),
        ("'5'", INTEGER, 5),
        ("'2.0'", INTEGER, 2),
        ("'2.5'", INTEGER, "2.5"),
        ("'2.5'", NUMBER, 2.5),
        ("'1e999'", NUMBER, "1e999"),
        ("'NaN'", NUMBER, "NaN"),
        ("'True'", {"type": "boolean"}, True),
        ("'null'", {"type": ["integer", "null"]}, None),
        ("'null'", INTEGER, "null"),
        ("'5'", TEXT, "5"),
        ("'5'", {"type": ["string", "integer"]}, "5"),
        ("'5'", {}, "5"),
        ("5", TEXT, "5"),
        ("5", {"type": ["string", "null"]}, 5),
        ("True", TEXT, True),
        ("'[1, 2]'", {"type": "array", "items": TEXT}, ["1", "2"]),
        (
            """'{"b": "3"}'""",
            {"type": "object", "properties": {"b": INTEGER}},
            {"b": 3},
        ),
        ("'five'", INTEGER, "five"),
        ("'5'", {"anyOf": 5}, "5"),
        ("5", {"oneOf": "x", "enum": 5}, 5),
        ("[01, 2.0, 'x']", {"type": "array", "items": INTEGER}, [1, 2, "x"]),
        ("{'b': 03, 'c': 03}", {"type": "object", "properties": {"b": INTEGER}}, {"b": 3, "c": "03"}),
        ("07", {"type": [{}, 1], "enum": None, "properties": 3}, "07"),
    ],
)
def test_a_number_has_the_type_that_its_schema_declares(written, schema, value):
    found = read(written, schema)
    assert found == value and type(found) is type(value), (found, type(found))


def test_a_reference_is_followed():
    assert read(
        "{'month': 07}", {"$ref": "#/$defs/Date"}, **{"$defs": {"Date": {"properties": {"month": INTEGER}}}}
    ) == {"month": 7}


def test_a_function_that_is_not_declared_gets_plain_values():
    (call,) = parser_named("lfm").parse("[g(a=07, b=+5)]")
    found = fitted(call, []).arguments
    assert found == {"a": "07", "b": 5} and [type(each) for each in found.values()] == [str, int]


def named(written: str, *declared: str) -> str:
    """The name of a call of ``written`` where these functions are declared."""
    functions = [LeapFunction.from_openai({"name": name}) for name in declared]
    return fitted(LeapFunctionCall(written, {}), functions).name


@pytest.mark.parametrize("written", ["ReadFile", "read-file", "READ_FILE", "readFile", "functions.read_file"])
def test_a_name_that_differs_only_in_case_and_punctuation_is_corrected(written: str):
    assert named(written, "write_file", "read_file") == "read_file"


def test_an_ambiguous_or_unknown_name_is_not_changed():
    assert named("Read", "read", "READ") == "Read"
    assert named("read_files", "read_file") == "read_files"
    assert named("read-file", "read_file", "read-file") == "read-file"
    assert named("...", "f") == "..."


def test_arguments_of_a_corrected_name_have_the_declared_types():
    function = LeapFunction.from_openai({"name": "set_day", "parameters": {"properties": {"day": INTEGER}}})
    (call,) = parser_named("lfm").parse("[SetDay(day=07)]")
    assert fitted(call, [function]) == LeapFunctionCall("set_day", {"day": 7})


PAGE = {"type": "object", "properties": {"page": INTEGER, "text": TEXT}, "required": ["page"]}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"page": 5}, None),
        ({"page": "5"}, None),
        ({"page": "five"}, "/page: 'five' is not of type 'integer'"),
        ({"text": "x"}, "'page' is a required property"),
        ({"page": 5, "text": [1]}, "/text: [1] is not of type 'string'"),
    ],
)
def test_mismatches_with_the_declaration_are_named(arguments, problem):
    functions = [LeapFunction.from_openai({"name": "f", "parameters": PAGE})]
    found = misfit(fitted(LeapFunctionCall("f", arguments), functions), functions)
    assert (found is None) if problem is None else (problem in str(found) and "the call of f" in str(found))


def test_bare_json_whose_arguments_need_repair_is_not_a_call():
    functions = [LeapFunction.from_openai({"name": "f", "parameters": PAGE})]
    assert fits(LeapFunctionCall("f", {"page": 5, "text": "5"}), functions)
    assert not fits(LeapFunctionCall("f", {"page": "5"}), functions)
    assert not fits(LeapFunctionCall("f", {"page": 5, "text": 5}), functions)


def test_undeclared_functions_and_empty_schemas_have_no_problem():
    functions = [LeapFunction.from_openai({"name": "f", "parameters": {"properties": {"a": {"type": 5}}}})]
    assert misfit(LeapFunctionCall("f", {"a": 1}), functions) is None
    assert misfit(LeapFunctionCall("g", {"a": 1}), functions) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"anyOf": [{"$ref": "#/$defs/level"}, INTEGER]}, "1"),
        ({"anyOf": [{"const": "1"}, INTEGER]}, "1"),
        ({"anyOf": [{}, INTEGER]}, "1"),
        ({"anyOf": [{"const": 1}, NUMBER]}, 1),
        ({"anyOf": [{"$ref": "#"}, INTEGER]}, "1"),
    ],
)
def test_a_string_stays_a_string_where_an_alternative_accepts_it(schema, value):
    assert read("'1'", schema, **{"$defs": {"level": {"enum": ["1", "2"]}}}) == value


def test_an_endlessly_recursive_schema_reports_no_problem():
    parameters = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    function = LeapFunction.from_openai({"name": "f", "parameters": {"type": "object", **parameters}})
    assert misfit(LeapFunctionCall("f", {"x": 1}), [function]) is None
