"""The five fields of crontab(5), as Vixie cron reads them: minute, hour, day of the month, month, day of the week."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

NICKNAMES = {
    "@hourly": "0 * * * *",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
}
_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


@lru_cache
def read_crontab(text: str) -> tuple[Callable[[datetime], bool], tuple[int, ...]]:
    """Whether a day fits, and the minutes of each day that fits, counted from midnight. Where day of the month and day
    of the week are both restricted, either is enough; a field that begins with ``*`` is not restricted. Raises
    ValueError that names a field that is wrong."""
    minute, hour, day, month, weekday = text.lower().split()
    minutes = _values("minute", minute, 0, 59)
    hours = _values("hour", hour, 0, 23)
    days = _values("day", day, 1, 31)
    months = _values("month", month, 1, 12, MONTHS)
    weekdays = {value % 7 for value in _values("weekday", weekday, 0, 7, WEEKDAYS)}
    either = not day.startswith("*") and not weekday.startswith("*")

    def fits(moment: datetime) -> bool:
        in_month, in_week = moment.day in days, moment.isoweekday() % 7 in weekdays
        return moment.month in months and (in_month or in_week if either else in_month and in_week)

    return fits, tuple(60 * each + n for each in sorted(hours) for n in sorted(minutes))


def _values(field: str, text: str, first: int, last: int, names: dict[str, int] | None = None) -> set[int]:
    """The numbers of a field: a list of ``*``, numbers and ranges, the last two by name too, ranges with a step."""
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        low, dash, high = (str(first), "-", str(last)) if span == "*" else span.partition("-")
        begin, end = _number(low, names), _number(high if dash else low, names)
        if high == "sun" and end < begin:
            end = 7
        every = _number(step, None) if slash else 1
        if not first <= begin <= end <= last or every < 1 or (slash and not dash):
            rule = f"numbers are {first} to {last}, and a step follows * or a range"
            raise ValueError(f"{part!r} is not a valid {field}: {rule}")
        values.update(range(begin, end + 1, every))
    return values


def _number(text: str, names: dict[str, int] | None) -> int:
    """-1 for what is no number."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else -1
    return (names or {}).get(text, number)
