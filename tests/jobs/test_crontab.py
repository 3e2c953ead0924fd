"""Schedules of crontab's fields, held against every minute of a year."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from jobs.scheduling.schedules import Every
from leap_core.errors import LeapOptionsError

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
ZONES = ("Europe/Berlin", "Australia/Lord_Howe", "America/Scoresbysund")
"""Clocks that are set by an hour at night, by half an hour, and at midnight."""


class Year:
    """The minutes of 2027 in a zone: when each is, and what the clock shows, as columns. A clock that is set forward
    shows the minutes that it passes over at the moment that it is set to, and on; one that is set back shows none of
    its minutes twice."""

    def __init__(self, zone: str) -> None:
        begin, end = (int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()) // 60 for year in (2027, 2028))
        due, clock = list[int](), list[int]()
        for minute in range(begin - 1440, end + 1440, 30):  # clocks are set at full and half hours of UTC
            shown = minute + datetime.fromtimestamp(60 * minute, ZoneInfo(zone)).utcoffset() // timedelta(minutes=1)
            passed = range(clock[-1] + 1 if clock else shown, shown)
            due += [minute + n for n in range(len(passed))]
            clock += passed
            again = max(0, clock[-1] + 1 - shown) if clock else 0
            due += range(minute + again, minute + 30)
            clock += range(shown + again, shown + 30)
        self.due, shown = np.array(due), np.array(clock).astype("datetime64[m]")
        days, months = shown.astype("datetime64[D]"), shown.astype("datetime64[M]")
        self.minute, self.hour = np.array(clock) % 60, np.array(clock) // 60 % 24
        self.day, self.month = (days - months.astype("datetime64[D]")).astype(int) + 1, months.astype(int) % 12 + 1
        self.weekday = (days.astype(int) + 4) % 7

    def times(self, fields: list[Field]) -> np.ndarray:
        """The moments at which an expression is due, in order."""
        minute, hour, day, month, weekday = fields
        days, weekdays = among(self.day, day.values), among(self.weekday, {n % 7 for n in weekday.values})
        either = day.text[0] != "*" and weekday.text[0] != "*"
        fits = among(self.minute, minute.values) & among(self.hour, hour.values) & among(self.month, month.values)
        fits &= days | weekdays if either else days & weekdays
        return 60.0 * np.sort(self.due[fits])


def among(column: np.ndarray, values: set[int]) -> np.ndarray:
    table = np.zeros(60, bool)
    table[list(values)] = True
    return table[column]


class Field:
    """A field of an expression at random, and what it means."""

    def __init__(self, rng: random.Random, first: int, last: int, names: list[str] | None = None) -> None:
        self.values: set[int] = set()
        parts = [self._part(rng, first, last, names) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        if rng.random() < 0.35:
            parts, self.values = ["*"], set(range(first, last + 1))
        self.text = ",".join(parts)

    def _part(self, rng: random.Random, first: int, last: int, names: list[str] | None) -> str:
        def spelled(value: int) -> str:
            name = names[(value - first) % len(names)] if names and rng.random() < 0.6 else str(value)
            return rng.choice([str.upper, str.lower, str.capitalize])(name)

        low, high = sorted(rng.randint(first, last) for _ in range(2))
        if last == 7:  # sun is 0 at the beginning of a range, and at its end 7
            low, high = min(low, 6), high if low else min(high, 6)
        step = rng.randint(1, 9)
        kind = rng.choice(["number", "number", "range", "range/step", "*/step"])
        if kind == "number":
            self.values.add(low)
            return spelled(low)
        if kind == "*/step":
            self.values.update(range(first, last + 1, step))
            return f"*/{step}"
        self.values.update(range(low, high + 1, step if "/" in kind else 1))
        return f"{spelled(low)}-{spelled(high)}" + (f"/{step}" if "/" in kind else "")


@pytest.mark.parametrize("zone", ZONES)
def test_a_year_of_random_expressions_against_each_of_its_minutes(zone):
    year, rng = Year(zone), random.Random(zone)
    begin, end = (datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() for year in (2027, 2028))
    compared = 0
    for _ in range(50):
        fields = [
            Field(rng, 0, 59),
            Field(rng, 0, 23),
            Field(rng, 1, 31),
            Field(rng, 1, 12, MONTHS),
            Field(rng, 0, 7, [*DAYS, "sun"]),
        ]
        text = " ".join(each.text for each in fields)
        times = year.times(fields)
        if not len(times):
            continue
        every = Every.of(f"{text} {zone}")
        for moment in [begin, *(rng.choice(times) - rng.randint(0, 3) for _ in range(8))]:
            after = times[times > moment]
            if len(after) and moment >= begin and after[0] < end:
                assert every.next_after(moment) == after[0], (text, moment)
                compared += 1
    assert compared > 200


def due(text: str) -> list[str]:
    """The first hundred times after the beginning of 2027 at which an expression is due."""
    every, moment, found = Every.of(text), datetime(2027, 1, 1, tzinfo=timezone.utc).timestamp() - 1, list[str]()
    for _ in range(100):
        moment = every.next_after(moment)
        found.append(datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%d %H:%M"))
    return found


def test_day_and_weekday_together_are_either_and_beside_a_star_both():
    either = [each for each in due("30 0 1 * 1 UTC") if each.startswith("2027")]
    assert len(either) == 52 + 12 - 3 and {"2027-01-01 00:30", "2027-01-04 00:30"} <= set(either)
    # a star with a step restricts nothing
    assert due("30 0 */100 * fri UTC")[:2] == ["2027-01-01 00:30", "2027-10-01 00:30"]
    assert due("30 0 1 * */5 UTC")[:2] == ["2027-01-01 00:30", "2027-08-01 00:30"]


@pytest.mark.parametrize(
    ("short", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "0 0 1 1 *"),
        ("0 9 * * FRI-SUN", "0 9 * * 5-7"),
        ("0 9 * * sun-tue,7", "0 9 * * 0-2"),
    ],
)
def test_short_forms_are_expanded(short, fields):
    assert due(f"{short} UTC") == due(f"{fields} UTC")


@pytest.mark.parametrize(
    "text",
    [
        *("@reboot", "@", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8"),
        *("5/15 * * * *", "*/0 * * * *", "5-1 * * * *", "-5 * * * *", "1- * * * *", ", * * * *", "1,,2 * * * *"),
        *("* * * mon *", "* * * * jan", "mon * * * *", "* * * * sat-mon", "** * * * *", "1-2-3 * * * *", "² * * * *"),
        *("9" * 400 + "d", "0 0 31 2 *", "0 0 30 feb *"),
    ],
)
def test_invalid_schedules_are_refused_in_one_line(text):
    with pytest.raises(LeapOptionsError) as refused:
        Every.of(text)
    assert "every" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["0s", "0m", "0d", "00h", "9999w"])
def test_an_interval_out_of_range_names_the_range(text):
    with pytest.raises(LeapOptionsError, match="is not from 1 second to 10 years"):
        Every.of(text)
