"""The prompt that LFM2.5-VL-…-Extract was trained on: the fields to extract from a picture, and nothing else.

Text and shape are those of Liquid's model cards: a system prompt that lists ``name: description`` lines (YAML), then
one picture without text. The model answers with a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ..errors import LeapSchemaError
from ..messages import ChatMessage, ChatMessageRole, Image

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
