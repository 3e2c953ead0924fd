"""What says in the prompt which shape the answer has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import LeapSchemaError
from ..messages import ChatMessage, ChatMessageRole, Text

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
