"""Numbers as models write them: decimal, hexadecimal, octal, binary, with underscores, signs and exponents."""

from __future__ import annotations

import math
import re

RUN = re.compile(r"[+-]?\s*[\w.]+(?:(?<=\d[eE])[+-]\w*|(?<=\.[eE])[+-]\w*)?")
"""All characters that could belong to a number; whether they are one is asked afterwards, so that no text is read over
and over."""
DIGITS = re.compile(r"(?:\d+(?:_+\d+)*_*)?(?:\.(?:\d+(?:_+\d+)*_*)?)?(?:[eE][+-]?\d+(?:_+\d+)*_*)?")
WITH_BASE = re.compile(r"0(?:[xX]_*[0-9a-fA-F]|[oO]_*[0-7]|[bB]_*[01])\w*")
MOST_DIGITS = 3000
"""Digits of a number, with which it stays below Python's limit when it is written in decimals."""


def read_number(text: str, position: int) -> tuple[int | float, int]:
    """The number at ``position``, and the position after it. Raises ValueError with the reason."""
    run = RUN.match(text, position)
    if run is None:
        raise ValueError("expected a number")
    if len(run[0]) > 2 * MOST_DIGITS:
        raise ValueError("the number is too long")
    return _value("".join(run[0].split())), run.end()


def _value(written: str) -> int | float:
    sign = -1 if written.startswith("-") else 1
    body = written.lstrip("+-")
    digits = body.replace("_", "").lower()
    if len(digits) > MOST_DIGITS:
        raise ValueError("the number is too long")
    if WITH_BASE.fullmatch(body):
        try:
            return sign * int(digits, 0)
        except ValueError:
            raise ValueError("expected a number") from None
    if not body[:1].isdigit() and not (body.startswith(".") and body[1:2].isdigit()) or not DIGITS.fullmatch(body):
        raise ValueError("expected a number")
    if digits.isdecimal():
        return sign * int(digits)
    value = sign * float(digits)
    if not math.isfinite(value):
        raise ValueError("the number is too large")
    return value
