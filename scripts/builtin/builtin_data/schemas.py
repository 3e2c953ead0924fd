"""JSON schemas for records: any subset and order of keys, synonyms, and the ways in which libraries write schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from builtin_data.values import Values

SYNONYMS: dict[str, dict[str, str]] = {
    "person": {
        "name": "name name name full_name person_name fullName person who contact_name",
        "age": "age age age years age_years age_in_years ageYears how_old",
        "city": "city city location town home place hometown residence lives_in city_name",
        "job": "job job occupation profession role work position job_title",
        "email": "email email mail email_address emailAddress contact",
    },
    "order": {
        "item": "item item product article goods item_name product_name productName thing",
        "quantity": "quantity quantity qty count number units pieces amount how_many",
        "price": "price price cost unit_price price_each amount_due unitPrice",
        "customer": "customer customer buyer client ordered_by customer_name name purchaser",
    },
    "event": {
        "title": "title title event name event_name eventName what event_title",
        "date": "date date day when event_date on",
        "time": "time time start start_time starts_at hour at",
        "place": "place place location venue where city location_name",
    },
}
DESCRIPTIONS = {
    "name": "The person's name|Full name|The name|Name of the person",
    "age": "Age in years|The person's age|How old the person is|The age",
    "city": "The city|Where the person lives|City of residence|Home town",
    "job": "The job|What the person does|Occupation|Profession",
    "email": "The email address|Email",
    "item": "The item|What was ordered|The product|Name of the product",
    "quantity": "How many|The quantity|Number of items|Quantity ordered",
    "price": "The price|Price of one|What it costs|Unit price",
    "customer": "Who ordered|The customer|Name of the customer|The buyer",
    "title": "The title|Name of the event|What happens|The event",
    "date": "The date|When it happens|Date of the event|The day",
    "time": "The time|When it starts|Start time",
    "place": "The place|Where it happens|The venue|Location",
}
NUMERIC = {"age": "integer", "quantity": "integer", "price": "number"}
Field = tuple[str, str, Any]


@dataclass
class Style:
    """How one library writes its schemas."""

    descriptions: bool
    titles: bool
    closed: bool
    description_first: bool
    required: bool


def style(values: Values) -> Style:
    return Style(values.chance(0.35), values.chance(0.15), values.chance(0.2), values.chance(0.4), values.chance(0.85))


def key_for(values: Values, kind: str, attribute: str) -> str:
    if values.chance(0.02):
        return values.invented()
    key = values.pick(SYNONYMS[kind][attribute].split())
    return key.capitalize() if values.chance(0.04) else key


def property_schema(
    values: Values, look: Style, key: str, attribute: str, kind: str, nullable: bool = False
) -> dict[str, Any]:
    known = any(key.lower() in names.split() for table in SYNONYMS.values() for names in table.values())
    described = look.descriptions or not known
    typed: dict[str, Any] = {"type": [kind, "null"] if nullable else kind}
    if nullable and values.chance(0.4):
        typed = {"anyOf": [{"type": kind}, {"type": "null"}]}
    if look.titles:
        typed = (
            {"title": key.replace("_", " ").title()} | typed
            if look.description_first
            else typed | {"title": key.title()}
        )
    if not described:
        return typed
    text = {"description": values.pick(DESCRIPTIONS[attribute].split("|")) + values.pick(["", "", "."])}
    return text | typed if look.description_first else typed | text


def object_schema(
    values: Values, look: Style, properties: dict[str, Any], required: list[str], title: str
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    if values.chance(0.2) or look.titles:
        schema["title"] = title.capitalize()
    if values.chance(0.12):
        schema["description"] = values.pick(
            [f"A {title}", f"One {title}.", f"The {title} in the text", f"Facts about the {title}"]
        )
    schema["properties"] = properties
    if look.required:
        schema["required"] = required
    if look.closed:
        schema["additionalProperties"] = False
    return schema
