"""Personal data found by expressions, and what only looks like it."""

from __future__ import annotations

import json
import random
import sys

import pytest

from benchmarks.redaction import TEXTS, measure
from leap_core.tasks.personal_patterns import found_by_pattern
from leap_core.tasks.redaction import mask


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Write to ann.b+c@mail.example.org.", {"email_address": ["ann.b+c@mail.example.org"]}),
        ("Call +49 170 1234567 or (030) 123-4567, not later.", {"phone_number": ["+49 170 1234567", "(030) 123-4567"]}),
        ("tel. 555-867-5309; fax 0301234567", {"phone_number": ["555-867-5309", "0301234567"]}),
        ("Pay to DE89 3704 0044 0532 0130 00 today", {"iban": ["DE89 3704 0044 0532 0130 00"]}),
        ("GB82WEST12345698765432", {"iban": ["GB82WEST12345698765432"]}),
        ("card 4111 1111 1111 1111, exp 12/27", {"card_number": ["4111 1111 1111 1111"]}),
        ("see https://x.org/a?b=c, or www.example.com/z.",
         {"url": ["https://x.org/a?b=c", "www.example.com/z"]}),
        ("日本の電話 03-1234-5678 です", {"phone_number": ["03-1234-5678"]}),
    ],
)  # fmt: skip
def test_personal_data_is_found(text: str, found: dict[str, list[str]]):
    assert found_by_pattern(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "on 2026-11-23 at 12:30:45, 23.11.2026 and 11/23/2026",
        "4111 1111 1111 1112 is no card, DE89 3704 0044 0532 0130 01 no IBAN",
        "the price is 1234567 or 1,234,567.89 and version 1.22.333",
        "a@b, @handle, 192.168.10.100",
        "order 2026112300017",
    ],
)
def test_similar_text_is_not_masked(text: str):
    assert {"card_number", "iban", "email_address", "url"}.isdisjoint(found_by_pattern(text))
    if "4111" not in text:
        assert found_by_pattern(text) == {}


def _iban(rng: random.Random) -> str:
    digits = "".join(str(rng.randrange(10)) for _ in range(18))
    return f"DE{98 - int(digits + '131400') % 97:02}{digits}"


def _card(rng: random.Random) -> str:
    digits = [4, *(rng.randrange(10) for _ in range(14))]
    total = sum(sum(divmod(2 * digit, 10)) if n % 2 == 0 else digit for n, digit in enumerate(reversed(digits)))
    return "".join(map(str, digits)) + str(-total % 10)


def test_a_number_is_found_whatever_stands_around_it():
    rng = random.Random(3)
    phones = ("030-1234567", "+49 30 1234567", "(030) 123-4567", "0049 170 1234567", "+1 (555) 867-5309")
    surroundings = (
        *(("", ""), ("", " BIC"), ("", " EUR"), ("", " 12"), ("IBAN:", ""), ("Nr 5 ", ""), ("Tel:", ", please")),
        *(("x (", ")"), ("", "\nNext"), ("\u00a0", "\u00a0A"), ("on 12.03.2026 ", ""), ("", " ABC DE")),
    )
    for _ in range(1000):
        gap = rng.choice((" ", "\u00a0", "-", "", "\u202f"))
        plain = rng.choice((_iban(rng), _card(rng)))
        number = gap.join(plain[n : n + 4] for n in range(0, len(plain), 4))
        number = rng.choice((number, number, rng.choice(phones).replace(" ", gap or " ")))
        before, after = rng.choice(surroundings)
        text = before + number + after
        assert number not in mask(text, found_by_pattern(text))[0], text


def test_only_the_categories_that_are_asked_for():
    assert found_by_pattern("a@b.org https://b.org", ("email_address",)) == {"email_address": ["a@b.org"]}


@pytest.mark.parametrize(
    ("text", "category", "number"),
    [
        ("Die Steuer-ID 12 345 678 901 fehlt", "national_number", "12 345 678 901"),
        ("SSN 078-05-1120.", "national_number", "078-05-1120"),
        ("her NHS number is 9434765919, he said", "national_number", "9434765919"),
        ("X-1234567-L y 12345678Z", "national_number", "X-1234567-L"),
        ("n° 2 55 08 14 168 025 38", "national_number", "2 55 08 14 168 025 38"),
        ("RSSMRA85T10A562S", "national_number", "RSSMRA85T10A562S"),
        ("BSN 111222333", "national_number", "111222333"),
        ("756.1234.5678.97 ist die AHV", "national_number", "756.1234.5678.97"),
        ("390.533.447-05", "national_number", "390.533.447-05"),
        ("2341 2341 2346", "national_number", "2341 2341 2346"),
        ("1234 5678 9000", "national_number", "1234 5678 9000"),
        ("身份证号码是110105194912310025。", "national_number", "110105194912310025"),
        ("131052-308T", "national_number", "131052-308T"),
        ("Passport No: C01X00T47, issued", "passport_number", "C01X00T47"),
        ("旅券番号はTK1234567です", "passport_number", "TK1234567"),
        ("電話03-1234-5678です", "phone_number", "03-1234-5678"),
        ("Móvil: 612345678", "phone_number", "612345678"),
        ("tél. 01.23.45.67.89", "phone_number", "01.23.45.67.89"),
        ("信はann@b.orgへ", "email_address", "ann@b.org"),
    ],
)
def test_a_number_is_found_by_its_check_or_by_the_word_before_it(text: str, category: str, number: str):
    assert found_by_pattern(text)[category][0] == number


@pytest.mark.parametrize(
    "number", ["756.1234.5678.98", "12345678A", "390.533.447-06", "110105194912310026", "12345678902"]
)
def test_a_number_with_a_wrong_check_digit_is_not_masked(number: str):
    assert "national_number" not in found_by_pattern(f"we have {number} here")


def test_no_identifier_of_twenty_countries_stays_readable_and_few_words_are_masked():
    cases = [json.loads(line) for line in TEXTS.read_text("utf-8").splitlines()]
    results = [(case["country"], *measure(case["text"], case["identifiers"])) for case in cases]
    assert len({country for country, *_ in results}) >= 20
    assert sum(len(case["identifiers"]) for case in cases) >= 200
    assert [(country, readable) for country, readable, *_ in results if readable] == []
    assert sum(len(masked) for *_, masked, _ in results) <= 0.02 * sum(words for *_, words in results)


def calls_for(text: str) -> int:
    """The calls that finding and masking make."""
    count = 0

    def tick(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(tick)
    try:
        mask(text, found_by_pattern(text))
    finally:
        sys.setprofile(None)
    return count


HOSTILE = ("DE12 ", "1 ", "1-", "1(1( ", "a", "a.", "(", "AA00 ", "passport ", "a@b.c ", "www.", "12 34-", "1234 ")


@pytest.mark.slow
def test_the_calls_grow_with_the_text():
    for part in HOSTILE:
        once, twice = (calls_for(part * (size // len(part))) for size in (2000, 4000))
        assert twice < 2.3 * once + 200, part


@pytest.mark.slow
def test_the_calls_grow_with_the_number_of_items():
    once, twice = (calls_for("".join(f"x{n}@example.org, " for n in range(size))) for size in (500, 1000))
    assert twice < 2.3 * once + 200
