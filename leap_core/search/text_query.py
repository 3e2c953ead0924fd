"""A question in words as a query of SQLite's FTS5: any of its words, the telling ones, each as a literal."""

from __future__ import annotations

import re

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
