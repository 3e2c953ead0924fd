"""Where a value may stand in a text: exactly, by its value, in part, or nearly."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

from .values import Spelled, date_of, dates_in, number_of, numbers_in
from .words import SourceText, folded, words_of

EXACT, PARTIAL, FUZZY, NOT_IN_TEXT, NO_PLACE = "exact", "partial", "fuzzy", "not_in_text", "no_place"
LEAST_PART = 0.6
"""Words side by side in the text count as a part of a value when they are at least this part of its words."""
LETTERS_AN_ERROR = 6
"""Letters of a value for each that may differ, be missing or be too many."""
LEAST_LETTERS = 4
LONGEST_FUZZY, LONGEST_TEXT = 200, 200_000
"""Characters of a value, and of a text, beyond which nearly equal ones are not looked for."""
LOOKALIKES = str.maketrans("o0il1|s5b8z2", "ooiiiissbbzz")
"""What recognition of printed characters mixes up."""


@dataclass(frozen=True)
class Candidate:
    """A place in code points, the end after its last, and how it was found."""

    start: int
    end: int
    how: str


class Source(SourceText):
    """A text, with its numbers and dates read."""

    @cached_property
    def dates(self) -> list[Spelled]:
        return list(dates_in(self.text))

    @cached_property
    def numbers(self) -> list[Spelled]:
        """Those that are no part of a date."""
        days = [(each.start, each.end) for each in self.dates]
        return [each for each in numbers_in(self.text) if not any(s <= each.start < e for s, e in days)]

    @cached_property
    def _numerals(self) -> list[tuple[int, int]]:
        spelled = [*self.dates, *self.numbers]
        return sorted(
            (each.start, each.end) for each in spelled if self.text[each.start : each.end].strip("+-")[0].isdigit()
        )

    def cuts_numeral(self, start: int, end: int) -> bool:
        """Whether a place begins or ends within a number or a date."""
        return any(s < start < e or s < end < e for s, e in self._numerals)

    @cached_property
    def looks(self) -> str:
        """The text with characters that look alike made equal, each in its own place."""
        return "".join(folded(char)[:1] or char for char in self.text).translate(LOOKALIKES)


def candidates(source: Source, value: Any) -> list[Candidate]:
    """Where a value may stand, by the best way that finds it at all."""
    if isinstance(value, (int, float)):
        return _numbers(source, float(value))
    words = [word for word, _, _ in words_of(value)]
    if not words:
        return []
    found = [Candidate(start, end, EXACT) for start, end in source.runs(words)]
    whole = [each for each in found if not source.cuts_numeral(each.start, each.end)]
    if whole:
        return whole
    day, number = date_of(value), number_of(value)
    by_value = _dates(source, day) if day is not None else _numbers(source, number) if number is not None else []
    if by_value or number is not None or day is not None:
        return by_value or _lookalikes(source, value)
    return found or _lookalikes(source, value) or _nearly(source, value) or _parts(source, words)


def _numbers(source: Source, value: float) -> list[Candidate]:
    ranked: dict[int, list[Spelled]] = {}
    for each in source.numbers:
        for rank, reading in enumerate(each.values):
            if isinstance(reading, float) and math.isclose(reading, value, rel_tol=1e-9, abs_tol=1e-12):
                ranked.setdefault(rank, []).append(each)
                break
    found = [Candidate(each.start, each.end, EXACT) for each in ranked[min(ranked)]] if ranked else []
    if found:
        return found
    digits = [str(int(abs(value)))] if value.is_integer() else re.findall(r"\d+|\.", repr(abs(value)))
    return [Candidate(start, end, EXACT) for start, end in source.runs(digits)] or _lookalikes(source, "".join(digits))


def _dates(source: Source, day: date) -> list[Candidate]:
    ranked = [[each for each in source.dates if each.values[n : n + 1] == (day,)] for n in (0, 1)]
    return [Candidate(each.start, each.end, EXACT) for each in ranked[0] or ranked[1]]


def _lookalikes(source: Source, value: str) -> list[Candidate]:
    """Where the value is written in other characters that look the same, between the edges of words."""
    wanted = " ".join(folded(value).split()).translate(LOOKALIKES)
    if len(wanted) < 2:
        return []
    pattern = r"\s+".join(map(re.escape, wanted.split(" ")))
    found = re.finditer(rf"(?<!\w){pattern}(?!\w)", source.looks)
    return [Candidate(match.start(), match.end(), FUZZY) for match in found]


def _parts(source: Source, words: list[str]) -> list[Candidate]:
    """The longest run of the value's words that is in the text, where that is most of them."""
    size = sum(map(len, words))
    for count in range(len(words) - 1, 0, -1):
        for first in range(len(words) - count + 1):
            part = words[first : first + count]
            if min(sum(map(len, part)) / size, count / len(words)) < LEAST_PART:
                continue
            found = source.runs(part)
            if found and sum(map(len, part)) >= LEAST_LETTERS:
                return [Candidate(start, end, PARTIAL) for start, end in found]
    return []


def _nearly(source: Source, value: str) -> list[Candidate]:
    """The one place that is nearest to the value by letters that differ, where those are few. Digits may not differ."""
    wanted = folded(" ".join(value.split()))
    errors = len(wanted) // LETTERS_AN_ERROR
    if not errors or len(wanted) > LONGEST_FUZZY or len(source.text) > LONGEST_TEXT:
        return []
    end, cost = _best_end(source.looks, wanted.translate(LOOKALIKES), errors)
    if end is None:
        return []
    window = source.looks[max(0, end - len(wanted) - errors) : end]
    back, _ = _best_end(window[::-1], wanted.translate(LOOKALIKES)[::-1], cost, anchored=True)
    start = end - (back or 0)
    text = source.text
    while start > 0 and text[start].isalnum() and text[start - 1].isalnum() and not text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end - 1].isalnum() and text[end].isalnum():
        end += 1
    found = folded(text[start:end]).translate(LOOKALIKES)
    digits = [re.sub(r"\D", "", each) for each in (folded(value), folded(text[start:end]))]
    if abs(len(found) - len(wanted)) > errors or (digits[0] and digits[0] != digits[1]):
        return []
    return [Candidate(start, end, FUZZY)]


def _best_end(text: str, wanted: str, errors: int, *, anchored: bool = False) -> tuple[int | None, int]:
    """Where a piece of a text ends that differs from ``wanted`` by the fewest letters, and by how many; None for more
    than ``errors``. ``anchored``: the piece begins where the text does. Sellers' algorithm, a column a letter."""
    import numpy as np

    letters = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    places = np.arange(len(letters) + 1)
    costs = places.copy() if anchored else np.zeros_like(places)
    for char in wanted:
        step = np.empty_like(costs)
        step[0] = costs[0] + 1
        step[1:] = np.minimum(costs[:-1] + (letters != ord(char)), costs[1:] + 1)
        costs = np.minimum.accumulate(step - places) + places
    best = int(costs.argmin())
    return (best, int(costs[best])) if costs[best] <= errors else (None, 0)
