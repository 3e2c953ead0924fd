"""Values of an answer that are limited to a text, and the marks of those that are not."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from leap_core.inference.constraints.grammars import enforce
from leap_core.schemas.grammar_matcher import byte_tokenizer
from leap_core.schemas.grounding import Grounding, Source, copying, without_keyword
from leap_core.schemas.json_schema import check_schema
from leap_core.schemas.numerals import numerals_in
from tests.support.tables import check_each

NUMBER, WHOLE = {"type": "number"}, {"type": "integer"}
COPIED = {"type": "string", "x-from-text": True}


def record(fields: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields) if required is None else required}


def follows(schema: dict[str, Any], text: str, answer: Any) -> bool:
    """Whether an answer can be decoded."""
    tokenizer = byte_tokenizer()
    grounded = Grounding(schema, Source(text)).schema
    matcher = tokenizer.matcher(enforce(check_schema(grounded), tokenizer).grammar)
    written = json.dumps(answer, ensure_ascii=False, separators=(", ", ": ")).encode()
    return all(matcher.consume_token(byte) for byte in written) and matcher.is_accepting()


def test_numbers_are_read_as_people_write_them():
    cases: list[tuple[str, float]] = [
        *(
            ("119,98 €", 119.98),
            ("EUR119,98", 119.98),
            ("1'440.00", 1440.0),
            ("1.234,56", 1234.56),
            ("1,20,000", 120000.0),
        ),
        *(
            ("(120.50)", -120.5),
            ("minus: -7", -7.0),
            ("19 %", 0.19),
            ("12 500", 12500.0),
            ("3,4,5", 4.0),
            ("10,00-", -10.0),
        ),
        *(
            ("twenty-one", 21.0),
            ("zweihundertfünfzig", 250.0),
            ("quatre-vingt-dix-sept", 97.0),
            ("treinta y uno", 31.0),
        ),
        *(("tremila", 3000.0), ("eine Lampe", 1.0), ("two thousand and four", 2004.0), ("soixante et onze", 71.0)),
    ]

    def check(case: tuple[str, float]) -> None:
        text, value = case
        assert value in Source(text).numbers

    check_each(cases, check)
    assert Source("119,98").numbers == {119.98}, "parts of a number are no numbers"
    assert -2024.0 not in Source("2024-05-03").numbers


def test_words_that_mean_something_else_count_only_where_all_do():
    assert list(numerals_in("due once, 50 cents, a lamp")) == []
    assert [value for *_, value in numerals_in("due", all_words=True)] == [2.0]


def test_an_answer_has_the_numbers_of_the_text():
    schema, text = record({"total": NUMBER, "count": WHOLE}), "Three chairs cost 89,70 each."
    assert follows(schema, text, {"total": 89.7, "count": 3})
    assert not follows(schema, text, {"total": 299.7, "count": 3})
    assert not follows(schema, text, {"total": 89.7, "count": 4})
    bounded = record({"count": {"type": "integer", "minimum": 5}, "other": WHOLE}, ["other"])
    assert follows(bounded, text, {"other": 3}), "what has no value is absent"
    assert not follows(bounded, text, {"count": 5, "other": 3})


def test_a_value_without_a_match_is_null_absent_or_free():
    nullable = record({"total": {"anyOf": [NUMBER, {"type": "null"}]}, "n": {"type": ["integer", "null"]}})
    assert follows(nullable, "nothing", {"total": None, "n": None})
    assert not follows(nullable, "nothing", {"total": 5, "n": None})
    assert follows(record({"total": NUMBER}), "nothing", {"total": 5})
    assert follows(record({"all": {"type": "array", "items": NUMBER}}), "nothing", {"all": []})
    assert not follows(record({"all": {"type": "array", "items": NUMBER}}), "nothing", {"all": [1]})


def test_dates_are_those_of_the_text():
    schema = record({"day": {"type": "string", "format": "date"}})
    assert follows(schema, "am 3. Mai 2024", {"day": "2024-05-03"})
    assert not follows(schema, "am 3. Mai 2024", {"day": "2024-05-04"})


def test_copied_strings_are_words_of_the_text():
    schema, text = record({"name": COPIED}), 'Dear "Ann O\'Neil", the (red) lamps\nare 5.5 kg: café.'
    for part in ("Ann O'Neil", "Ann O'Neil\", the", "red", "red) lamps", "5.5 kg", "café", "Dear"):
        assert follows(schema, text, {"name": part}), part
    for part in ("Ann Lee", "lamps are", "5 kg", "caf", "ar", ""):
        assert not follows(schema, text, {"name": part}), part


def test_copied_strings_are_found_in_every_part_of_a_schema():
    inner = {"$id": "inner.json", **record({"city": COPIED})}
    schema = record({"name": {**COPIED, "type": ["string", "null"]}, "all": {"type": "array", "items": COPIED}})
    for more in ({}, {"inner": inner}):
        whole, rest = record({**schema["properties"], **more}), {"inner": {"city": "Oslo"}} if more else {}
        assert follows(whole, "Ann in Oslo", {"name": None, "all": ["Ann", "Oslo"], **rest})
        assert not follows(whole, "Ann in Oslo", {"name": "Bob", "all": [], **rest})
        assert not follows(whole, "Ann in Oslo", {"name": None, "all": ["Bob"], **rest})


def test_derived_values_stay_free():
    fields = {"total": {"type": "number", "x-from-text": False}, "kind": {"enum": [7, 8]}, "mail": {"type": "string"}}
    schema = record({**fields, "open": {"type": "boolean"}})
    answer = {"total": 12.5, "kind": 7, "mail": "x9", "open": True}
    assert follows(schema, "nothing", answer)
    assert Grounding(schema, Source("nothing")).remarks_on(json.dumps(answer)) == ['/mail: "x9" is not in the text']


def test_values_that_are_not_in_the_text_are_marked():
    nested = record({"rows": {"type": "array", "items": record({"n": NUMBER, "when": {"type": "string"}})}})
    answer = {"rows": [{"n": 2, "when": "2024-05-03"}, {"n": 3.5, "when": "room 12"}]}
    remarks = Grounding(nested, Source("two on 3 May 2024")).remarks_on(json.dumps(answer))
    assert remarks == ["/rows/1/n: 3.5 is not in the text", '/rows/1/when: "room 12" is not in the text']


def test_large_texts_and_unclear_schemas_are_left_free_with_a_note():
    schema = record({"n": NUMBER})
    many = Grounding(schema, Source(" ".join(map(str, range(100_000)))))
    assert many.schema == schema and "10000 numbers" in many.notes[0] and many.remarks_on('{"n": -5}') == []
    more = Grounding(schema, Source(" ".join(map(str, range(3000)))))
    assert more.schema == schema and more.notes and more.remarks_on('{"n": 3000}')
    unclear = Grounding({**schema, "not": {"required": ["x"]}}, Source("5"))
    assert "alternatives or conditions" in unclear.notes[0] and unclear.remarks_on('{"n": 6}')
    assert Grounding(record({"a": COPIED}), Source("東京の本")).notes
    assert Grounding(schema, Source(f"{2**60} and 5")).notes


def test_copying_marks_plain_strings_alone():
    fields = {
        "a": {"type": "string"},
        "b": {"type": "string", "description": "in short"},
        "c": {"type": ["string", "null"]},
    }
    marked = copying(record(fields))["properties"]
    assert [name for name in marked if marked[name].get("x-from-text")] == ["a", "c"]
    assert without_keyword(copying(record(fields))) == record(fields)


@pytest.mark.long
def test_no_number_of_500_texts_is_invented():
    """Answers drawn at random from what can be decoded: each number is one that was put into the text."""
    draw = random.Random(5)
    tokenizer = byte_tokenizer()

    def check(_case: int) -> None:
        values = [
            draw.choice((draw.randrange(10 ** draw.randint(1, 6)), draw.randrange(10**6) / 100)) for _ in range(4)
        ]
        text = " ".join(f"{draw.choice(('costs', 'Rechnung', 'le prix:'))} {value}" for value in values)
        schema = record(
            {"a": NUMBER, "b": {"anyOf": [WHOLE, {"type": "null"}]}, "c": {"type": "array", "items": NUMBER}}
        )
        matcher = tokenizer.matcher(enforce(check_schema(Grounding(schema, Source(text)).schema), tokenizer).grammar)
        written = bytearray()
        while not matcher.is_accepting() and len(written) < 500:
            allowed = [n for n, bias in enumerate(matcher.compute_logit_bias()[:256]) if bias]
            byte = draw.choice(allowed)
            matcher.consume_token(byte)
            written.append(byte)
        if matcher.is_accepting():
            answer = json.loads(written)
            found = [answer["a"], *answer["c"], *([] if answer["b"] is None else [answer["b"]])]
            assert set(found) <= {*values, *(int(value) for value in values if float(value).is_integer())}

    check_each(range(500), check)
