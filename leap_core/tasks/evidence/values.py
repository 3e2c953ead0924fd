"""Where a value may be in a text: exactly, by its value as a number or date, in part, or nearly."""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from functools import cached_property
from typing import Any

from ...schemas.spelled_values import Spelled, dates_in, moment_of, number_of, numbers_in, times_in
from ...system.dataclass import dataclass

ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
WORD = re.compile(rf"[{ALONE}]|\d+|(?:(?![{ALONE}])[^\W\d_])+(?:[\u0300-\u036f]+(?:(?![{ALONE}])[^\W\d_])*)*|[^\s\w]|_")
FOLDED = str.maketrans({
    **dict.fromkeys("\u2018\u2019\u201a", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
})  # fmt: skip
"""Quotation marks and dashes that count as equal."""


def words_of(text: str) -> list[tuple[str, int, int]]:
    """Each word as it is compared, with its start and end."""
    return [(folded(match[0]), match.start(), match.end()) for match in WORD.finditer(text)]


def folded(text: str) -> str:
    """The text as it is compared: compatible characters, quotes and dashes are equal, and so are cases."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text.translate(FOLDED)).casefold()


class SourceText:
    """A text in which values are looked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> list[tuple[str, int, int]]:
        return words_of(self.text)

    @cached_property
    def _at(self) -> dict[str, list[int]]:
        at: dict[str, list[int]] = defaultdict(list)
        for number, (word, _, _) in enumerate(self.words):
            at[word].append(number)
        return at

    def places_of_word(self, word: str) -> list[int]:
        """The numbers of the words that equal one."""
        return self._at.get(word, [])

    def runs(self, words: list[str]) -> list[tuple[int, int]]:
        """Where these words follow each other: starts and ends in code points."""
        rarest = min(range(len(words)), key=lambda n: len(self.places_of_word(words[n])))
        found = []
        for at in self.places_of_word(words[rarest]):
            first = at - rarest
            if first >= 0 and [word for word, _, _ in self.words[first : first + len(words)]] == words:
                found.append((self.words[first][1], self.words[first + len(words) - 1][2]))
        return found

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    @cached_property
    def _clause_ends(self) -> list[int]:
        return [match.end() for match in re.finditer(r"\n|[.;!?](?=\s)|[。！？]", self.text)]

    def clause(self, offset: int) -> int:
        """The sentence, part of one or line that an offset is in, from 0."""
        return bisect_right(self._clause_ends, offset)

    def line(self, offset: int) -> int:
        """The line that an offset is in, from 1."""
        return bisect_left(self._line_starts, offset + 1)

    @cached_property
    def _page_ends(self) -> list[int]:
        return [match.end() for match in re.finditer("\f", self.text)]

    def page(self, offset: int) -> int | None:
        """The page that an offset is in, from 1; None for a text without pages, which form feeds end."""
        return bisect_right(self._page_ends, offset) + 1 if self._page_ends else None


NEAR_TIME = 32
"""Characters between a date and its time, at most."""
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


class TextSource(SourceText):
    """A text, with its numbers and dates read."""

    @cached_property
    def dates(self) -> list[Spelled]:
        return list(dates_in(self.text))

    @cached_property
    def _date_edges(self) -> tuple[list[int], list[int]]:
        return sorted(each.start for each in self.dates), sorted(each.end for each in self.dates)

    def times_beside(self, day: Spelled) -> list[tuple[int, int, tuple[object, ...]]]:
        """The times of day behind a date, or else before it, on its line and up to the next date."""
        starts, ends = self._date_edges
        last = min([day.end + NEAR_TIME, *starts[(n := bisect_left(starts, day.end)) : n + 1]])
        first = max([day.start - NEAR_TIME, 0, *ends[(n := bisect_right(ends, day.start)) - 1 : n]])
        behind = self.text[day.end : last].partition("\n")[0]
        before = self.text[first : day.start].rpartition("\n")[2]
        for start, part in ((day.end, behind), (day.start - len(before), before)):
            if times := [(start + each.start, start + each.end, each.values) for each in times_in(part)]:
                return times
        return []

    @cached_property
    def numbers(self) -> list[Spelled]:
        """Those that are no part of a date."""
        within = self._marked((each.start, each.end) for each in self.dates)
        return [each for each in numbers_in(self.text) if not within[each.start]]

    @cached_property
    def _within_numerals(self) -> bytearray:
        spelled = [*self.dates, *self.numbers]
        numerals = (each for each in spelled if self.text[each.start : each.end].strip("+-")[0].isdigit())
        return self._marked((each.start + 1, each.end) for each in numerals)

    def _marked(self, spans: Iterable[tuple[int, int]]) -> bytearray:
        """A 1 for each offset that is within one of the spans."""
        marks = bytearray(len(self.text) + 1)
        for start, end in spans:
            marks[start:end] = b"\1" * (end - start)
        return marks

    def cuts_numeral(self, start: int, end: int) -> bool:
        """Whether a place begins or ends within a number or a date."""
        return bool(self._within_numerals[start] or self._within_numerals[end])

    @cached_property
    def looks(self) -> str:
        """The text with characters that look alike made equal, each in its own place."""
        return "".join(folded(char)[:1] or char for char in self.text).translate(LOOKALIKES)


def candidates(source: TextSource, value: Any) -> list[Candidate]:
    """The places of a value, by the best way that finds it at all."""
    if isinstance(value, (int, float)):
        return _numbers(source, float(value))
    words = [word for word, _, _ in words_of(value)]
    if not words:
        return []
    found = [Candidate(start, end, EXACT) for start, end in source.runs(words)]
    whole = [each for each in found if not source.cuts_numeral(each.start, each.end)]
    if whole:
        return whole
    moment, number = moment_of(value), number_of(value)
    by_value = _dates(source, *moment) if moment is not None else []
    if moment is None and number is not None:
        by_value = _numbers(source, number)
    if by_value or number is not None or moment is not None:
        return by_value or _lookalikes(source, value)
    return found or _lookalikes(source, value) or _nearly(source, value) or _parts(source, words)


def _numbers(source: TextSource, value: float) -> list[Candidate]:
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


def _dates(source: TextSource, day: date, time: Spelled | None) -> list[Candidate]:
    """Where a date is, with this time of day beside it. A date without a time is a part of the value, and all of it for
    midnight, which formats demand; a date with other times is another value."""
    ranked = [[each for each in source.dates if each.values[n : n + 1] == (day,)] for n in (0, 1)]
    days = ranked[0] or ranked[1]
    if time is None:
        return [Candidate(each.start, each.end, EXACT) for each in days]
    beside = [(each, source.times_beside(each)) for each in days]
    found = [
        Candidate(min(each.start, start), max(each.end, end), EXACT)
        for each, times in beside
        for start, end, spelled in times
        if _is_same_time(time.values, spelled)
    ]
    how = EXACT if time.values[0] == 0 else PARTIAL
    return found or [Candidate(each.start, each.end, how) for each, times in beside if not times]


def _is_same_time(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether the seconds are equal, and the zones where both have one."""
    return one[0] == other[0] and (one[1] == other[1] or None in (one[1], other[1]))


def _lookalikes(source: TextSource, value: str) -> list[Candidate]:
    """Where the value is written in other characters that look the same, between the edges of words."""
    wanted = " ".join(folded(value).split()).translate(LOOKALIKES)
    if len(wanted) < 2:
        return []
    pattern = r"\s+".join(map(re.escape, wanted.split(" ")))
    found = re.finditer(rf"(?<!\w){pattern}(?!\w)", source.looks)
    return [Candidate(match.start(), match.end(), FUZZY) for match in found]


def _parts(source: TextSource, words: list[str]) -> list[Candidate]:
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


def _nearly(source: TextSource, value: str) -> list[Candidate]:
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
