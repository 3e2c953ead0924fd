"""A conversation without the personal data that expressions find: the expressions and masks of ``leap redact``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..chat_format.chat_template import SEAMS, deeply
from ..messages import ChatMessage, LeapFunctionCall, Text
from ..tasks.masking import mask
from ..tasks.personal_patterns import found_by_pattern
from .rendering import UnfitError


def redacted(history: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages with one mask for each item, the same in all of them, calls' arguments included. Raises
    UnfitError."""
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    for message in history:
        _changed(message, collect)
    between = next((each for each in SEAMS if not any(each in text for text in texts)), None)
    if between is None:
        raise UnfitError("its texts contain all of Unicode's noncharacters U+FDD0 to U+FDD7")
    entities: dict[str, list[str]] = {}
    for text in texts:
        for category, items in found_by_pattern(text).items():
            entities.setdefault(category, []).extend(items)
    masked = iter(mask(between.join(texts), entities)[0].split(between))
    return [_changed(message, lambda _: next(masked)) for message in history]


def _changed(message: ChatMessage, change: Callable[[str], str]) -> ChatMessage:
    """The message with each of its texts changed, in an order that is always the same."""
    parts = [Text(change(part.text)) if isinstance(part, Text) else part for part in message.content]
    reasoning = message.reasoning_content
    calls = [
        LeapFunctionCall(call.name, deeply(dict(call.arguments), change), call.id)
        for call in message.function_calls or ()
    ]
    return ChatMessage(
        message.role, parts, None if reasoning is None else change(reasoning), calls, message.tool_call_id
    )
