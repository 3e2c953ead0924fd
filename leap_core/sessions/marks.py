"""What is kept of a message beside its text: why an answer ended, and how good its reader found it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RATINGS = ("good", "bad")


@dataclass(frozen=True)
class Mark:
    """``finish``: why an answer ended, a GenerationFinishReason's value; None for what no model answered here, and in
    sessions of older leaps. ``rating``: one of RATINGS, or None."""

    finish: str | None = None
    rating: str | None = None

    def to_json(self) -> dict[str, str]:
        """Its values that are there."""
        return {name: value for name, value in vars(self).items() if value is not None}


UNMARKED = Mark()


def carried(before: Sequence[tuple[str, Mark]], after: Sequence[str]) -> list[Mark | None]:
    """The marks of messages that take the place of others; None for those that are new. ``before``: each message as it
    is stored, with its mark; ``after``: the new ones. A message that stays, in its order, keeps its mark."""
    marks: list[Mark | None] = []
    place = 0
    for value in after:
        found = next((n for n in range(place, len(before)) if before[n][0] == value), None)
        marks.append(None if found is None else before[found][1])
        place = place if found is None else found + 1
    return marks
