"""Extraction by a schema: fields as the Extract models' card writes them, pieces of long documents, and their merge."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

JsonObject = dict[str, Any]


def fields_of_schema(schema: Mapping[str, Any], indent: str = "") -> str:
    """``- name: "Description"``, a line a field; nested objects below theirs."""
    lines = []
    for name, detail in schema.get("properties", {}).items():
        part = detail if isinstance(detail, dict) else {}
        items = part.get("items")
        inner = part if part.get("properties") else items if isinstance(items, dict) else {}
        if inner.get("properties"):
            lines += [f"{indent}- {name}:", fields_of_schema(inner, indent + "  ")]
        else:
            text = part.get("description") or name.replace("_", " ")
            lines.append(f"{indent}- {name}: {json.dumps(text, ensure_ascii=False)}")
    return "\n".join(lines)


def all_optional(schema: Mapping[str, Any]) -> JsonObject:
    """The same schema, in which missing data may stay out."""
    plain = {key: value for key, value in schema.items() if key != "required"}
    if isinstance(schema.get("properties"), dict):
        plain["properties"] = {
            name: all_optional(part) if isinstance(part, dict) else part for name, part in schema["properties"].items()
        }
        plain.setdefault("additionalProperties", False)
    if isinstance(schema.get("items"), dict):
        plain["items"] = all_optional(schema["items"])
    return plain


def merged(parts: list[JsonObject]) -> JsonObject:
    """One document of several pieces: lists are joined without repeats, objects are merged, otherwise the first piece
    that has a field counts."""
    whole: JsonObject = {}
    for part in parts:
        for name, value in part.items():
            before = whole.get(name)
            if before is None:
                whole[name] = value
            elif isinstance(before, list) and isinstance(value, list):
                whole[name] = before + [item for item in value if item not in before]
            elif isinstance(before, dict) and isinstance(value, dict):
                whole[name] = merged([before, value])
    return whole


def pieces_that_fit(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The text, cut in halves at a paragraph, line, sentence or space until every piece fits."""
    if fits(text) or len(text) < 2:
        return [text]
    middle = len(text) // 2
    for mark in ("\n\n", "\n", ". ", " "):
        place = text.rfind(mark, len(text) // 4, middle)
        if place > 0:
            middle = place + len(mark)
            break
    return [*pieces_that_fit(text[:middle], fits), *pieces_that_fit(text[middle:], fits)]
