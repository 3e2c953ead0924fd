"""Which process of a cluster has which lines: those of one that dies are handed out again, and a line that its
processes die of is found by being alone. Knows no cluster."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import TypeAlias

from ..batch.input.line_index import LineIndex

Line: TypeAlias = "tuple[int, LineIndex]"
"""A line's place in the batch, and the lines that it is of."""
MOST_TOGETHER = 2
"""A line that was lost so often, with others, is handed out alone from then on."""
MOST_LOSSES = 5
"""A line that was lost so often, the last times alone, is given up."""


class Hand(dict[int, Line]):
    """What one process has, by place. ``is_alone``: one line that others are kept away from."""

    is_alone = False


class HandingOut:
    """Gives out each line of ``work`` until it is answered. ``size``: lines that a process has at once."""

    def __init__(self, work: Iterator[Line], size: int) -> None:
        self._work, self._size = work, size
        self._again: deque[Line] = deque()
        self._alone: deque[Line] = deque()
        self._losses: Counter[int] = Counter()

    def fill(self, hand: Hand) -> list[Line]:
        """More lines for a process that has these; they are in its hand then. Those that are to be alone come when
        there are no others."""
        fresh: list[Line] = []
        while len(hand) < self._size and not hand.is_alone:
            line = self._again.popleft() if self._again else next(self._work, None)
            if line is None:
                break
            fresh.append(line)
            hand[line[0]] = line
        if not hand and self._alone:
            line = self._alone.popleft()
            hand[line[0]], hand.is_alone = line, True
            fresh.append(line)
        return fresh

    def answered(self, hand: Hand, place: int) -> bool:
        """Whether the process still has this line; it has it no longer."""
        if hand.pop(place, None) is None:
            return False
        hand.is_alone = False
        self._losses.pop(place, None)
        return True

    def lost(self, hand: Hand) -> list[Line]:
        """A process is lost, its lines come again; those alone that are given up."""
        given_up = []
        for place, line in hand.items():
            self._losses[place] += 1
            if hand.is_alone and self._losses[place] >= MOST_LOSSES:
                given_up.append(line)
            else:
                (self._alone if self._losses[place] >= MOST_TOGETHER else self._again).append(line)
        hand.clear()
        hand.is_alone = False
        return given_up
