"""Where in a JSON text its tokens have come to, and how long a number in it may become while it is generated.

A grammar of numbers has no end: a small model writes digits until its tokens are used up. Beyond these bounds digits
are left out as long as anything else may follow, so that a schema that asks for more gets it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MOST_DIGITS = 19
"""An integer, or the part before the point, has at most these digits: all 64-bit integers fit."""
MOST_CHARACTERS = 25
"""A number with sign, point and exponent has at most these: all doubles fit, as they are usually written."""
MOST_EXPONENT_DIGITS = 2
"""More could make a number that no double holds."""
LOOKED_AT = 10
"""Characters of a number from which on the tokens that may follow are looked at; few tokens have as many digits as are
missing then."""
STARTS, INSIDE = b"-0123456789", b"+-.0123456789eE"


class JsonPlace:
    """What is open at the end of a JSON text: a string, a number or neither."""

    def __init__(self) -> None:
        self.in_string = False
        self.number = b""
        self._escaped = False

    def feed(self, text: bytes) -> None:
        """Go on over the next bytes."""
        for byte in text:
            if self.in_string:
                if self._escaped:
                    self._escaped = False
                elif byte == 0x5C:
                    self._escaped = True
                elif byte == 0x22:
                    self.in_string = False
            elif byte == 0x22:
                self.in_string, self.number = True, b""
            elif byte in (INSIDE if self.number else STARTS):
                self.number += bytes((byte,))
            else:
                self.number = b""


class NumberLength:
    """The bounds for one schema: at least these, and what the numbers in the schema itself need."""

    def __init__(self, document: Any = None) -> None:
        lengths = [_lengths(text.encode()) for text in _numbers(document)]
        self._digits = max([MOST_DIGITS, *(digits for digits, _, _ in lengths)])
        self._exponent = max([MOST_EXPONENT_DIGITS, *(exponent for _, exponent, _ in lengths)])
        self._characters = max([MOST_CHARACTERS, self._digits + 1, *(whole for _, _, whole in lengths)])

    def is_passed(self, number: bytes, following: bytes) -> bool:
        """Whether a number would be too long when ``following`` comes after what there is of it."""
        run = len(following) - len(following.lstrip(INSIDE))
        if not run:
            return False
        whole = number + following[:run]
        digits, exponent, characters = _lengths(whole)
        ends_open = whole[-1:] in b"+-.eE"
        return digits > self._digits or exponent > self._exponent or characters + ends_open > self._characters


def _lengths(number: bytes) -> tuple[int, int, int]:
    """Digits before the point, digits of the exponent, and all characters."""
    mantissa, _, exponent = number.lower().partition(b"e")
    return len(mantissa.partition(b".")[0].lstrip(b"-")), len(exponent.lstrip(b"+-")), len(number)


def _numbers(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _numbers(part)
    elif isinstance(value, list):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield repr(value)
