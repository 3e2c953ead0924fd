"""Capitals of a hundred countries."""

from __future__ import annotations

from builtin_data.dialogue import Dialogue, ask
from builtin_data.manners import say
from builtin_data.phrases import phrases
from builtin_data.phrasing import fill
from builtin_data.values import Values

CAPITALS: dict[str, str] = dict(entry.split(" = ") for entry in phrases("countries", "capitals"))
ALIASES = {
    "the United States": ["the United States", "the USA", "the US", "the United States of America", "America", "USA"],
    "the United Kingdom": ["the United Kingdom", "the UK", "Great Britain", "Britain", "England", "UK"],
    "the Czech Republic": ["the Czech Republic", "Czechia"],
    "the United Arab Emirates": ["the United Arab Emirates", "the UAE"],
}
FOLLOW_UPS = phrases("capitals", "follow_ups")
QUESTIONS = phrases("capitals", "questions")
REVERSE = phrases("capitals", "reverse")


def make(values: Values) -> Dialogue:
    return _about(values, QUESTIONS)


def follow_up(values: Values) -> Dialogue:
    """After one capital, another, in two words."""
    return _about(values, FOLLOW_UPS)


def _about(values: Values, questions: list[str]) -> Dialogue:
    country = values.pick(list(CAPITALS))
    city = CAPITALS[country]
    answer = f"The capital of {country} is {city}."
    if questions is QUESTIONS and values.chance(0.2):
        return ask("capitals", say(values, values.pick(REVERSE), x=city), answer)
    called = values.pick(ALIASES.get(country, [country]))
    if values.chance(0.25):
        called = called.lower()
    possessive = called + ("'" if called.endswith("s") and values.chance(0.5) else "'s")
    return ask("capitals", fill(say(values, values.pick(questions)), c=called, s=possessive), answer)
