"""Long texts: their pieces, and one document of what was extracted from several."""

from __future__ import annotations

from ..json_fields import JsonObject
import re
from collections.abc import Callable
from typing import Any

Fits = Callable[[str], bool]

MARKS = ("\n\n", "\n", ". ", "。", " ")
"""Where a text is cut, the best places first."""
ENDS = (re.compile(r"[\r\n]+"), re.compile(r"[.!?]\s+|[。！？]"))
"""Where a line ends, and a sentence."""
RULE = "\n----------\n"
"""What comes between the head of a transcript and what was said."""
LONGEST_HEAD = 4000


def pieces_that_fit(text: str, fits: Fits, most: int | None = None) -> list[str]:
    """The text, cut in halves at a paragraph, line, sentence or space until every piece fits. ``most``: characters
    that never fit, so that a long text is not measured to no purpose. A text is left whole where nothing would fit."""
    if fits_whole(text, fits, most) or not fits(""):
        return [text]
    return _halves(text, fits, most)


def fits_whole(text: str, fits: Fits, most: int | None) -> bool:
    """Whether a text fits, measured only where it may."""
    return (most is None or len(text) <= most) and fits(text)


def _halves(text: str, fits: Fits, most: int | None) -> list[str]:
    if len(text) < 2 or fits_whole(text, fits, most):
        return [text]
    middle = len(text) // 2
    for mark in MARKS:
        place = text.rfind(mark, len(text) // 4, middle)
        if place > 0:
            middle = place + len(mark)
            break
    return [*_halves(text[:middle], fits, most), *_halves(text[middle:], fits, most)]


def halves_between_sentences(text: str) -> tuple[str, str] | None:
    """The text cut between the two lines nearest to its middle, or else sentences; None where it has but one."""
    for end in ENDS:
        places = [match.end() for match in end.finditer(text)]
        places = [place for place in places if text[:place].strip() and text[place:].strip()]
        if places:
            place = min(places, key=lambda place: abs(2 * place - len(text)))
            return text[:place], text[place:]
    return None


def head_of(text: str) -> tuple[str, str]:
    """The head of a transcript with the rule that ends it, and the rest; without a rule the head is empty."""
    place = text.find(RULE, 0, LONGEST_HEAD)
    if place < 0:
        return "", text
    end = place + len(RULE)
    return text[:end] + "\n" * (text[end : end + 1] == "\n"), text[end:].removeprefix("\n")


def merged(parts: list[JsonObject]) -> JsonObject:
    """One document of several pieces: lists are joined without repeats, objects are merged, otherwise the first piece
    that has a field counts."""
    whole: JsonObject = {}
    for part in parts:
        for name, value in part.items():
            before = whole.get(name)
            if before is None:
                whole[name] = value
            elif isinstance(before, list) and isinstance(value, list):
                whole[name] = before + [item for item in value if item not in before]
            elif isinstance(before, dict) and isinstance(value, dict):
                whole[name] = merged([before, value])
    return whole
