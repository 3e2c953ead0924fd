"""Hostile schemas cost bounded time, end in an answer or a LeapError, and let other threads run.

The whole list runs with ``python scripts/torture_text.py schemas``; here every seventh.
"""

from __future__ import annotations

import pytest

from leap_core.errors import LeapError, LeapSchemaError
from leap_core.inference.constraints import compile_time
from leap_core.inference.constraints.compiling import lark_matcher
from leap_core.inference.constraints.grammars import enforce
from leap_core.schemas.expressions import CheckTakesTooLong, matches
from leap_core.schemas.grammar_matcher import byte_tokenizer
from leap_core.schemas.json_schema import check_schema, read_schema
from tests.support.lengths import usually

from .hostile_schemas import TEXT, fixed, hostile_schemas, json_text, nested

SLOW = "chained", "nested", "properties", "wide", "everywhere"
"""Those that may take seconds."""
FIXED = dict(fixed())
QUICK = [name for name in FIXED if not any(word in name for word in SLOW)]

CHAINED = [name for name in FIXED if "chained 24" in name]


@pytest.mark.long
def test_there_are_enough_hostile_schemas():
    names = [name for name, _ in hostile_schemas()]
    assert len(names) >= 300 and len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize("name", usually([*QUICK[::7], "anyOf chained 24"], [*QUICK[::7], *CHAINED]))
def test_a_hostile_schema_takes_bounded_time(name: str):
    """What is not bounded takes minutes and more, and the time of a test is."""
    text = json_text(FIXED[name])
    try:
        schema = read_schema(text)
        enforce(schema, byte_tokenizer())
        schema.problems_of({TEXT: 1})
        schema.problems_of(TEXT)
    except LeapError as error:
        assert len(error.message) < 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "enum": [{TEXT: 1}], "patternProperties": {"(a|aa)+$": {}}},
        {"enum": [TEXT], "pattern": "^(?=a)(a|aa)+$"},
        {"patternProperties": {"^(?=a)(a|aa)+$": {}}, "additionalProperties": False},
        {"patternProperties": {"^(?=a)(a|aa)+$": {}}, "unevaluatedProperties": False},
        {"properties": {"b": {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": "^(?=a)(a|aa)+$"}}},
    ],
)
def test_a_text_that_cannot_be_matched_in_time_is_invalid(schema: dict):
    assert check_schema(schema).problems_of({TEXT: 1, "b": TEXT})


@pytest.mark.slow
def test_a_linear_engine_matches_where_it_can():
    assert not matches("^(a|aa)+$", TEXT) and matches("^(a|aa)+!$", TEXT)
    with pytest.raises(CheckTakesTooLong):
        matches("^(?=a)(a|aa)+$", TEXT)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 100_000, "not JSON"),
        ('{"const": ' + "[" * 500 + "]" * 500 + "}", "nested too deeply"),
        ('{"enum": [' + ", ".join(map(str, range(60_000))) + "]}", "more than 50000 values"),
        ('{"const": "' + "x" * 2_100_000 + '"}', "more than 2000000 characters"),
        ('{"pattern": "\\\\u{FFFFFFFFFF}"}', "is no character"),
        ('{"pattern": "^(a{1000000})$"}', "more than 20000 positions"),
    ],
)
def test_a_schema_beyond_the_limits_is_refused_in_one_line(text: str, problem: str):
    with pytest.raises(LeapSchemaError, match=problem) as caught:
        read_schema(text)
    assert "\n" not in caught.value.message


def test_the_number_of_schemas_is_limited():
    with pytest.raises(LeapSchemaError, match="more than 5000 schemas"):
        check_schema(nested("anyOf", 13))


SENTENCES = [{"type": "string", "pattern": f"([a-z]{{1,{20 + n}}} ){{1,{20 + n}}}"} for n in range(24)]
CHAIN = {f"d{n}": {"pattern": each["pattern"], "$ref": f"#/$defs/d{n + 1}"} for n, each in enumerate(SENTENCES)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": SENTENCES},
        {"type": "object", "allOf": [{"properties": {"a": each}} for each in SENTENCES]},
        {"$defs": {**CHAIN, f"d{len(CHAIN)}": {"type": "string"}}, "$ref": "#/$defs/d0"},
        {"type": "integer", "multipleOf": 9999991},
    ],
    ids=["allOf", "property", "$ref", "multipleOf"],
)
def test_a_schema_that_compiles_for_minutes_is_refused_in_seconds(schema: dict, monkeypatch):
    monkeypatch.setattr("leap_core.inference.constraints.compile_time.CPU_SECONDS", 1)
    try:
        enforced = enforce(read_schema(json_text(schema)), byte_tokenizer())
        assert enforced.warnings and not enforced.exact
    except LeapSchemaError as error:
        assert "compiling the schema takes more than" in error.message


@pytest.mark.parametrize(
    ("answers", "code", "long"),
    [
        ([], None, True),
        ([], -24, True),
        ([], 1, False),
        ([{"result": True}], 0, False),
        (OSError("no space"), 0, False),
    ],
)
def test_only_a_child_that_reaches_a_limit_refuses_a_grammar(answers, code, long, monkeypatch):
    """And it is started once for each grammar."""
    asked = []

    def answers_of(*_: object) -> tuple[list[object], int | None, str]:
        asked.append(1)
        if isinstance(answers, OSError):
            raise answers
        return answers, code, ""

    monkeypatch.setattr(compile_time, "answers_of", answers_of)
    compile_time._takes_long.cache_clear()
    assert [compile_time._takes_long("start: /a/") for _ in range(3)] == [long] * 3 and len(asked) == 1
    compile_time._takes_long.cache_clear()


@pytest.mark.slow
def test_a_grammar_that_compiles_for_minutes_is_refused_in_seconds(monkeypatch):
    monkeypatch.setattr("leap_core.inference.constraints.compile_time.CPU_SECONDS", 1)
    rules = "".join(f"T{n}: T{n + 1} & /(?s:.*)a.{{{n + 1}}}(?s:.*)/\n" for n in range(24))
    with pytest.raises(LeapSchemaError, match="compiling it takes more than"):
        lark_matcher(f"start: T0\n{rules}T24: /[abc]*/", byte_tokenizer())
