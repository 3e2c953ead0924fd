"""Extraction of a person, an order or an event as JSON, without a schema or by one."""

from __future__ import annotations

import copy
from typing import Any

from builtin_data.dialogue import Dialogue, as_json, ask, with_schema
from builtin_data.manners import roughen
from builtin_data.phrases import phrases
from builtin_data.phrasing import expand, fill
from builtin_data.records import MAKERS, ORDER, Facts
from builtin_data.schemas import NUMERIC, Style, key_for, object_schema, property_schema, style
from builtin_data.systems import system_prompt
from builtin_data.values import Values

NAMED = phrases("extraction", "named")
NEUTRAL = phrases("extraction", "neutral")
EXTRACTORS = phrases("extraction", "extractors")


def _asked(values: Values, wordings: list[str], kind: str, text: str) -> str:
    template = expand(values.rng, values.pick(wordings))
    if template != "{t}" and "\n" not in template:
        template = roughen(values, template)
    return fill(template, k=kind, t=text)


def _without_schema(values: Values, kind: str) -> Dialogue:
    facts, text = MAKERS[kind](values)
    answer = {key: facts[key] for key in ORDER[kind] if key in facts}
    wordings, system = NAMED, system_prompt(values)
    if values.chance(0.15):
        wordings, system = (
            NEUTRAL,
            values.pick(["You extract data as JSON.", f"Extract the {kind} as JSON.", f"You turn {kind}s into JSON."]),
        )
    return ask("extraction", _asked(values, wordings, kind, text), as_json(answer), system=system)


def _pick_fields(
    values: Values, facts: Facts, kind: str, look: Style
) -> tuple[dict[str, Any], dict[str, Any], list[str], dict[str, str]]:
    """Properties, a rule for each (attribute, type), the required keys, and key -> attribute."""
    attributes = list(facts)
    if values.chance(0.35) and len(attributes) > 1:
        attributes = values.rng.sample(attributes, values.integer(1, len(attributes)))
    absent = [attribute for attribute in ORDER[kind] if attribute not in facts]
    if absent and values.chance(0.3):
        attributes.append(values.pick(absent))
    if values.chance(0.4):
        values.rng.shuffle(attributes)
    else:
        attributes.sort(key=ORDER[kind].index)
    properties: dict[str, Any] = {}
    types: dict[str, Any] = {}
    source: dict[str, str] = {}
    required = []
    plain = values.chance(0.5)
    for attribute in attributes:
        key = attribute if plain else key_for(values, kind, attribute)
        if key in properties:
            key = attribute if attribute not in properties else attribute + "_2"
        json_type = NUMERIC.get(attribute, "string")
        if json_type != "string" and values.chance(0.07):
            json_type = "string"
        elif json_type == "integer" and values.chance(0.1):
            json_type = "number"
        nullable = (attribute not in facts and values.chance(0.35)) or values.chance(0.03)
        properties[key] = property_schema(values, look, key, attribute, json_type, nullable)
        types[key] = (json_type, nullable)
        source[key] = attribute
        if attribute in facts or nullable:
            required.append(key)
    return properties, types, required, source


