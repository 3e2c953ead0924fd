"""Messages and their texts as the store keeps them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..messages import ChatMessage, ChatMessageRole

TITLE_CHARACTERS = 60


def title(history: Sequence[ChatMessage]) -> str:
    first = next((message.text for message in history if message.role is ChatMessageRole.USER), "")
    line = " ".join(storable(first[: 10 * TITLE_CHARACTERS]).split())
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"


def stored_value(message: ChatMessage) -> str:
    """A message as it is stored, in ASCII: a lone surrogate has no UTF-8."""
    return json.dumps(message.to_json(), separators=(",", ":"))


def storable(text: str) -> str:
    """Text that SQLite can hold and its full-text search can read."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
