"""Options as leap declares them, lengths of time, and counts of bytes.

``option`` takes the place of ``click.option``; groups of options that commands share are in ``option_groups``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click

from .environment import Environment

OPTIONS = "Options"
"""The heading of options that have none of their own."""
OPTION_GROUPS = "option_groups"
"""The attribute of a command's function with its groups, each with the names of its parameters, in order."""
FEWEST = 14
"""Options from which on a command's help has headings."""


class LeapOption(click.Option):
    """An option of a command.

    ``heading``: where help shows it. ``wish``: from a variable or config.toml it is a general setting, which a command
    passes over where it cannot fulfil it. ``saved``: the text that a saved prompt keeps for one that was typed; None
    for an option that belongs to one call, or has a place of its own in a saved prompt. ``implies``: the parameter of
    another option whose rules this one shares: what excludes that one excludes this one, too. ``rare``: only
    --help-all shows it where a command has many options, as those of ``help.rare_options``.
    """

    def __init__(
        self,
        *args: Any,
        heading: str = "",
        wish: bool = False,
        saved: Callable[[str, Environment], str] | None = lambda text, _env: text,
        implies: str = "",
        rare: bool = False,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.heading, self.wish, self.saved, self.implies, self.rare = heading, wish, saved, implies, rare


option = partial(click.option, cls=LeapOption)
"""``click.option`` with what LeapOption adds: ``heading="Answer"``, ``wish=True``."""


def under_headings(options: Iterable[click.Option]) -> list[tuple[str, list[click.Option]]]:
    """The options under their headings, in the order of declaration; all under OPTIONS where they are few."""
    headings: dict[str, list[click.Option]] = {OPTIONS: []}
    shown = list(options)
    for each in shown:
        heading = each.heading if isinstance(each, LeapOption) and len(shown) >= FEWEST else ""
        headings.setdefault(heading or OPTIONS, []).append(each)
    return [(heading, members) for heading, members in headings.items() if members]


UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
PART = r"(\d+(?:\.\d+)?)(ms|[wdhms])"
LONGEST = 10 * 365 * 86_400.0


def seconds_of(text: str) -> float:
    """The length in seconds, at most ten years. Raises ValueError for what is no length of time, and for a number
    without a unit, other than 0: ``30`` may mean seconds or days."""
    compact = text.strip().lower().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        if float(compact) == 0:
            return 0.0
        raise ValueError(f"{compact} has no unit: write {compact}s, {compact}m, {compact}h or {compact}d")
    parts = re.findall(PART, compact)
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


class Moment(click.ParamType[float]):
    """An option's value in seconds since 1970, not in the past: after so long (``+90m``), the next time that clocks
    here show it (``22:00``), or a date with a time (``2026-12-01T06:00``; without a zone, this machine's)."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text, now = str(value).strip(), datetime.now().astimezone()
        try:
            if text.startswith("+"):
                return now.timestamp() + seconds_of(text[1:])
            if re.fullmatch(r"\d{1,2}:\d\d", text):
                hour, minute = map(int, text.split(":"))
                at = datetime.now().replace(hour=hour, minute=minute, second=0, microsecond=0)
                return (at if at.timestamp() > now.timestamp() else at + timedelta(days=1)).timestamp()
            moment = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError, OSError) as error:
            form = error if text.startswith("+") else f"{text!r} is not one of +90m, 22:00 and 2026-12-01T06:00"
            self.fail(str(form), param, ctx)
        if moment < now.timestamp():
            self.fail(f"{text} is in the past", param, ctx)
        return moment


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


SIZE_UNITS = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
BINARY_UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
_UNIT_OF = {name.lower(): count for name, count in {**SIZE_UNITS, **BINARY_UNITS}.items()}


def in_bytes(count: int) -> str:
    """``1.2 GB``: powers of 1000, as hubs count."""
    size, unit = float(count), "B"
    for unit in SIZE_UNITS:
        if size < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"


def bytes_of(text: str) -> int:
    """The bytes of ``500MB``, ``1.5 GB`` or ``8GiB``. Raises ValueError for what is no size, and for a number without a
    unit."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if parts is None or (parts[2] and parts[2] not in _UNIT_OF):
        raise ValueError(f"{text!r} is not a size such as 500MB, 8GB or 8GiB")
    if not parts[2]:
        raise ValueError(f"{parts[1]} has no unit: write {parts[1]}MB or {parts[1]}GB")
    return int(float(parts[1]) * _UNIT_OF[parts[2]])


class Size(click.ParamType[int]):
    """An option's value in bytes, at least one. ``bare``: the unit of a number without one, where an option once took
    such numbers."""

    name = "size"

    def __init__(self, bare: str = "") -> None:
        self._bare = bare

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        try:
            size = bytes_of(text + self._bare if re.fullmatch(r"\s*\d+\s*", text) else text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if size < 1:
            self.fail(f"{text} is less than one byte", param, ctx)
        return size
