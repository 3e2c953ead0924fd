"""A text as words: runs of letters, runs of digits, and every other character alone; so are those of Chinese, Japanese
and Thai, which are written without spaces. Offsets are code points of the text itself."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property

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
        """Where these words stand one after the other: starts and ends in code points."""
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
