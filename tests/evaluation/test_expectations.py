"""Expectations of answers: what passes, what does not, and what is said then."""

from __future__ import annotations

import pytest

from leap_core.errors import LeapError, LeapSerializationError
from leap_core.evaluation.equality import difference_of_calls, first_difference, read_calls
from leap_core.evaluation.expectations import KINDS, JudgedAnswer, read_expectations, verdict_on


def verdict(expect, text="", **answer):
    (expectation,) = read_expectations(expect, "expect", KINDS)
    return verdict_on(expectation, JudgedAnswer(text, **answer), 0, KINDS)


@pytest.mark.parametrize(
    ("expect", "good", "bad"),
    [
        ("Rome", " Rome\n", "Rome."),
        ({"equals": ["yes", "ja"]}, "ja", "no"),
        ({"equals": "ROME", "ignore_case": True}, "rome", "roma"),
        ({"contains": ["a", "b"]}, "b and a", "a"),
        ({"contains_any": ["a", "b"]}, "only b", "c"),
        ({"not_contains": "x"}, "abc", "x"),
        ({"not": {"contains": "x"}}, "abc", "x"),
        ({"starts_with": "Ro"}, "Rome", "In Rome"),
        ({"regex": "^[0-9]+$"}, "42", "42 apples"),
        ({"regex": "ROME", "ignore_case": True}, "in Rome", "Oslo"),
        ({"json": {"a": 1}}, '{"a": 1.0}', '{"a": true}'),
        ({"json": [1, 2], "ignore_order": True}, "```json\n[2, 1]\n```", "[2, 2]"),
        ({"is_json": True}, "[]", "[1"),
        ({"schema": {"type": "object", "required": ["a"]}}, '{"a": 1}', "{}"),
    ],
)
def test_expectations_of_texts(expect, good, bad):
    assert verdict(expect, good).passed and verdict(expect, good).score == 1
    failed = verdict(expect, bad)
    assert not failed.passed and failed.score == 0 and failed.message


def test_expectations_of_counts():
    assert verdict({"max_tokens": 3}, tokens=3).passed
    assert verdict({"max_tokens": 3}, tokens=4).message == "4 tokens, more than 3"
    assert verdict({"finish": "stop"}).passed
    assert not verdict({"finish": "stop"}, finish="length").passed


def test_expectations_that_use_other_models():
    assert verdict({"judge": "Is it polite?"}, asked={0: 0.51}).passed
    assert not verdict({"judge": "Is it polite?", "threshold": 0.9}, asked={0: 0.51}).passed
    assert verdict({"not": {"similar": "x"}}, asked={0: 0.1}).passed
    assert verdict({"similar": "x"}).message == "the similarity is not known"


def test_a_choice_is_the_likeliest_option():
    expect = {"choice": "B", "of": ["A", "B"]}
    assert verdict(expect, shares={0: {"A": 0.4, "B": 0.6}}).passed
    assert "'A' is likelier; 'B' has 0.30" in verdict(expect, shares={0: {"A": 0.7, "B": 0.3}}).message


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        (5, "expect: expected a text, an object, or a list"),
        ({}, "expects nothing"),
        ({"rhymes": "x"}, "expect.rhymes: there is no such expectation"),
        ({"contains": []}, "expect.contains: expected a text or some"),
        ({"regex": "("}, "expect.regex"),
        ({"schema": {"type": "nothing"}}, "nothing"),
        ({"choice": "C", "of": ["A", "B"]}, "expect.choice: expected one of the options"),
        ({"choice": "A"}, "expected the options beside it"),
        ({"max_tokens": 0}, "expected a number from 1 on"),
        ({"finish": "why"}, "expected one of stop"),
        ({"calls": [{"arguments": {}, "name2": "x"}]}, "expected name and arguments"),
        ({"python": "rm -rf"}, "expected file.py:function"),
        ({"contains": "a", "weight": "heavy"}, "expect.weight"),
    ],
)
def test_invalid_expectations_are_refused(expect, message):
    with pytest.raises(LeapError) as caught:
        read_expectations(expect, "expect", KINDS)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("expected", "actual", "place"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "/a/1/b: 3 instead of 2"),
        ({"a": 1}, {}, "/a: missing"),
        ({}, {"a/b": 1}, "/a~1b: not expected"),
        ([1], [1, 2], "the document: 2 items instead of 1"),
        (1, True, "the document: true instead of 1"),
        ("1", 1, 'the document: 1 instead of "1"'),
    ],
)
def test_the_first_difference_has_its_position(expected, actual, place):
    assert first_difference(expected, actual) == place


