"""Lengths of time as people write them: ``90s``, ``10m``, ``1h30m``, ``2d``, ``6w``."""

from __future__ import annotations

import re
import time
from datetime import datetime

import click

UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")
LONGEST = 10 * 365 * 86_400.0


def seconds_of(text: str) -> float:
    """The length in seconds, at most ten years. Raises ValueError for what is no length of time, and for a number
    without a unit, other than 0: ``30`` may mean seconds or days."""
    compact = text.strip().lower().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        if float(compact) == 0:
            return 0.0
        raise ValueError(f"{compact} has no unit: write {compact}s, {compact}m, {compact}h or {compact}d")
    parts = PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a length of time such as 90s, 10m or 1h30m")
    return min(sum(float(number) * UNITS[unit] for number, unit in parts), LONGEST)


def in_words(seconds: float) -> str:
    """``9m 58s``: the two largest units, from days down."""
    left = round(seconds)
    words: list[str] = []
    for unit in "dhms":
        count, left = divmod(left, int(UNITS[unit]))
        if count or words or unit == "s":
            words.append(f"{count}{unit}")
    return words[0] if words[1:] and words[1].startswith("0") else " ".join(words[:2])


def age(seconds: float) -> str:
    """``3d``: whole units of the largest unit of which there are at least two."""
    for unit in ("w", "d", "h", "m"):
        if seconds >= 2 * UNITS[unit]:
            return f"{int(seconds // UNITS[unit])}{unit}"
    return f"{max(0, int(seconds))}s"


class Duration(click.ParamType[float]):
    """An option's value in seconds, ``shortest`` to ``longest``."""

    name = "time"

    def __init__(self, shortest: float = 0.0, longest: float = LONGEST) -> None:
        self._shortest, self._longest = shortest, longest

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            seconds = seconds_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._shortest <= seconds <= self._longest:
            self.fail(f"{value} is not from {in_words(self._shortest)} to {in_words(self._longest)}", param, ctx)
        return seconds


class Since(click.ParamType[float]):
    """An option's value in seconds since 1970: so long ago (``2h``, ``7d``), or a date (``2026-11-20``, with a time if
    wanted)."""

    name = "since"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return time.time() - seconds_of(str(value))
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(str(value)).timestamp()
        except (ValueError, OSError, OverflowError):
            self.fail(
                f"{value!r} is neither a length of time such as 2h or 7d nor a date such as 2026-11-20", param, ctx
            )
