"""An answer with a shape that comes to its end before its tokens are used up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .contract import TokenConstraint
from .token_constraints import AfterReasoning, GrammarConstraint, keep_only

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

RESERVE = 16
"""Tokens beyond the shortest end, and the longest one so far, from which on nothing new is begun that the shape can do
without; a string or a number that is open goes on."""
LAST = 2
"""Tokens beyond the shortest end at which also what is open ends."""


class FinishingConstraint:
    """A constraint that takes the shortest way to its end when ``room`` tokens are nearly used up.

    ``grammar`` is the part of ``constraint`` that has the shape. An answer whose end is further away than its room is
    not helped: it is cut as it would be.
    """

    def __init__(self, constraint: TokenConstraint, grammar: GrammarConstraint, room: int) -> None:
        self._constraint = constraint
        self._grammar = grammar
        self.room = room
        self._left = room
        self._longest = 0
        self._look_at = room
        self._next: int | None = None
        self._ended = False
        self.cut = False
        """Whether the end was taken because of the room, and not by the model."""

    def apply(self, logits: NDArray[float32]) -> None:
        self._look()
        if self._next is None:
            return self._constraint.apply(logits)
        self._constraint.apply(logits)
        likeliest = int(logits.argmax())
        if not self._is_near(likeliest, self._next):
            self.cut, likeliest = True, self._next
            logits[likeliest] = 0.0
        return keep_only(logits, [likeliest])

    def _is_near(self, token: int, end: int) -> bool:
        """Whether what the model would have leads to the end as well as the shortest way does, of which ``end`` is
        next."""
        if self._grammar.is_closing(end):
            return self._grammar.ends_like(token, end)
        return token == end or self._grammar.shortest_end(self._left - 1, after=token) is not None

    def forced_tokens(self) -> list[int]:
        return self._constraint.forced_tokens()

    def accept(self, token: int) -> None:
        self._left -= 1
        self._next = None
        self._constraint.accept(token)
        if self._grammar.begins_container(token):
            self._look_at = self._left  # the end is further away now
        self._look()

    @property
    def finished(self) -> bool:
        return self._ended or self._constraint.finished

    def _look(self) -> None:
        """Decide whether the next token is one of the shortest end."""
        if self._next is not None or self._left > self._look_at or self.finished:
            return
        thinking = self._constraint.end_of_thinking if isinstance(self._constraint, AfterReasoning) else []
        end = self._grammar.shortest_end(self._left)
        if end is None:
            self._look_at = self._left - RESERVE
            return
        way = [*thinking, *end]
        self._longest = max(self._longest, len(way))
        begins = len(way) + self._longest + RESERVE
        place = self._grammar.place
        goes_on = bool(thinking) or place is None or place.in_string or bool(place.number)
        self._look_at = self._left - max(1, (self._left - begins) // 2)
        if self._left <= len(way) + LAST or (self._left <= begins and not goes_on):
            self._next = way[0] if way else None
            self._ended = not way
            self.cut = self.cut or self._ended
