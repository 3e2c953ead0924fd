"""Function declarations: real-looking ones from a catalogue, and invented ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from builtin_data.values import Values


@dataclass
class Parameter:
    name: str
    type: str
    draw: Callable[[], Any]
    description: str = ""
    required: bool = True
    options: list[str] | None = None


@dataclass
class Function:
    """`requests` are phrasings with one slot for each parameter, `{0}`, `{1}`, …; `words` tells similar ones apart.

    An optional parameter's slot stands only in `longer`, the phrasings that give it too.
    """

    name: str
    description: str
    parameters: list[Parameter]
    requests: list[str]
    words: set[str]
    longer: list[str] | None = None


def schema(values: Values, parameter: Parameter, described: bool, description_first: bool) -> dict[str, Any]:
    typed: dict[str, Any] = {"type": parameter.type}
    if parameter.options:
        typed["enum"] = parameter.options
    if not (described and parameter.description):
        return typed
    text = {"description": parameter.description}
    return text | typed if description_first else typed | text


@dataclass
class Look:
    """How one program declares its functions."""

    wrapped: bool
    described: bool
    description_first: bool
    required: bool


def look(values: Values) -> Look:
    return Look(values.chance(0.85), values.chance(0.65), values.chance(0.5), values.chance(0.92))


def declare(values: Values, function: Function, style: Look) -> dict[str, Any]:
    """The declaration as it stands in the system prompt."""
    body: dict[str, Any] = {"name": function.name}
    if function.description or values.chance(0.5):
        body["description"] = function.description
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            p.name: schema(values, p, style.described, style.description_first) for p in function.parameters
        },
    }
    required = [p.name for p in function.parameters if p.required]
    if style.required and (required or values.chance(0.5)):
        parameters["required"] = required
    body["parameters"] = parameters
    return {"type": "function", "function": body} if style.wrapped else body


def written(value: Any) -> str:
    """An argument as it stands in a call."""
    if isinstance(value, bool):
        return "True" if value else "False"
    return f'"{value}"' if isinstance(value, str) else str(value)


def call(function: Function, arguments: dict[str, Any]) -> str:
    inside = ", ".join(f"{p.name}={written(arguments[p.name])}" for p in function.parameters if p.name in arguments)
    return f"{function.name}({inside})"


def restyle(values: Values, words: list[str]) -> str:
    """A function's name from its words: snake_case mostly, else camelCase, dotted, or run together."""
    kind = values.rng.random()
    if kind < 0.68:
        return "_".join(words)
    if kind < 0.86:
        return words[0] + "".join(word.capitalize() for word in words[1:])
    if kind < 0.93 and len(words) > 1:
        return words[0] + "." + "_".join(words[1:])
    return "".join(word.capitalize() for word in words)
