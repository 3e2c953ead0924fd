"""Personal data found by expressions, and what only looks like it."""

from __future__ import annotations

import random
import time

import pytest

from leap_core.tasks.redaction import found_by_pattern, mask


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
def test_what_is_found(text: str, found: dict[str, list[str]]):
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
def test_what_only_looks_like_it(text: str):
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


@pytest.mark.slow
@pytest.mark.parametrize("text", ["1 " * 50_000, "a" * 200_000, "a." * 50_000 + "@", "(" * 50_000, "AA00 " * 30_000])
def test_time_grows_with_the_text(text: str):
    began = time.process_time()
    found_by_pattern(text)
    assert time.process_time() - began < 10
