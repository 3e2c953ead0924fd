"""A full-text index of sections in memory: SQLite's FTS5, with stems of English words."""

from __future__ import annotations

import re
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
        import sqlite3

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


MOST_WORDS = 64
EMPTY_WORDS = frozenset(
    """
    a about an and any are as at be been but by can could did do does for from had has have he her him his how i if in
    into is it its me my no not of on or our she should so some than that the their them then there these they this to
    us was we were what when where which while who whom whose why will with would you your
    aber als am an auf aus bei bin bis das dass dem den der des die doch durch ein eine einem einen einer eines er es
    für hat ich ihr im in ist kann man mich mir mit nach nicht noch nur oder sich sie sind so über um und uns von war
    was
    wenn wer wie wird wo zu zum zur
    au aux avec ce ces cette comment dans de des du elle en est et il je la le les leur mais ou où par pas pour que qui
    quoi sa se ses son sont sur un une vous
    como con cual de del donde el ella en es esta este la las lo los más para pero por que se si sin su sus un una y
    """.split()  # noqa: SIM905
)
"""Words of English, German, French and Spanish are in so many chunks that they select nothing and cost time."""


def fts_query(question: str) -> str | None:
    """The FTS5 query for a question in plain words; None when it has no word at all."""
    words = list(dict.fromkeys(re.findall(r"\w+", question.lower())))[:MOST_WORDS]
    telling = [word for word in words if word not in EMPTY_WORDS] or words
    return " OR ".join(f'"{word}"' for word in telling) or None
