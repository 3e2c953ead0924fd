"""A full-text index of sections in memory: SQLite's FTS5, with stems of English words."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator

Section = tuple[str, str, str]
"""A section's page, its heading and its text."""
_SMALL = {
    "a",
    "an",
    "and",
    "do",
    "for",
    "from",
    "how",
    "i",
    "in",
    "is",
    "it",
    "leap",
    "of",
    "on",
    "or",
    "the",
    "to",
    "with",
}
_RANKED = "ORDER BY bm25(section, 0, 6, 1) LIMIT 30"


class TextIndex:
    """Sections, found by their words; a heading counts six times its text."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute(
            "CREATE VIRTUAL TABLE section USING fts5(page UNINDEXED, heading, body, tokenize='porter unicode61')"
        )
        self._connection.executemany("INSERT INTO section VALUES (?, ?, ?)", sections)

    def close(self) -> None:
        """Free the index."""
        self._connection.close()

    def matches(self, words: str) -> Iterator[Section]:
        """Sections with all of the words, then sections with some of them, the best first."""
        for operator in ("AND", "OR"):
            query = f"SELECT page, heading, body FROM section WHERE section MATCH ? {_RANKED}"
            yield from self._connection.execute(query, (_expression(words, operator),)).fetchall()

    def best_of_page(self, page: str, words: str) -> str | None:
        """The heading of the page's best section; None where it has none of the words."""
        query = f"SELECT heading FROM section WHERE section MATCH ? AND page = ? {_RANKED}"
        row = self._connection.execute(query, (_expression(words, "OR"), page)).fetchone()
        return None if row is None else str(row[0])


def _expression(words: str, operator: str) -> str:
    all_words = re.findall(r"\w+", words.lower())
    telling = [word for word in all_words if word not in _SMALL] or all_words
    return f" {operator} ".join(f'"{word}"' for word in telling) or '""'
