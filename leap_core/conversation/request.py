"""What is asked of a model, in one shape: of protocols, of lines of a batch, of jobs, of entries of the log, and of
endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..errors import LeapSerializationError
from ..schemas.json_values import JsonObject, kind_of, list_at, object_at
from ..system.dataclass import dataclass
from .messages import ChatMessage, ChatMessageRole, LeapFunctionCall, messages_from_json
from .options import CONSTRAINTS, GENERATION, GenerationOptions

if TYPE_CHECKING:
    from .calls import LeapFunction
    from .generator import Generation, Generator

VERSION = 1
"""Of the JSON of a request."""


@dataclass(frozen=True)
class Request:
    """``messages`` to answer, ``functions`` that the answer may call, and ``options``."""

    messages: Sequence[ChatMessage] = ()
    functions: Sequence[LeapFunction] = field(default_factory=list)
    options: GenerationOptions = field(default_factory=GenerationOptions)

    def to_json(self) -> JsonObject:
        """OpenAI's messages and tools, and the options that differ from their defaults."""
        return {
            "version": VERSION,
            "messages": [message.to_json() for message in self.messages],
            "tools": [function.to_json() for function in self.functions],
            "options": self.options.to_json(),
        }

    @staticmethod
    def from_json(value: object) -> Request:
        """Read what ``to_json`` writes, also among other fields. Raises LeapSerializationError or LeapOptionsError."""
        from .calls import LeapFunction  # here, because every command that queues a job would pay for it

        given = object_at(value, "request")
        if (version := given.get("version", VERSION)) != VERSION:
            raise LeapSerializationError(f"{version!r} is not {VERSION}, which this leap reads", path="version")
        return Request(
            messages_from_json(given.get("messages")),
            [LeapFunction.from_json(tool) for tool in list_at(given.get("tools", []), "tools")],
            GenerationOptions.from_json(given.get("options", {})),
        )

    @staticmethod
    def schema() -> JsonObject:
        """The JSON schema (draft 2020-12) of what ``to_json`` writes: that of each option is its row's, those of
        messages and tools are read off examples of each kind."""
        others = {name: {other: {"type": "null"} for other in CONSTRAINTS if other != name} for name in CONSTRAINTS}
        options = {
            "type": "object",
            "properties": {name: row.schema() for name, row in GENERATION.items()},
            "dependentSchemas": {name: {"properties": rest} for name, rest in others.items()},
            "additionalProperties": False,
        }
        lists = {"messages": _shape(_messages(), ""), "tools": _shape(_tools(), "")}
        properties = {name: {"type": "array", "items": shape} for name, shape in lists.items()}
        return {
            "type": "object",
            "properties": {"version": {"const": VERSION}, **properties, "options": options},
            "required": ["messages"],
        }

    def start(self, runner: Generator) -> Generation:
        """Start generating the answer. Raises what ``Generator.start`` raises."""
        return runner.start(self.messages, self.functions, self.options)


def _messages() -> list[JsonObject]:
    """A message of each kind, with parts of each kind."""
    from .messages import Audio, AudioPcmF32, Image, PagePicture, Speech, Text

    sound = Audio.from_float_samples([0.0], 16000).data
    jpeg = b"\xff\xd8\xff"
    parts = [Text(""), Image(jpeg), PagePicture(jpeg)]
    parts += [Audio(sound), Speech(sound, (0, (0,))), AudioPcmF32((0.0,), 16000)]
    calls = [LeapFunctionCall("f")]
    return [
        *(ChatMessage(role, content).to_json() for role in ChatMessageRole for content in ("", parts)),
        ChatMessage("assistant", (), "", calls).to_json(),
        ChatMessage("tool", "", tool_call_id="").to_json(),
    ]


def _tools() -> list[JsonObject]:
    """Functions with all that leap adds to a declaration, and without it."""
    from .calls import LeapFunction

    return [
        LeapFunction("f", "", (), {}, deferred=more, grammar="" if more else None).to_json() for more in (False, True)
    ]


WORDS = ("type", "role", "format", "syntax")
"""Fields whose texts are the words that they may be; others may be any text."""


def _shape(values: Iterable[Any], name: str) -> JsonObject:
    """The schema of ``values``, which a field of this ``name`` has: objects with a ``type`` are told apart by it."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        kind = str(value.get("type", "")) if isinstance(value, dict) else ""
        groups.setdefault(f"{kind_of(value)} {kind}", []).append(value)
    shapes = [_shape_of_kind(group, name) for group in groups.values()]
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _shape_of_kind(values: list[Any], name: str) -> JsonObject:
    first = values[0]
    if isinstance(first, dict):
        fields: dict[str, list[Any]] = {}
        for value in values:
            for key, item in value.items():
                fields.setdefault(key, []).append(item)
        properties = {key: _shape(items, key) for key, items in fields.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": [key for key, items in fields.items() if len(items) == len(values)],
        }
    if isinstance(first, list):
        items = [item for value in values for item in value]
        return {"type": "array", "items": _shape(items, "") if items else {}}
    if name in WORDS:
        return {"enum": list(dict.fromkeys(values))}
    return {"type": {str: "string", bool: "boolean", type(None): "null"}.get(type(first), "number")}
