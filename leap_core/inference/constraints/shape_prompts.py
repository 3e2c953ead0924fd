"""What a prompt says of the shape that its answer has.

Text and shape are those of Liquid's model cards: a system prompt that lists ``name: description`` lines (YAML), then
one picture without text. The model answers with a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ...conversation.messages import ChatMessage, ChatMessageRole, Image, Text
from ...errors import LeapSchemaError
from ...schemas.json_values import JsonObject

SYSTEM = (
    "Extract the following from the image:\n\n{fields}\n\n"
    "Respond with only a JSON object. Do not include any text outside the JSON."
)
NAME = re.compile(r"\A(?:(?!vl).)*vl.*extract", re.IGNORECASE)
DEEPEST = 8


def extracts_from_pictures(model_name: str) -> bool:
    """Whether a model of this name was trained on the prompt."""
    return NAME.search(model_name) is not None


def ask_for_fields(messages: Sequence[ChatMessage], schema: str) -> list[ChatMessage] | None:
    """The messages with the schema as fields in the system prompt; None where they hold no picture, or the schema is
    no object with named properties. Raises LeapSchemaError for a text that is not JSON."""
    try:
        value = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise LeapSchemaError(f"the schema is not JSON: {error}") from None
    if not any(isinstance(part, Image) for message in messages for part in message.content):
        return None
    lines = field_lines(value)
    if not lines:
        return None
    system = SYSTEM.format(fields="\n".join(lines))
    own = [message for message in messages[:1] if message.role is ChatMessageRole.SYSTEM and message.text.strip()]
    if own:
        system = f"{own[0].text}\n\n{system}"
    rest = [message for message in messages if message.role is not ChatMessageRole.SYSTEM]
    return [ChatMessage(ChatMessageRole.SYSTEM, system), *rest]


def field_lines(schema: Any, depth: int = 0) -> list[str]:
    """A line for each property: ``name: what it is``; those of an object follow it, set in."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or depth > DEEPEST:
        return []
    lines = []
    for name, field in properties.items():
        inner = field_lines(field, depth + 1)
        description = _description(field)
        lines.append("  " * depth + (f"{name}: {description}" if description or not inner else f"{name}:"))
        lines += inner
    return lines


def _description(field: Any) -> str:
    """What a property is: its description, else its values or its type."""
    if not isinstance(field, dict):
        return "any value"
    text = field.get("description") or field.get("title")
    if isinstance(text, str) and text.strip():
        return " ".join(text.split())
    return _kind(field)


def _kind(field: Any) -> str:
    """The values of a property, or its type; empty for an object."""
    if not isinstance(field, dict):
        return "any value"
    if isinstance(field.get("enum"), list):
        return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in field["enum"])
    kind = field.get("type")
    if kind == "object":
        return ""
    if kind == "array":
        return f"list of {_description(field.get('items')) or 'objects'}"
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    either = field.get("anyOf") or field.get("oneOf")
    if isinstance(either, list):
        return " or ".join(dict.fromkeys(_kind(each) or "object" for each in either))
    return " ".join(filter(None, (kind, field.get("format")))) if isinstance(kind, str) else "any value"


def typed_shape(schema: JsonObject, nulls: bool = False) -> str:
    """An object in TypeScript's notation: ``{name: string, tags: [string], age?: integer}``, with descriptions as
    comments. ``nulls``: optional properties are null where they are absent. A definition is written where it is first
    referred to."""
    notation = _TypeScript(schema, nulls)
    part = notation.resolved(schema)
    return notation.written(part, 0) if isinstance(part.get("properties"), dict) else "{}"


class _TypeScript:
    """Writes the parts of one schema."""

    def __init__(self, schema: JsonObject, nulls: bool) -> None:
        self._schema, self._nulls = schema, nulls
        self._seen: set[str] = set()

    def resolved(self, field: Any) -> JsonObject:
        """A field, with the definition that it refers to."""
        target = field.get("$ref") if isinstance(field, dict) else None
        if not isinstance(target, str) or not target.startswith("#/"):
            return field if isinstance(field, dict) else {}
        found: Any = self._schema
        for part in target[2:].split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        found = found if isinstance(found, dict) and target not in self._seen else {"type": "object"}
        self._seen.add(target)
        return {**found, **{key: value for key, value in field.items() if key != "$ref"}}

    def written(self, part: JsonObject, depth: int) -> str:
        """An object with its properties."""
        parts = []
        for name, field in part["properties"].items():
            field = self.resolved(field)
            absent = name not in (part.get("required") or ())
            mark, values = "?" if absent and not self._nulls else "", self._kind(field, depth + 1)
            null = "|null" if absent and self._nulls and "null" not in values.split("|") else ""
            about = " ".join(str(field.get("description") or "").split())
            parts.append(f"{name}{mark}: {values}{null}" + (f" /* {about} */" if about else ""))
        return "{" + ", ".join(parts) + "}"

    def _kind(self, field: JsonObject, depth: int) -> str:
        if isinstance(field.get("enum"), list):
            return "|".join(json.dumps(value, ensure_ascii=False) for value in field["enum"])
        either = field.get("anyOf") or field.get("oneOf")
        if isinstance(either, list):
            return "|".join(dict.fromkeys(self._kind(self.resolved(each), depth) for each in either))
        types = field.get("type", "object" if field.get("properties") else "any")
        return "|".join(self._one(field, str(each), depth) for each in (types if isinstance(types, list) else [types]))

    def _one(self, field: JsonObject, name: str, depth: int) -> str:
        if name == "array" and depth <= DEEPEST:
            return f"[{self._kind(self.resolved(field.get('items')), depth + 1)}]"
        if name == "object" and isinstance(field.get("properties"), dict) and depth <= DEEPEST:
            return self.written(field, depth)
        return str(field.get("format") or name) if name == "string" else name


SENTENCE = "Respond only with JSON that matches this JSON schema:\n"
"""Leap's own words; the built-in model is trained on them."""


def inject_schema(messages: Sequence[ChatMessage], schema: str | dict[str, Any] | bool) -> list[ChatMessage]:
    """The messages with the schema (JSON text or value) appended to the system message, which is made if there is
    none; as they are where one has the schema already. Raises LeapSchemaError for a text that is not JSON."""
    try:
        value = json.loads(schema) if isinstance(schema, str) else schema
    except (ValueError, RecursionError) as error:
        raise LeapSchemaError(f"the schema is not JSON: {error}") from None
    written = json.dumps(value)
    if isinstance(value, dict) and any("".join(written.split()) in "".join(each.text.split()) for each in messages):
        return list(messages)
    return append_to_system(messages, SENTENCE + written)


def append_to_system(messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    """The messages with a text appended to the system message, on a line of its own."""
    if not messages or messages[0].role is not ChatMessageRole.SYSTEM:
        return [ChatMessage(ChatMessageRole.SYSTEM, text), *messages]
    system = messages[0]
    joined = f"\n{text}" if system.text else text
    return [ChatMessage(ChatMessageRole.SYSTEM, [*system.content, Text(joined)]), *messages[1:]]
