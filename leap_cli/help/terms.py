"""The field's terms, each with the pages that explain it and the command: the synonyms of ``leap help WORDS``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Term(NamedTuple):
    """``words``: names of one thing, with commas between. ``pages``: where it is explained, the best first; those that
    are not there are passed over. ``command``: what to type. A line each in terms.txt."""

    words: str
    pages: str
    command: str


TERMS = tuple(
    Term(*line.split(" | ", 2)) for line in (Path(__file__).parent / "terms.txt").read_text("utf-8").splitlines()
)
