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

SYSTEM = (
    "Extract the following from the image:\n\n{fields}\n\n"
    "Respond with only a JSON object. Do not include any text outside the JSON."
)
NAME = re.compile(r"vl.*extract", re.IGNORECASE)
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
    if isinstance(field.get("enum"), list):
        return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in field["enum"])
    kind = field.get("type")
    if kind == "object":
        return ""
    if kind == "array":
        return f"list of {_description(field.get('items')) or 'objects'}"
    return str(kind) if isinstance(kind, str) else "any value"


SENTENCE = "Respond only with JSON that matches this JSON schema:\n"
"""Leap's own words; the built-in model is trained on them."""


def inject_schema(messages: Sequence[ChatMessage], schema: str | dict[str, Any] | bool) -> list[ChatMessage]:
    """The messages with the schema (JSON text or value) appended to the system message, which is made if there is
    none. Raises LeapSchemaError for a text that is not JSON."""
    try:
        value = json.loads(schema) if isinstance(schema, str) else schema
    except (ValueError, RecursionError) as error:
        raise LeapSchemaError(f"the schema is not JSON: {error}") from None
    return append_to_system(messages, SENTENCE + json.dumps(value))


def append_to_system(messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    """The messages with a text appended to the system message, on a line of its own."""
    if not messages or messages[0].role is not ChatMessageRole.SYSTEM:
        return [ChatMessage(ChatMessageRole.SYSTEM, text), *messages]
    system = messages[0]
    joined = f"\n{text}" if system.text else text
    return [ChatMessage(ChatMessageRole.SYSTEM, [*system.content, Text(joined)]), *messages[1:]]
