"""Numbers and dates in a text, by value: 1,234.00 is 1234, and 3 May 2026 is 2026-05-03."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache

NUMBER = re.compile(
    r"(?<![\w.,])[-+\u2212]?(?:\d{1,3}(?:[,.'\u2019\u00a0\u202f ]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
    r"(?![\d])(?!['.,]\d)"
)
SCALES = {
    "k": 1e3,
    "thousand": 1e3,
    "m": 1e6,
    "mio": 1e6,
    "million": 1e6,
    "bn": 1e9,
    "billion": 1e9,
    "万": 1e4,
    "億": 1e8,
}
SCALE = re.compile(r"\s?(" + "|".join(sorted(SCALES, key=len, reverse=True)) + r")(?![A-Za-z])", re.IGNORECASE)
PERCENT = re.compile(r"\s?[%\uff05\u2030]")
MONTHS = (
    "jan januar janvier enero", "feb februar fevrier febrero", "mar marz mars marzo", "apr avril abril",
    "may mai mayo", "jun juni juin junio", "jul juli juillet julio", "aug august aout agosto",
    "sep september septembre septiembre", "oct okt october oktober octobre octubre",
    "nov november novembre noviembre", "dec dez december dezember decembre diciembre",
)  # fmt: skip
"""Names in English, German, French and Spanish, without accents; shortened ones and longer forms begin with one."""
ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
WORD = re.compile(
    rf"\b(?:({'|'.join(TENS)})(?:[- ]({'|'.join(ONES[1:10])}))?|({'|'.join(ONES)}|dozen))\b", re.IGNORECASE
)
YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})\s?(?:[-/.]|年)\s?(\d{1,2})\s?(?:[-/.]|月)\s?(\d{1,2})(?!\d)日?")
YEAR_LAST = re.compile(r"(?<![\d.])(\d{1,2})\s?([-/.])\s?(\d{1,2})\s?\2\s?(\d{4}|\d{2})(?!\d)")
DAY_MONTH = re.compile(
    r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|er|\.)?(?:\s+(?:of|de))?\s+([^\W\d_]{3,12})\.?,?(?:\s+de)?\s+(\d{4})(?!\d)"
)
MONTH_DAY = re.compile(r"([^\W\d_]{3,12})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})(?!\d)")


@dataclass(frozen=True)
class Spelled:
    """A number or a date from ``start`` to ``end``; ``values``: what it may mean, the likeliest first."""

    start: int
    end: int
    values: tuple[object, ...]


def numbers_in(text: str) -> Iterator[Spelled]:
    """The numbers in a text, as digits or as English words, with a scale or a percent sign behind them."""
    for match in NUMBER.finditer(text):
        readings = [*_readings(match[0])]
        end = match.end()
        scale, percent = SCALE.match(text, end), PERCENT.match(text, end)
        if scale:
            yield Spelled(match.start(), scale.end(), tuple(value * SCALES[scale[1].lower()] for value in readings))
        if percent:
            readings += [value / 100 for value in readings]
        yield Spelled(match.start(), end, tuple(readings))
    for match in WORD.finditer(text):
        tens, one, small = match[1], match[2], match[3]
        value = 12 if (small or "").lower() == "dozen" else ONES.index(small.lower()) if small else 0
        if tens:
            value = 20 + 10 * TENS.index(tens.lower()) + (ONES.index(one.lower()) if one else 0)
        yield Spelled(match.start(), match.end(), (float(value),))


def _readings(digits: str) -> Iterator[float]:
    """What digits with points, commas and spaces may mean; the last mark with other than three digits is the point."""
    plain = digits.replace("\u2212", "-")
    marks = [char for char in plain if not char.isdigit() and char not in "+-"]
    whole = re.sub(r"[^\d+-]", "", plain)
    if not marks:
        yield float(whole)
        return
    last = max(plain.rfind(char) for char in marks)
    fraction = plain[last + 1 :]
    pointed = float(f"{re.sub(r'[^0-9+-]', '', plain[:last])}.{fraction}")
    grouped = len(fraction) == 3 and len(set(marks)) == 1
    if not grouped:
        yield pointed
    else:
        yield float(whole)
        if len(marks) == 1 and marks[0] in ".,":
            yield pointed


def dates_in(text: str) -> Iterator[Spelled]:
    """The dates in a text, of the calendar; 3/5/2026 may be the third of May or the fifth of March."""
    for match in YEAR_FIRST.finditer(text):
        yield from _spelled(match, (match[1], match[2], match[3]))
    for match in YEAR_LAST.finditer(text):
        year = match[4] if len(match[4]) == 4 else f"20{match[4]}"
        yield from _spelled(match, (year, match[3], match[1]), (year, match[1], match[3]))
    for match in DAY_MONTH.finditer(text):
        yield from _spelled(match, (match[3], str(_month(match[2])), match[1]))
    for match in MONTH_DAY.finditer(text):
        yield from _spelled(match, (match[3], str(_month(match[1])), match[2]))


def date_of(text: str) -> date | None:
    """The date that a whole text is, or begins with before a time."""
    text = text.strip()
    found = [each for each in dates_in(text[:40]) if each.start == 0]
    whole = [each for each in found if each.end == len(text) or text[each.end] in "T "]
    value = whole[0].values[0] if whole else None
    return value if isinstance(value, date) else None


def number_of(text: str) -> float | None:
    """The number that a whole text is."""
    match = NUMBER.fullmatch(text.strip())
    return next(_readings(match[0])) if match else None


def _spelled(match: re.Match[str], *readings: tuple[str, str, str]) -> Iterator[Spelled]:
    days = []
    for year, month, day in readings:
        try:
            days.append(date(int(year), int(month), int(day)))
        except ValueError:
            continue
    if days:
        yield Spelled(match.start(), match.end(), tuple(days))


@cache
def _month(name: str) -> int:
    """1 to 12; 0 for what is no month."""
    plain = "".join(char for char in unicodedata.normalize("NFD", name.lower()) if char.isalpha())
    for number, names in enumerate(MONTHS, 1):
        if any(plain.startswith(each) and (len(each) == len(plain) or len(each) == 3) for each in names.split()):
            return number
    return 0
