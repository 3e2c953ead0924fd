"""Checking a line without building its request, where another line has said the same beside its messages.

The lines of a batch differ in their messages and share the rest. So the parameters of a line (all but its name, system
prompt and messages) are read once; plain text messages need no reading to be sound.
"""

from __future__ import annotations

from json.encoder import encode_basestring as quoted
from typing import NamedTuple

from ...schemas.json_values import JsonObject, canonical
from .lines import (
    CHAT_URL,
    ENVELOPE,
    LineRequest,
    RequestReader,
    digest_of,
    identifier_of,
    names_among,
    only_known,
    parse_line,
)

MOST_PARAMETERS = 1024
"""Sets of parameters that are remembered."""
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
READ_HERE = {"custom_id", "id", "prompt", "messages", "system"}


class CheckedLine(NamedTuple):
    """The name of a line, its digest, the model that it names, and whether it asks for vectors."""

    custom_id: str
    digest: str
    model: str | None
    embeds: bool = False


class LineChecker:
    """Checks the lines that a reader reads."""

    def __init__(self, reader: RequestReader) -> None:
        self._reader = reader
        self._known: dict[str, tuple[str, str | None]] = {}
        self._system = None if reader.system is None else _message("system", reader.system)

    def check(self, raw: bytes, number: int) -> CheckedLine:
        """What there is to know of a line. Raises what ``RequestReader.read`` raises, and
        UnicodeEncodeError for half of a surrogate pair."""
        value = parse_line(raw)
        quick = self._quickly(value, number)
        if quick is not None:
            custom_id, messages, key = quick
            settings_json = self._known.get(key)
            if settings_json is not None:
                text = f'{{"custom_id":{quoted(custom_id)},"messages":{messages},{settings_json[0]}}}'
                return CheckedLine(custom_id, digest_of(text), settings_json[1])
        request = self._reader.read_value(value)
        embeds = not isinstance(request, LineRequest)
        if isinstance(request, LineRequest) and quick is not None and len(self._known) < MOST_PARAMETERS:
            self._known[quick[2]] = request.parameters, request.model
        custom_id = request.custom_id or f"line-{number}"
        return CheckedLine(custom_id, request.digest(custom_id), request.model, embeds)

    def name_of(self, raw: bytes, number: int) -> str:
        """The name of a sound line."""
        return self._reader.read(raw).custom_id or f"line-{number}"

    def _quickly(self, value: JsonObject, number: int) -> tuple[str, str, str] | None:
        """A line's name, the canonical JSON of its messages, and what its parameters are remembered by."""
        template = self._reader.template
        if self._reader.media_names(value):
            return None
        if template is not None:
            named = identifier_of(names_among(value)) or f"line-{number}"
            return named, self._messages_of_prompt(template.fill(value), None), ""
        fields = _chat_fields(value)
        if fields is None:
            return None
        custom_id = identifier_of(value) or f"line-{number}"
        system = fields.get("system")
        if not isinstance(system, (str, type(None))):
            return None
        prompt = fields.get("prompt")
        if "prompt" not in fields:
            messages = self._messages(fields.get("messages"), system)
        elif isinstance(prompt, str) and prompt.strip() and "messages" not in fields:
            messages = self._messages_of_prompt(prompt, system)
        else:
            return None
        if messages is None:
            return None
        rest = {name: item for name, item in fields.items() if name not in READ_HERE}
        if self._reader.keep_fields and fields is value:
            rest = only_known(rest)
        return custom_id, messages, canonical(rest) if rest else ""

    def _messages_of_prompt(self, prompt: str, system: str | None) -> str:
        first = self._system if system is None else _message("system", system)
        return f"[{first},{_message('user', prompt)}]" if first else f"[{_message('user', prompt)}]"

    def _messages(self, messages: object, system: str | None) -> str | None:
        """None for messages that are more than texts."""
        if not isinstance(messages, list) or not messages:
            return None
        texts = []
        for message in messages:
            if not isinstance(message, dict) or message.keys() != {"role", "content"}:
                return None
            role, content = message["role"], message["content"]
            if not isinstance(role, str) or role not in ROLES or not isinstance(content, str):
                return None
            texts.append(_message(ROLES[role], content))
        if ROLES[messages[0]["role"]] != "system":
            first = self._system if system is None else _message("system", system)
            texts = [first, *texts] if first else texts
        return f"[{','.join(texts)}]"


def _chat_fields(value: JsonObject) -> JsonObject | None:
    """The fields of a line of chat, also of one in OpenAI's envelope; None for another line."""
    if "body" not in value:
        return None if "task" in value else value
    fields = value["body"]
    is_chat = value.get("method", "POST") == "POST" and value.get("url", CHAT_URL) == CHAT_URL
    if not is_chat or not isinstance(fields, dict) or not value.keys() <= set(ENVELOPE):
        return None
    return fields if fields.keys().isdisjoint(("prompt", "system", "schema")) else None


def _message(role: str, text: str) -> str:
    return f'{{"content":{quoted(text)},"role":"{role}"}}'
