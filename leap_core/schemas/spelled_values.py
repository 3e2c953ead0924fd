"""Numbers, dates and times of day as people write them in a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache

from .numerals import numerals_in

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
    "jan januar janvier enero gennaio", "feb februar fevrier febrero", "mar marz mars marzo", "apr avril abril",
    "may mai mayo maggio", "jun juni juin junio giugno", "jul juli juillet julio luglio", "aug august aout agosto",
    "sep september septembre septiembre settembre", "oct okt october oktober octobre octubre ottobre",
    "nov november novembre noviembre", "dec dez december dezember decembre diciembre dicembre",
)  # fmt: skip
"""Names in English, German, French, Spanish and Italian, without accents; shortened and longer forms begin with one."""
YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})\s?(?:[-/.]|年)\s?(\d{1,2})\s?(?:[-/.]|月)\s?(\d{1,2})(?!\d)日?")
YEAR_LAST = re.compile(r"(?<![\d.])(\d{1,2})\s?([-/.])\s?(\d{1,2})\s?\2\s?(\d{4}|\d{2})(?!\d)")
DAY_MONTH = re.compile(
    r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|er|\.)?(?:\s+(?:of|de))?\s+([^\W\d_]{3,12})\.?,?(?:\s+de)?\s+(\d{4})(?!\d)"
)
TIME = re.compile(
    r"(?<![\d:.,])(\d{1,2})(?:[:h](\d\d)(?::(\d\d)(?:[.,]\d+)?)?)?(?:\s?(?:([ap])\.?m\b\.?|(uhr|h|o'clock)\b))?"
    r"(?:\s?(z|utc|gmt)\b|(?:(?<=:\d\d:\d\d)|(?<=t\d\d:\d\d))([+-]\d\d):?(\d\d))?(?![\w:])",
    re.IGNORECASE,
)
MONTH_DAY = re.compile(r"([^\W\d_]{3,12})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})(?!\d)")


@dataclass(frozen=True)
class Spelled:
    """A number, a date or a time from ``start`` to ``end``. ``values``: what it may mean, the likeliest first; of a
    time its seconds and zone."""

    start: int
    end: int
    values: tuple[object, ...]


def numbers_in(text: str) -> Iterator[Spelled]:
    """The numbers in a text, as digits or as words, with a scale or a percent sign behind them."""
    for match in NUMBER.finditer(text):
        readings = [*readings_of(match[0])]
        end = match.end()
        scale, percent = SCALE.match(text, end), PERCENT.match(text, end)
        if scale:
            yield Spelled(match.start(), scale.end(), tuple(value * SCALES[scale[1].lower()] for value in readings))
        if percent:
            readings += [value / 100 for value in readings]
        yield Spelled(match.start(), end, tuple(readings))
    for start, end, value in numerals_in(text):
        yield Spelled(start, end, (value,))


def readings_of(digits: str) -> Iterator[float]:
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


def times_in(text: str) -> Iterator[Spelled]:
    """The times of day in a text: seconds since midnight, and those that the zone is ahead of UTC or None."""
    for match in TIME.finditer(text):
        hour, minute, second, half, word, utc, ahead, more = match.groups()
        if (minute or half or word) and int(hour) < 24 and int(minute or 0) < 60 and int(second or 0) < 60:
            hours = int(hour) % 12 + 12 * (half in "pP") if half else int(hour)
            offset = 0 if utc else None if ahead is None else int(ahead) * 60 + int(f"{ahead[0]}{more}")
            yield Spelled(*match.span(), (hours * 3600 + int(minute or 0) * 60 + int(second or 0), offset))


def moment_of(text: str) -> tuple[date, Spelled | None] | None:
    """The date that a whole text is, and the time of day behind it."""
    text = text.strip()
    for day in dates_in(text[:40]):
        value, rest = day.values[0], text[day.end :]
        time = next(times_in(rest), None)
        left = rest if time is None else rest[: time.start] + rest[time.end :]
        if day.start == 0 and isinstance(value, date) and left.strip(" ,Tt") in ("", "at", "um"):
            return value, time
    return None


def number_of(text: str) -> float | None:
    """The number that a whole text is."""
    match = NUMBER.fullmatch(text.strip())
    return next(readings_of(match[0])) if match else None


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
