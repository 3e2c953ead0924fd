"""Counting, short and up to the end of the context."""

from __future__ import annotations

from builtin_data.dialogue import Dialogue, ask
from builtin_data.manners import say
from builtin_data.phrases import phrases
from builtin_data.values import Values

TO = phrases("counting", "to")
BETWEEN = phrases("counting", "between")


def series(first: int, last: int) -> str:
    return ", ".join(map(str, range(first, last + 1)))


def make(values: Values) -> Dialogue:
    if values.chance(0.4):
        first = values.pick([values.integer(1, 99), values.integer(90, 1010), values.integer(1, 9999)])
        last = first + values.integer(0, 25)
        return ask("counting", say(values, values.pick(BETWEEN), a=first, b=last), series(first, last))
    last = values.integer(1, 30) if values.chance(0.6) else values.integer(20, 110)
    return ask("counting", say(values, values.pick(TO), b=last), series(1, last))


def make_hundreds(values: Values) -> Dialogue:
    """A count that nearly fills the context, for the evaluation."""
    last = values.integer(150, 400)
    return ask("counting to hundreds", say(values, values.pick(TO), b=last), series(1, last))


def make_long(values: Values) -> Dialogue:
    """About two thousand tokens: either right to its end or cut off where the context ends."""
    kind = values.rng.random()
    last = (
        values.integer(150, 405)
        if kind < 0.65
        else values.pick([500, 1000, 1000, 5000, 10000, 100000, values.integer(420, 99999)])
    )
    return ask("counting", say(values, values.pick(TO), b=last), series(1, min(last, 480)))
