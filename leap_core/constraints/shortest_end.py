"""The shortest way to the end of a text that follows a grammar, as far as a bounded search finds it.

At each place what closes something is tried first, then the smallest values, then the rest in several orders, because
a pattern may loop over some characters and end only after others.
"""

from __future__ import annotations

import random
import string
from copy import copy
from typing import TYPE_CHECKING

from .number_length import JsonPlace

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from numpy import int32, int64
    from numpy.typing import NDArray

    from ..schemas.grammar_matcher import ConstraintTokenizer

CLOSING = ("}", "]", '""', "{}", "[]", "null", "0", "true", "false")
"""What ends something, or is a small value."""
QUOTE = ('"',)
SEPARATORS = ("@", "://", ":", "/", "-", ".", " ", ",")
DIGITS, LETTERS = tuple("0123456789"), tuple("TZDaA" + string.ascii_letters)
ORDERS = ((*SEPARATORS, *DIGITS, *LETTERS), (*SEPARATORS, *LETTERS, *DIGITS), (*DIGITS, *LETTERS, *SEPARATORS))
BY_CHANCE = (*SEPARATORS, "0", "1", "9", "a", "A", *string.punctuation)
CHANCES = 8
"""Ways that are tried by chance where no order leads to an end."""


def shortest_end(
    matcher: LLMatcher, tokenizer: ConstraintTokenizer, most: int, place: JsonPlace | None = None
) -> list[int] | None:
    """At most ``most`` tokens after which the text is complete; None where no such way was found. ``place``: where in a
    JSON text it goes on."""
    for attempt in range(len(ORDERS) + CHANCES):
        texts = ORDERS[attempt] if attempt < len(ORDERS) else BY_CHANCE
        draw = random.Random(attempt) if attempt >= len(ORDERS) else None
        way = _Search(tokenizer, texts, draw).way(matcher.deep_copy(), most, copy(place) or JsonPlace())
        if way is not None:
            return way
    return None


class _Search:
    """One way to look for an end. ``texts``: what is tried where nothing closes, in this order or drawn."""

    def __init__(self, tokenizer: ConstraintTokenizer, texts: tuple[str, ...], draw: random.Random | None) -> None:
        import numpy as np

        self._tokenizer = tokenizer
        self._draw = draw
        self._bits = np.zeros((tokenizer.n_tokens + 31) // 32, dtype=np.int32)
        self._closing, self._quote, self._others = (
            np.array(tokenizer.single_tokens(each), dtype=np.int64) for each in (CLOSING, QUOTE, texts)
        )

    def way(self, matcher: LLMatcher, most: int, place: JsonPlace) -> list[int] | None:
        """The tokens to the end; None after ``most``."""
        way: list[int] = []
        while not matcher.is_accepting():
            following = list(matcher.compute_ff_tokens())
            if not following:
                token = self._choice(matcher, place)
                following = [] if token is None else [token]
            if not following or len(way) + len(following) > most:
                return None
            for token in following:
                if not matcher.consume_token(token):
                    return None
                way.append(token)
                place.feed(self._tokenizer.bytes_of(token))
        return way

    def _choice(self, matcher: LLMatcher, place: JsonPlace) -> int | None:
        import numpy as np

        matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        for tokens in (self._quote,) if place.in_string else (self._closing, self._quote):
            ends = tokens[_allowed(self._bits, tokens)]
            if len(ends):
                return int(ends[0])
        more = self._others[_allowed(self._bits, self._others)]
        if not len(more):
            more = np.flatnonzero(np.unpackbits(self._bits.view(np.uint8), bitorder="little"))
        if not len(more):
            return None
        return int(more[0] if self._draw is None else self._draw.choice(more.tolist()))


def _allowed(bits: NDArray[int32], tokens: NDArray[int64]) -> NDArray[int64]:
    import numpy as np

    places: NDArray[int64] = np.flatnonzero(bits[tokens >> 5] >> (tokens & 31).astype(np.int32) & 1)
    return places
