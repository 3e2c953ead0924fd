"""Drafts of what comes next, looked up in what the sequence already holds: an answer that returns its text with
small changes repeats most of it. Drafts are verified in one decode: they change how fast an answer comes, never what it
is."""

from __future__ import annotations

from collections.abc import Collection

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
