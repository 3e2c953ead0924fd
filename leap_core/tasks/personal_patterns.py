"""Personal data that has a form: addresses of the web and of mail, numbers of accounts, cards, people and telephones.

An IBAN counts with its check digits (ISO 13616), a card with its check digit (ISO/IEC 7812), a telephone number with 7
to 15 digits (E.164) that are written as one: with +, a bracket, a leading zero, in parts between spaces, hyphens or
dots, or behind a word such as ``phone``. `leap_core.tasks.national_numbers` has the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial

from .national_numbers import (
    AFTER,
    BEFORE,
    CALLED,
    PHONE,
    UNSPACED,
    luhn,
    named_numbers,
    national_numbers,
    passports,
)

URL = re.compile(
    r"\b(?:https?|ftp)://[^\s<>\"'`|\\^{}\[\]]+|\bwww\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>\"']*)?",
)
LOCAL = rf"(?:[^\W{UNSPACED}]|[.!#$%&'*+/=?^`{{|}}~-])"
MAIL = re.compile(rf"(?<!{LOCAL}){LOCAL}+@(?:[\w-]+\.)+(?:(?:[^\W{UNSPACED}]|-)+|[{UNSPACED}]+)")
GAP = "[ \\t\u00a0\u2007\u2009\u202f\u2010-\u2013\u2212\uff0d-]"
"""What people write between the groups of a number, no-break and narrow spaces among it."""
IBAN = re.compile(rf"{BEFORE}[A-Za-z]{{2}}\d{{2}}(?={GAP}?[A-Za-z0-9])")
GROUPS_OF_FOUR = rf"\d{{4}}(?:{GAP}\d{{4}}){{3}}"
CARD = tuple(
    re.compile(rf"{BEFORE}(?<![_+])(?:{form}){AFTER}")
    for form in (rf"{GROUPS_OF_FOUR}{GAP}\d{{3}}", rf"\d{{13,19}}|\d{{4}}{GAP}\d{{6}}{GAP}\d{{4,5}}|{GROUPS_OF_FOUR}")
)
GROUP = re.compile(r"(?<!\d)\d(?=\d{3})")
PARTS = re.compile(rf"{BEFORE}(?<!\d[.,:/-])[+(]{{0,2}}\d(?:(?:{GAP}|[./()]){{0,3}}\d){{6,18}}")
END = re.compile(AFTER)
IN_PARTS = re.compile(rf"\d(?:{GAP}|/)+\(?\d|\d\.\d+\.\d")
DAY, MONTH = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])"
NO_PHONE = re.compile(
    rf"(?<!\d)(?<!\d[-./])(?:{DAY}([-./]){MONTH}\1(?:19|20)?\d\d|{MONTH}([-/]){DAY}\2(?:19|20)?\d\d"
    rf"|(?:19|20)\d\d([-./]){MONTH}\3{DAY}|\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?![\d]|[-./]\d)"
)
"""Dates and addresses of networks."""
TRAILING = ".,;:!?)'\""
IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU",
        31: "MT SC",
        32: "LC",
    }.items()
    for country in countries.split()
}
"""Characters of an IBAN by country (ISO 13616's registry)."""


@cache
def _rest_of_iban(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?:{GAP}?[A-Za-z0-9]){{{length - 4}}}{AFTER}")


def _ibans(text: str) -> Iterator[tuple[int, int]]:
    """One candidate for each place where one may begin: the country says how long it is."""
    for match in IBAN.finditer(text):
        length = IBAN_LENGTHS.get(match[0][:2].upper())
        rest = _rest_of_iban(length).match(text, match.end()) if length else None
        if rest and _iban(match[0] + rest[0]):
            yield match.start(), rest.end()


def _iban(text: str) -> bool:
    plain = "".join(filter(str.isalnum, text)).upper()
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


def _cards(text: str) -> Iterator[tuple[int, int]]:
    """A card may begin at each group of digits, for there may be numbers before it."""
    for match in GROUP.finditer(text):
        for form in CARD:
            found = form.match(text, match.start())
            digits = [int(char) for char in found[0] if char.isdigit()] if found else []
            if found and len(set(digits)) > 1 and luhn(digits):
                yield found.span()
                break


def _whole(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    for match in pattern.finditer(text):
        yield match.start(), match.start() + len(match[0].rstrip(TRAILING))


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """Which of the neighbouring numbers are a telephone number: the longest from each group on."""
    place = 0
    while match := PARTS.search(text, place):
        start, digits, ends = match.start(), 0, []
        groups = list(re.finditer(r"[+(]*([^\W_]+)\)?", match[0]))
        for each in groups:
            digits += len(each[1])
            ends += [each.end()] if 7 <= digits <= 15 else []
        place = match.end() if len(groups) < 2 else start + groups[1].start()
        if match[0][0] == "(":  # it may belong to the sentence
            place = start + 1
        for end in reversed(ends):
            part = match[0][:end]
            if (
                END.match(text, start + end)
                and part.count("(") == part.count(")")
                and (part[0] in "+(0" or IN_PARTS.search(part))
            ):
                yield start, start + end
                place = start + end
                break


def _phones(text: str) -> Iterator[tuple[int, int]]:
    text = NO_PHONE.sub(lambda match: "\0" * len(match[0]), text)
    yield from named_numbers(PHONE, CALLED, text)
    yield from _parts(text)


PATTERNS: dict[str, Callable[[str], Iterator[tuple[int, int]]]] = {
    "url": partial(_whole, URL),
    "email_address": partial(_whole, MAIL),
    "iban": _ibans,
    "passport_number": passports,
    "national_number": national_numbers,
    "card_number": _cards,
    "phone_number": _phones,
}
"""By category, in the order of looking: what one has found is not looked at by those after it."""
PATTERN_CATEGORIES = tuple(PATTERNS)


def found_by_pattern(text: str, categories: tuple[str, ...] = PATTERN_CATEGORIES) -> dict[str, list[str]]:
    """What the expressions of these categories find, each text once, in the order of its first place."""
    found: dict[str, list[str]] = {}
    for category, find in PATTERNS.items():
        if category not in categories:
            continue
        items: dict[str, None] = {}
        rest, place = [], 0
        for start, end in sorted(set(find(text)), key=lambda span: (span[0], -span[1])):
            if place <= start < end:
                items[text[start:end]] = None
                rest += [text[place:start], "\0" * (end - start)]
                place = end
        text = "".join([*rest, text[place:]])
        if items:
            found[category] = list(items)
    return found
