"""Answers that go in circles, and drafts of what comes next looked up in what was said."""

from __future__ import annotations

from collections.abc import Callable, Collection

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
    in a table of the last places of ``CONTEXT`` tokens. ``least``: the answer has at least so many."""

    def __init__(self, piece: Callable[[int], bytes], *, shaped: bool = False, least: int = 0) -> None:
        self._piece = piece
        self._shaped = shaped
        self._least = least
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
        is_due = bool(self.period) and self._again + self.period >= self._next_look and here >= self._least
        return is_due and self._is_circle()

    @property
    def room(self) -> int:
        """After so many more tokens it ends the answer at the earliest."""
        return self._next_look - self._again - self.period if self.period else PROSE[0] - LONGEST - CONTEXT

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


LEAST_MATCH = 3
"""Tokens at the end of a sequence that must have come before, for what followed them to be a draft."""
LONG_MATCH = 8
SHORT_DRAFT, LONG_DRAFT = 3, 7
"""Tokens of a draft after a short and after a long match: llama.cpp multiplies matrices in tiles of four rows, so a
step of four or eight positions costs least for each."""
MOST_COMPARED = 16
PLACES_KEPT = 8
MOST_REJECTIONS = 2
"""Drafts that were all wrong, one after the other, after which only a match of CERTAIN tokens is drafted from."""
CERTAIN = 12


class PromptLookup:
    """The index of one sequence. ``drafted`` and ``accepted`` count tokens."""

    def __init__(self) -> None:
        self.drafted = self.accepted = 0
        self._rejections = 0
        self._indexed = LEAST_MATCH
        self._places: dict[tuple[int, ...], list[int]] = {}

    def draft(self, keys: list[int], most: int, never: Collection[int]) -> list[int]:
        """What may follow ``keys``, ``most`` tokens at most, and none of ``never``; often nothing."""
        self._index(keys)
        place, length = self._longest_match(keys)
        if length < (CERTAIN if self._rejections >= MOST_REJECTIONS else LEAST_MATCH):
            return []
        count = min(most, LONG_DRAFT if length >= LONG_MATCH else SHORT_DRAFT)
        tokens: list[int] = []
        for token in keys[place : place + max(0, count)]:
            if token < 0 or token in never:  # below 0: an embedding
                break
            tokens.append(token)
        return tokens

    def learn(self, drafted: int, accepted: int) -> None:
        """Take note of how a draft went."""
        self.drafted += drafted
        self.accepted += accepted
        self._rejections = 0 if accepted else self._rejections + 1

    def _index(self, keys: list[int]) -> None:
        for place in range(self._indexed, len(keys)):
            places = self._places.setdefault(tuple(keys[place - LEAST_MATCH : place]), [])
            places.append(place)
            del places[:-PLACES_KEPT]
        self._indexed = max(self._indexed, len(keys))

    def _longest_match(self, keys: list[int]) -> tuple[int, int]:
        """Where what follows the longest match begins, and the match's length; of equal ones the newest."""
        best, most = 0, 0
        for place in reversed(self._places.get(tuple(keys[-LEAST_MATCH:]), [])):
            length = LEAST_MATCH
            while length < min(MOST_COMPARED, place) and keys[place - length - 1] == keys[-length - 1]:
                length += 1
            if length > most:
                best, most = place, length
        return best, most