def _read(facts: Facts, types: dict[str, Any], source: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for key, (json_type, nullable) in types.items():
        if source[key] in facts:
            value = facts[source[key]]
            answer[key] = str(value) if json_type == "string" else value
        elif nullable:
            answer[key] = None
    return answer


def _with_schema(values: Values, kind: str, single: bool = True) -> Dialogue:
    facts, text = MAKERS[kind](values)
    look = style(values)
    while isinstance(facts.get("price"), float) and facts["price"] != round(facts["price"], 2):
        facts, text = MAKERS[kind](values)
    properties, types, required, source = _pick_fields(values, facts, kind, look)
    price = next((key for key, attribute in source.items() if attribute == "price" and types[key][0] == "string"), None)
    if price:
        types[price] = ("number", types[price][1])
        properties[price] = property_schema(values, look, price, "price", "number", types[price][1])
    schema = object_schema(values, look, properties, required, kind)
    answer: Any = _read(facts, types, source)
    if not single:
        schema, answer, text = _several(values, kind, schema, facts, types, source, text)
    system = system_prompt(values)
    if values.chance(0.35):
        system = fill(values.pick(EXTRACTORS), k=kind)
    wordings = NEUTRAL if values.chance(0.55) else NAMED
    turns = ask("extraction", _asked(values, wordings, kind, text), as_json(answer)).turns
    more = 0.1 if values.split == "eval" else 0.55  # one reading of the schema teaches several answers
    while single and values.chance(more) and len(turns) < 8:
        facts, text = MAKERS[kind](values)
        answer = _read(facts, types, source)
        if look.required and not answer.keys() >= set(required):
            continue  # nothing that this schema allows could be said of it
        turns += ask("extraction", _asked(values, wordings, kind, text), as_json(answer)).turns
    return Dialogue("extraction", turns, with_schema(system, schema))


def _several(
    values: Values,
    kind: str,
    item: dict[str, Any],
    facts: Facts,
    types: dict[str, Any],
    source: dict[str, str],
    text: str,
) -> tuple[dict[str, Any], Any, str]:
    """An array of such objects, bare or under one key."""
    found, texts = [_read(facts, types, source)], [text.rstrip()]
    for _ in range(values.integer(0, 2)):
        more, more_text = MAKERS[kind](values)
        for _ in range(50):
            if set(more) == set(facts):
                break
            more, more_text = MAKERS[kind](values)
        if set(more) == set(facts):
            found.append(_read(more, types, source))
            texts.append(more_text.rstrip())
    plural = values.pick(
        {"person": ["people", "persons", "items"], "order": ["orders", "items"], "event": ["events", "items"]}[kind]
    )
    joint = " " if all(part.endswith((".", "!")) for part in texts) else "\n"
    array = {"type": "array", "items": copy.deepcopy(item)}
    if values.chance(0.5):
        return array, found, joint.join(texts)
    return {"type": "object", "properties": {plural: array}, "required": [plural]}, {plural: found}, joint.join(texts)


def _strings(values: Values) -> Dialogue:
    """An array of strings under one key."""
    draw, keys, openings = values.pick(
        [
            (
                values.first_name,
                "names people guests attendees persons",
                "{l} came|I invited {l}|The team is {l}|{l}|Guests: {l}|{l} are here",
            ),
            (
                values.item,
                "items products shopping_list things",
                "Buy {l}|I need {l}|We bought {l}|{l}|Items: {l}|Please get {l}",
            ),
            (
                values.place_name,
                "cities places locations",
                "We visited {l}|{l}|I have been to {l}|From {l}|They live in {l}",
            ),
        ]
    )
    parts = [draw() for _ in range(values.integer(1, 4))]
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    text = fill(values.pick(openings.split("|")), l=listed) + values.pick([".", ".", ""])
    key = values.pick(keys.split())
    array = {"type": "array", "items": {"type": "string"}}
    schema: dict[str, Any] = {"type": "object", "properties": {key: array}, "required": [key]}
    answer: Any = {key: parts}
    if values.chance(0.2):
        schema, answer = array, parts
    return ask("extraction", text, as_json(answer), system=with_schema(system_prompt(values), schema))


def make_plain(values: Values) -> Dialogue:
    """Without a schema and without a system prompt of its own: it may stand anywhere in a conversation."""
    kind = values.pick(["person", "order", "event"])
    facts, text = MAKERS[kind](values)
    answer = {key: facts[key] for key in ORDER[kind] if key in facts}
    return ask("extraction", _asked(values, NAMED, kind, text), as_json(answer))


def make(values: Values) -> Dialogue:
    kind = values.pick(["person", "order", "event"])
    return _without_schema(values, kind) if values.chance(0.45) else _with_schema(values, kind)


def make_list(values: Values) -> Dialogue:
    """One to three records of one schema, or a list of names."""
    if values.chance(0.5):
        return _strings(values)
    return _with_schema(values, values.pick(["person", "order", "event"]), single=False)
