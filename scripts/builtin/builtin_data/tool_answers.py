"""The sentence that follows a tool's result, by one rule for any keys."""

from __future__ import annotations

import json
from typing import Any

from builtin_data import wordlists as lists
from builtin_data.phrases import phrases
from builtin_data.values import Values

KEYS = phrases("tool_answers", "keys")
ERRORS = phrases("tool_answers", "errors")
STATES = phrases("tool_answers", "states")


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _spoken(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return _listed([_spoken(part) for part in value]) if value else "empty"
    return str(value)


def sentence(result: Any) -> str:
    """What the model says about one result, given as the decoded JSON or as plain text."""
    if not isinstance(result, dict):
        text = _spoken(result)
        if text.lower().startswith("error: "):
            return f"The call failed: {text[7:].rstrip('.')}."
        return f"The result is {text.rstrip('.')}."
    if "error" in result:
        return f"The call failed: {str(result['error']).rstrip('.')}."
    return (
        "T" + _listed([f"the {key.replace('_', ' ')} is {_spoken(value)}" for key, value in result.items()])[1:] + "."
    )


def _key(values: Values) -> str:
    kind = values.rng.random()
    if kind < 0.55:
        return values.pick(KEYS)
    word = values.fresh(lambda: values.pick(lists.WORDS)) if values.chance(0.8) else values.invented()
    if kind < 0.85:
        return word
    return word + "_" + values.word() if kind < 0.95 else word + values.invented().capitalize()


def _scalar(values: Values) -> Any:
    kind = values.rng.random()
    if kind < 0.45:
        return values.number()
    if kind < 0.9:
        draw = values.pick(
            [
                values.word,
                values.phrase,
                values.name,
                values.place_name,
                values.date,
                values.clock,
                values.code,
                values.random_string,
                lambda: values.pick(STATES),
                lambda: values.pick(["C", "F", "km", "EUR", "USD", "kg", "m/s", "%"]),
            ]
        )
        return draw()
    if kind < 0.97:
        return values.chance(0.5)
    return None


def _error(values: Values) -> str:
    return values.pick(ERRORS) if values.chance(0.5) else values.phrase(1, 4)


def outcome(values: Values) -> tuple[str, str]:
    """One tool message and the sentence about it."""
    kind = values.rng.random()
    result: Any
    if kind < 0.12:
        result = {"error": _error(values)}
    elif kind < 0.22:
        result = {"result": _scalar(values)}
    elif kind < 0.3:
        result = values.number()
    elif kind < 0.42:
        text = values.pick(
            [
                values.phrase(1, 5),
                values.word(),
                f"Error: {_error(values)}",
                values.name(),
                f"{values.number()} {values.word()}",
            ]
        )
        if text[0] not in "-0123456789" and values.chance(0.15):
            text += "."
        return (json.dumps(text, ensure_ascii=False) if values.chance(0.15) else text), sentence(text)
    elif kind < 0.47:
        result = {_key(values): [_scalar(values) for _ in range(values.integer(2, 4))]}
    else:
        result = {_key(values): _scalar(values) for _ in range(values.pick([1, 1, 2, 2, 2, 3, 3, 4]))}
    return json.dumps(result, ensure_ascii=False), sentence(result)
