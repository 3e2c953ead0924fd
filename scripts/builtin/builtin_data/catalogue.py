"""Real-looking functions: names, descriptions, parameters, and how people ask for them.

A line is `names ; description ; parameters ; requests`, with alternatives between bars. A parameter is
`name/other name : draw : description`; a `?` after the draw makes it optional. Draws are named in `DRAWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from builtin_data import wordlists as lists
from builtin_data.functions import Function, Parameter, restyle
from builtin_data.phrases import phrases
from builtin_data.phrasing import alternatives
from builtin_data.values import Values

TABLE = phrases("catalogue", "table")


def _first_draw(line: str) -> str:
    fields = [part for part in line.split(" ; ")[2:] if " : " in part]
    return fields[0].split(" : ")[1].strip() if fields else ""


ALIKE = {
    draw: lines
    for draw in sorted(set(map(_first_draw, TABLE)))
    if len(lines := [line for line in TABLE if _first_draw(line) == draw]) >= 5
}
"""Functions that take the same first: many things can be asked about a place."""

SMALL_POOLS = {
    "currency": [
        "EUR",
        "USD",
        "GBP",
        "JPY",
        "CHF",
        "SEK",
        "NOK",
        "dollars",
        "euros",
        "pounds",
        "yen",
        "CAD",
        "AUD",
        "PLN",
    ],
    "room": [
        "kitchen",
        "bedroom",
        "bathroom",
        "hall",
        "garage",
        "office",
        "garden",
        "basement",
        "attic",
        "nursery",
        "living room",
        "dining room",
    ],
    "unit": [
        "miles",
        "kilometers",
        "meters",
        "feet",
        "inches",
        "kilograms",
        "pounds",
        "ounces",
        "liters",
        "gallons",
        "celsius",
        "fahrenheit",
        "grams",
    ],
    "command": [
        "ls -la",
        "pwd",
        "git status",
        "make test",
        "uname -a",
        "df -h",
        "whoami",
        "npm install",
        "python main.py",
        "ps aux",
        "date",
        "git log",
    ],
    "cuisine": [
        "Thai",
        "Italian",
        "Chinese",
        "Japanese",
        "Mexican",
        "Indian",
        "Greek",
        "Turkish",
        "French",
        "Korean",
        "Vietnamese",
        "sushi",
        "vegan",
        "pizza",
    ],
    "sign": [
        "Aries",
        "Taurus",
        "Gemini",
        "Cancer",
        "Leo",
        "Virgo",
        "Libra",
        "Scorpio",
        "Sagittarius",
        "Capricorn",
        "Aquarius",
        "Pisces",
    ],
    "country": [
        "France",
        "Japan",
        "Norway",
        "Kenya",
        "Peru",
        "Chile",
        "Italy",
        "Spain",
        "Egypt",
        "Cuba",
        "Poland",
        "India",
        "Canada",
        "Brazil",
        "Vietnam",
        "Ghana",
    ],
}
ENUMS = {
    "size": ["small", "medium", "large"],
    "priority": ["low", "medium", "high"],
    "celsius": ["celsius", "fahrenheit"],
}
TYPES = {
    "number": "number",
    "small": "integer",
    "big": "integer",
    "minutes": "integer",
    "percent": "integer",
    "id": "integer",
    "degrees": "number",
    "positive": "number",
    "switch": "boolean",
}


def drawer(values: Values, kind: str) -> Callable[[], Any]:
    def expression() -> str:
        text = f"{values.integer(1, 999)} {values.pick('+-*/')} {values.integer(1, 999)}"
        if values.chance(0.25):
            text = f"({text}) {values.pick('+-*/')} {values.integer(2, 99)}"
        return text.replace(" ", "") if values.chance(0.3) else text

    def topic() -> str:
        return values.pick(lists.TOPICS) if values.chance(0.25) else values.phrase(1, 3)

    def path() -> str:
        ending = values.pick(["txt", "csv", "py", "md", "json", "log"])
        return (
            values.pick(["", "", "/tmp/", "/etc/", "./", "docs/", "src/"])
            + values.word()
            + values.pick([f".{ending}", f".{ending}", ""])
        )

    def ticker() -> str:
        return values.fresh(
            lambda: "".join(values.pick("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(values.integer(1, 5)))
        )

    table: dict[str, Callable[[], Any]] = {
        "place": values.place_name,
        "number": values.number,
        "small": lambda: values.integer(1, 20),
        "big": lambda: values.integer(20, 5000),
        "expression": expression,
        "email": lambda: values.email() if values.chance(0.8) else values.first_name(),
        "topic": topic,
        "name": lambda: values.first_name() if values.chance(0.6) else values.name(),
        "text": lambda: values.phrase(1, 5),
        "minutes": lambda: values.integer(1, 120),
        "clock": values.clock,
        "language": lambda: values.pick(lists.LANGUAGES),
        "title": lambda: values.title() if values.chance(0.5) else values.phrase(1, 3),
        "positive": lambda: abs(values.number()) or 5,
        "date": values.date,
        "ticker": ticker,
        "path": path,
        "degrees": lambda: values.integer(10, 30) if values.chance(0.8) else values.integer(100, 300) / 10,
        "percent": lambda: values.integer(0, 100),
        "id": lambda: values.integer(1, 99999),
        "code": values.code,
        "item": values.item,
        "word": values.word,
        "switch": lambda: values.chance(0.5),
    }
    if kind in ENUMS:
        return lambda: values.pick(ENUMS[kind])
    return table[kind] if kind in table else lambda: values.pick(SMALL_POOLS[kind])


def _parameter(values: Values, text: str) -> Parameter:
    names, kind, description = (part.strip() for part in text.split(" : "))
    optional, kind = kind.endswith("?"), kind.rstrip("?")
    words = values.pick(names.split("/")).split()
    name = "_".join(words) if values.chance(0.75) else words[0] + "".join(word.capitalize() for word in words[1:])
    if values.chance(0.03):
        name = values.invented()
    json_type = TYPES.get(kind, "string")
    options = ENUMS.get(kind) if kind in ENUMS and values.chance(0.7) else None
    return Parameter(name, json_type, drawer(values, kind), values.pick(description.split("|")), not optional, options)


def real_function(values: Values, table: Sequence[str] = TABLE) -> Function:
    """A function from the catalogue, or from a part of it, under one of its names."""
    parts = [part.strip() for part in values.pick(table).split(" ; ")]
    names, descriptions = parts[0].split("|"), parts[1].split("|")
    fields = [part for part in parts[2:] if " : " in part]
    wordings = [part for part in parts[2:] if part and " : " not in part]
    chosen = values.pick(names)
    name = chosen if "." in chosen else restyle(values, chosen.split())
    made_up = values.chance(0.03)
    if made_up:
        name = values.invented()
    parameters = [_parameter(values, field) for field in fields]
    while len({p.name for p in parameters}) < len(parameters):
        parameters = [_parameter(values, field) for field in fields]
    description = (
        ""
        if values.chance(0.07) and not made_up and name.lower().startswith(chosen.split()[0].split(".")[0])
        else values.pick(descriptions)
    )
    requests = alternatives(wordings[0])
    longer = alternatives(wordings[1]) if len(wordings) > 1 else None
    words = {word for option in names for word in option.replace(".", " ").split()} | {parts[0]}
    return Function(name, description, parameters, requests, words, longer)
