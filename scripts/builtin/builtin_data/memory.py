"""Remembering what the user said about themselves, over turns."""

from __future__ import annotations

from collections.abc import Callable

from builtin_data import wordlists as lists
from builtin_data.dialogue import Dialogue, Turn
from builtin_data.manners import say
from builtin_data.phrases import phrases
from builtin_data.values import Values

NAMING = phrases("memory", "naming")
WHAT_NAME = phrases("memory", "what_name")
TELLING = phrases("memory", "telling")
WHAT = phrases("memory", "what")
COLOURS = phrases("memory", "colours")


def _fact(values: Values) -> tuple[str, str]:
    """A thing to remember other than the name."""
    colour = lambda: values.fresh(lambda: values.pick(COLOURS)) if values.chance(0.7) else values.invented()  # noqa: E731
    options: list[tuple[str, Callable[[], str]]] = [
        ("favourite colour", colour),
        ("favorite color", colour),
        ("favorite colour", colour),
        ("favourite color", colour),
        ("favourite number", lambda: str(values.integer(0, 999))),
        ("favorite number", lambda: str(values.integer(0, 999))),
        ("lucky number", lambda: str(values.integer(0, 999))),
        ("age", lambda: str(values.integer(5, 99))),
        ("city", values.place_name),
        ("hometown", values.place_name),
        ("favourite city", values.place_name),
        ("job", lambda: values.pick(lists.JOBS)),
        ("favorite food", values.word),
        ("favourite word", values.word),
        ("favorite animal", values.word),
        ("password", values.random_string),
        ("cat's name", values.first_name),
        ("dog's name", values.first_name),
        ("sister's name", values.first_name),
        ("order number", values.code),
        ("room number", lambda: str(values.integer(1, 999))),
        ("email", values.email),
        ("email address", values.email),
        ("favorite " + values.word(), values.word),
        (values.word(), values.word),
        ("secret word", values.word),
        ("project", values.code),
    ]
    key, draw = values.pick(options)
    return key, draw()


def told_name(values: Values, name: str) -> list[Turn]:
    return [Turn("user", say(values, values.pick(NAMING), v=name)), Turn("assistant", f"Nice to meet you, {name}.")]


def asked_name(values: Values, name: str | None) -> list[Turn]:
    answer = f"Your name is {name}." if name else "I do not know your name yet."
    return [Turn("user", say(values, values.pick(WHAT_NAME))), Turn("assistant", answer)]


def told(values: Values, key: str, value: str) -> list[Turn]:
    text = say(values, values.pick(TELLING), k=key, v=value)
    return [Turn("user", text), Turn("assistant", f"I will remember that your {key} is {value}.")]


def asked(values: Values, key: str, value: str | None) -> list[Turn]:
    answer = f"Your {key} is {value}." if value else f"I do not know your {key} yet."
    return [Turn("user", say(values, values.pick(WHAT), k=key)), Turn("assistant", answer)]


def make(values: Values, filler: Callable[[Values], list[Turn]]) -> Dialogue:
    """Facts told, other talk between them (`filler`), and questions; the last one is about the name or a fact."""
    turns: list[Turn] = []
    known: dict[str, str] = {}
    name: str | None = None

    def talk(most: int) -> None:
        for _ in range(values.integer(0, most)):
            turns.extend(filler(values))

    if values.chance(0.3):
        talk(1)
    if values.chance(0.85):
        name = values.name() if values.chance(0.5) else values.first_name()
        turns.extend(told_name(values, name))
        talk(2)
    if values.chance(0.12):
        turns.extend(asked_name(values, name))
    if values.chance(0.35):
        key, value = _fact(values)
        known[key] = value
        turns.extend(told(values, key, value))
        talk(1)
    if name and values.chance(0.08):
        name = values.first_name()
        turns.append(
            Turn("user", say(values, "[Actually|Sorry|No|Oh], my name is {v}[| now].".replace("[| now]", ""), v=name))
        )
        turns.append(Turn("assistant", f"Nice to meet you, {name}."))
        talk(1)
    if known and values.chance(0.6):
        key, value = values.pick(list(known.items()))
        turns.extend(asked(values, key, value))
    elif values.chance(0.12):
        key = _fact(values)[0]
        turns.extend(asked(values, key, known.get(key)))
    else:
        turns.extend(asked_name(values, name))
    return Dialogue("memory", turns)
