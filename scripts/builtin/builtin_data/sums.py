"""Sums, worked out digit by digit between think tags."""

from __future__ import annotations

from builtin_data.dialogue import THINK_END, THINK_START, Dialogue, as_json, ask
from builtin_data.manners import say
from builtin_data.phrases import phrases
from builtin_data.values import Values, held_out

QUESTIONS = phrases("sums", "questions")


def worked(a: int, b: int) -> str:
    """The digit-by-digit work, then the sentence."""
    steps, carry = [], 0
    for place in range(max(len(str(a)), len(str(b)))):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        steps.append(f"{x} + {y} + {carry} = {total}, carry {total // 10}.")
        carry = total // 10
    return f"{THINK_START}{a} + {b}: {' '.join(steps)} So {a + b}.{THINK_END}{a} + {b} = {a + b}."


def operands(values: Values) -> tuple[int, int]:
    while True:
        if values.split == "train" and values.chance(0.25):
            pair = [values.integer(0, 9), values.integer(0, 99)]
            values.rng.shuffle(pair)
            return pair[0], pair[1]
        kind = values.rng.random()
        if kind < 0.7 or values.split == "eval":
            a, b = values.integer(10, 99), values.integer(10, 99)
        elif kind < 0.85:
            a, b = values.integer(0, 99), values.integer(0, 99)
        else:
            a, b = values.integer(1, 999), values.integer(1, 999)
        if held_out(as_json([a, b])) == (values.split == "eval"):
            return a, b


def make(values: Values) -> Dialogue:
    a, b = operands(values)
    return ask("sums", say(values, values.pick(QUESTIONS), a=a, b=b), worked(a, b))
