"""What is asked of a model, in one shape: of protocols, of lines of a batch, of jobs, and of entries of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ..errors import LeapSerializationError
from ..schemas.json_values import JsonObject, list_at, object_at
from ..system.dataclass import dataclass
from .messages import ChatMessage, messages_from_json
from .options import GenerationOptions

if TYPE_CHECKING:
    from .calls import LeapFunction
    from .generator import Generation, Generator

VERSION = 1
"""Of the JSON of a request."""


@dataclass(frozen=True)
class Request:
    """``messages`` to answer, ``functions`` that the answer may call, and ``options``."""

    messages: Sequence[ChatMessage] = ()
    functions: Sequence[LeapFunction] = ()
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

    def start(self, runner: Generator) -> Generation:
        """Start generating the answer. Raises what ``Generator.start`` raises."""
        return runner.start(self.messages, self.functions, self.options)
