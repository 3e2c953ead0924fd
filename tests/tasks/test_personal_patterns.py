"""Personal data found by expressions, and what only looks like it."""

from __future__ import annotations

import time

import pytest

from leap_core.tasks.redaction import found_by_pattern


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


def test_only_the_categories_that_are_asked_for():
    assert found_by_pattern("a@b.org https://b.org", ("email_address",)) == {"email_address": ["a@b.org"]}


@pytest.mark.parametrize("text", ["1 " * 50_000, "a" * 200_000, "a." * 50_000 + "@", "(" * 50_000, "AA00 " * 30_000])
def test_time_grows_with_the_text(text: str):
    began = time.perf_counter()
    found_by_pattern(text)
    assert time.perf_counter() - began < 10