def test_numbers_within_a_tolerance():
    assert first_difference({"x": 1.0}, {"x": 1.05}, tolerance=0.1) is None
    assert first_difference({"x": 1.0}, {"x": 1.2}, tolerance=0.1) is not None


CALL = {"set": {"unit": ["C", ""], "degrees": [21, 21.5]}}


@pytest.mark.parametrize(
    ("expected", "actual", "problem"),
    [
        (CALL, [("set", {"degrees": 21})], None),
        (CALL, [("set", {"degrees": 21.0, "unit": "c"})], None),
        (CALL, [("set", {"degrees": 22})], "degrees is 22 instead of 21 or 21.5"),
        (CALL, [("set", {"unit": "C"})], "degrees is missing"),
        (CALL, [("set", {"degrees": 21, "now": True})], "now was not expected"),
        (CALL, [("sit", {"degrees": 21})], "called sit instead of set"),
        (CALL, [], "0 calls (none) instead of 1"),
        ({"math.add": {"a": [1]}}, [("math_add", {"a": 1})], None),
        ({"f": {"a": [True]}}, [("f", {"a": 1})], "a is 1 instead of True"),
        ({"f": {"a": ["New York, NY"]}}, [("f", {"a": "new york ny"})], None),
        ({"f": {"a": [{"b": ["x", ""]}]}}, [("f", {"a": {}})], None),
        ({"f": {"a": [{"b": 1.0, "c": [2, 3]}]}}, [("f", {"a": {"b": 1, "c": [2, 3]}})], None),
        ({"f": {"a": [{"b": [{"c": 1}]}]}}, [("f", {"a": {"b": {"c": 2}}})], "instead of"),
        ({"f": {"a": [["x", "Y"]]}}, [("f", {"a": ["X", "y"]})], None),
        ({"name": "f", "arguments": {"a": {"b": [1]}}}, [("f", {"a": {"b": [1]}})], None),
        ({"name": "f", "arguments": {"a": 1}, "optional": ["a"]}, [("f", {})], None),
    ],
)
def test_calls_by_the_leaderboard_s_rules(expected, actual, problem):
    found = difference_of_calls(read_calls(expected, "calls"), actual)
    assert found is None if problem is None else problem in (found or "")


def test_parallel_calls_come_in_any_order_and_each_counts_once():
    expected = read_calls([{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}], "calls")
    assert difference_of_calls(expected, [("f", {"a": 1}), ("f", {"a": 2})]) is None
    assert difference_of_calls(expected, [("f", {"a": 2}), ("f", {"a": 2})]) is not None
    assert difference_of_calls(expected, [("f", {"a": 1}), ("f", {"a": 2})], ordered=True) is not None


def test_a_float_does_not_match_a_declared_integer():
    types = {"f": {"a": "integer", "b": "number"}}
    expected = read_calls({"f": {"a": [5], "b": [5]}}, "calls")
    assert difference_of_calls(expected, [("f", {"a": 5, "b": 5.0})], types) is None
    assert "an integer was declared" in (difference_of_calls(expected, [("f", {"a": 5.0, "b": 5})], types) or "")


def test_expectations_of_no_call_and_of_any_call():
    called = [("f", {})]
    assert verdict({"no_calls": True}).passed and not verdict({"no_calls": True}, calls=called).passed
    assert verdict({"calls": "any"}, calls=called).passed and not verdict({"calls": "any"}).passed


def test_a_function_of_the_user_checks_an_answer(tmp_path):
    (tmp_path / "checks.py").write_text(
        "def short(text, about): return len(text) < 5\n"
        "def share(text, about): return len(text) / 10\n"
        "def told(text, about): return {'pass': about['vars']['x'] == 1, 'reason': 'x'}\n"
        "def broken(text, about): raise ValueError('no')\n"
        "def odd(text, about): return 'yes'\n"
    )
    given = {"directory": tmp_path, "variables": {"x": 2}}
    assert verdict({"python": "checks.py:short"}, "abc", **given).passed
    share = verdict({"python": "checks.py:share"}, "abcdefg", **given)
    assert share.passed and share.graded and share.score == 0.7
    assert verdict({"python": "checks.py:told"}, **given).message == "x"
    assert "ValueError: no" in verdict({"python": "checks.py:broken"}, **given).message
    assert "expected a truth" in verdict({"python": "checks.py:odd"}, **given).message
    assert "there is no" in verdict({"python": "nowhere.py:f"}, **given).message


def test_settings_are_checked():
    with pytest.raises(LeapSerializationError, match="ignore_case"):
        read_expectations({"contains": "a", "ignore_case": "yes"}, "expect", KINDS)
