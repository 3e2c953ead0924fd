"""Records of any kind: invented attributes, stated plainly, and a schema that names them."""

from __future__ import annotations

from typing import Any

from builtin_data import wordlists as lists
from builtin_data.dialogue import Dialogue, as_json, ask, with_schema
from builtin_data.phrases import phrases
from builtin_data.schemas import object_schema, style
from builtin_data.systems import system_prompt
from builtin_data.values import Values

STRINGS = phrases("generic_records", "strings")
NUMBERS = phrases("generic_records", "numbers")
FLAGS = phrases("generic_records", "flags")


def _attribute(values: Values) -> tuple[str, str, Any]:
    """(key, JSON type, value)"""
    kind = values.rng.random()
    known = values.chance(0.65)
    if kind < 0.5:
        draw = values.pick(
            [
                values.word,
                values.place_name,
                values.name,
                values.code,
                lambda: values.pick(lists.ADJECTIVES),
                values.date,
                values.random_string,
            ]
        )
        return values.pick(STRINGS) if known else values.word(), "string", draw()
    if kind < 0.88:
        number = values.number()
        return (
            values.pick(NUMBERS) if known else values.word(),
            "integer" if isinstance(number, int) else "number",
            number,
        )
    return values.pick(FLAGS), "boolean", values.chance(0.5)


def make(values: Values) -> Dialogue:
    wanted: dict[str, tuple[str, Any]] = {}
    for _ in range(values.integer(1, 5)):
        key, json_type, value = _attribute(values)
        wanted[key + ("_" + values.word() if values.chance(0.08) and json_type != "boolean" else "")] = (
            json_type,
            value,
        )
    labelled = values.chance(0.45)
    parts = []
    for key, (json_type, value) in wanted.items():
        spoken = key.replace("_", " ")
        if json_type == "boolean":
            yes = values.pick(["yes", "true"] if value else ["no", "false"])
            parts.append(f"{spoken}: {yes}" if labelled else f"it is {'' if value else 'not '}{spoken}")
        else:
            parts.append(
                f"{spoken}: {value}"
                if labelled
                else values.pick([f"the {spoken} is {value}", f"the {spoken} is {value}", f"its {spoken} is {value}"])
            )
    text = (
        values.pick([", ", "; ", "\n"]).join(parts)
        if labelled
        else (", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]) + "."
    )
    if not labelled:
        text = text[0].upper() + text[1:]
    keys = list(wanted)
    if values.chance(0.35):
        values.rng.shuffle(keys)
    if values.chance(0.25):
        keys = keys[: values.integer(1, len(keys))]
    look = style(values)
    properties: dict[str, Any] = {}
    for key in keys:
        json_type, value = wanted[key]
        properties[key] = {"type": json_type}
        if look.descriptions and values.chance(0.5):
            properties[key]["description"] = f"The {key.replace('_', ' ')}"
        if json_type == "string" and values.chance(0.08):
            options = [str(value), values.word(), values.word()]
            values.rng.shuffle(options)
            properties[key]["enum"] = options
    schema = object_schema(values, look, properties, keys, values.pick(["record", "product", "book", "item", "device"]))
    answer = as_json({key: wanted[key][1] for key in keys})
    return ask("extraction", text, answer, system=with_schema(system_prompt(values), schema))
