"""Lengths of time as people write them: ``90s``, ``10m``, ``1h30m``, ``2d``; a plain number is in seconds."""

from __future__ import annotations

import re

import click

UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
LONGEST = 10 * 365 * 86_400.0


def seconds_of(text: str) -> float:
    """Raises ValueError for what is not a length of time."""
    compact = text.strip().lower().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return min(float(compact), LONGEST)
    parts = PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a length of time such as 90s, 10m or 1h30m")
    return min(sum(float(number) * UNITS[unit] for number, unit in parts), LONGEST)


def in_words(seconds: float) -> str:
    """``9m 58s``: the two largest units."""
    left = round(seconds)
    shown: list[str] = []
    for unit in "dhms":
        count, left = divmod(left, int(UNITS[unit]))
        if count or shown or unit == "s":
            shown.append(f"{count}{unit}")
    words = shown[:2]
    return words[0] if words[1:] and words[1].startswith("0") else " ".join(words)


class Duration(click.ParamType[float]):
    """An option's value in seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return seconds_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
