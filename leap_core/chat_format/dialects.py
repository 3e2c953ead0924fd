"""Messages as the chat templates of different families want them: for one that refuses the usual shape.

A spelling takes messages as a template gets them, and gives None where it would change nothing.
"""

from __future__ import annotations

from ..json_fields import JsonObject
import json
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

Messages = list[JsonObject]


def _as_they_are(messages: Messages) -> Messages | None:
    return messages


def _arguments_as_text(messages: Messages) -> Messages | None:
    """As OpenAI's API has them, and DeepSeek's templates."""
    if not any("tool_calls" in message for message in messages):
        return None

    def spelled(call: JsonObject) -> JsonObject:
        function = call["function"]
        return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}

    return [
        {**message, "tool_calls": [spelled(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _short_ids(messages: Messages) -> Messages | None:
    """Nine letters and digits, as Mistral's templates demand."""
    if not any("tool_calls" in message for message in messages):
        return None
    return [_with_short_ids(message) for message in messages]


def _with_short_ids(message: JsonObject) -> JsonObject:
    changed = dict(message)
    if "tool_calls" in message:
        changed["tool_calls"] = [{**call, "id": _short(call["id"])} for call in message["tool_calls"]]
    if "tool_call_id" in message:
        changed["tool_call_id"] = _short(message["tool_call_id"])
    return changed


def _short(id: str) -> str:
    return id if re.fullmatch("[A-Za-z0-9]{9}", id) else blake2b(id.encode(), digest_size=5).hexdigest()[:9]


def _system_in_the_first_question(messages: Messages) -> Messages | None:
    """For models that know no system prompt, such as Gemma."""
    if [message["role"] for message in messages[:2]] != ["system", "user"]:
        return None
    system, user = messages[0]["content"], messages[1]["content"]
    joined = [*system, *user] if isinstance(user, list) else f"{system}\n\n{user}"
    return [{**messages[1], "content": joined}, *messages[2:]]


def _calls_with_empty_text(messages: Messages) -> Messages | None:
    """For templates that add to the content of every message, such as Ministral's."""
    if not any(message.get("content", "") is None for message in messages):
        return None
    return [{**message, "content": ""} if message.get("content", "") is None else message for message in messages]


SPELLINGS = (_as_they_are, _arguments_as_text, _short_ids, _calls_with_empty_text, _system_in_the_first_question)


def spellings_of(messages: Messages) -> Iterator[Messages]:
    """The messages, then what their other spellings change, then those with empty texts for none."""
    spelled = [each for spell in SPELLINGS if (each := spell(messages)) is not None]
    yield from spelled
    for each in spelled[1:]:
        filled = _calls_with_empty_text(each)
        if filled is not None:
            yield filled


def _tools_as_they_are(values: JsonObject) -> JsonObject | None:
    return values


def _no_tools_as_an_empty_list(values: JsonObject) -> JsonObject | None:
    """For templates that iterate ``tools`` without asking whether there are any: Hermes 2 and 3, Command-R+."""
    return {**values, "tools": []} if values.get("tools", ()) is None else None


TOOL_SPELLINGS = (_tools_as_they_are, _no_tools_as_an_empty_list)
"""As the spellings of messages, for the other values of a template."""
"""In the order of trying."""
