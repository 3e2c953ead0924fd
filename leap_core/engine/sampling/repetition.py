"""Answers that go in circles: exactly the same tokens again and again, far beyond what anyone means to write."""

from __future__ import annotations

from collections.abc import Callable

LONGEST = 200
"""Tokens of the longest piece whose repetitions are looked for."""
CONTEXT = 6
"""Tokens that must come again for a repetition to begin."""
PROSE = (384, 6)
"""Tokens and times from which on a piece that is mostly words is a circle."""
DATA = (1536, 12)
"""The same for anything else: numbers, markup, rulers, empty cells."""
SHAPED = (4096, 24)
"""The same for an answer that has a shape to fill."""


class RepetitionWatch:
    """Follows one answer. ``piece`` gives the bytes of a token. Each token costs a look at one place before it and one
    in a table of the last places of ``CONTEXT`` tokens."""

    def __init__(self, piece: Callable[[int], bytes], *, shaped: bool = False) -> None:
        self._piece = piece
        self._shaped = shaped
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._again = 0
        self._next_look = 0
        self.period = 0
        """Tokens of the piece that is repeated now; 0 for none."""

    def goes_in_circles(self, token: int) -> bool:
        """Take the next token of the answer; whether it should end here."""
        tokens = self._tokens
        tokens.append(token)
        here = len(tokens)
        key = tuple(tokens[-CONTEXT:])
        before = self._places.get(key)
        self._places[key] = here
        if self.period and tokens[-1 - self.period] == token:
            self._again += 1
        elif before is not None and here - before <= LONGEST and here > CONTEXT:
            self.period, self._again = here - before, CONTEXT
            self._next_look = PROSE[0]
        else:
            self.period = 0
        return bool(self.period) and self._again + self.period >= self._next_look and self._is_circle()

    def _is_circle(self) -> bool:
        least, times = SHAPED if self._shaped else self._limits()
        self._next_look = max(least, times * self.period)
        return self._again + self.period >= self._next_look

    def _limits(self) -> tuple[int, int]:
        unit = self._tokens[-self.period :]
        words = sum(is_word(self._piece(token)) for token in unit)
        return PROSE if 2 * words > len(unit) else DATA


def is_word(piece: bytes) -> bool:
    """Whether a token is a word or the beginning of one: white space and then letters, two at least."""
    text = piece.decode("utf-8", "ignore")
    return text[:1].isspace() and len(text.strip()) > 1 and text.strip().isalpha()
