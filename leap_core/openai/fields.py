"""The fields of a JSON object, taken out one by one, so that those that no reader knows are left over."""

from __future__ import annotations

from ..json_fields import JsonObject
from collections.abc import Callable
from enum import Enum
from typing import Any

from ..errors import LeapSerializationError
from ..json_fields import kind_of, list_at, object_at



class Unknown(Enum):
    """What a field means that the reader does not know."""

    REFUSE = "refuse"
    """An error: in a batch of a thousand lines a misspelt option would spoil them all."""
    NOTE = "note"
    """A warning in the answer: clients of a server send fields of newer protocols."""


REFUSE, NOTE = Unknown.REFUSE, Unknown.NOTE

HARMLESS = {
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "function_call",
    "stream_options.include_obfuscation",
}
"""Fields that mean something to a hosted service only."""


class BodyFields:
    """The fields of one object. ``path`` is its place in the body."""

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, dict):
            expected = f"expected an object, not {kind_of(value)}" if path else "expected a JSON object"
            raise LeapSerializationError(expected, path=path or "body")
        self._rest = dict(value)
        self._path = path
        self._parts: list[BodyFields] = []

    def __contains__(self, name: str) -> bool:
        return name in self._rest

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self._path}.{name}" if self._path else name

    def take(self, name: str) -> Any:
        """The field's value, None where it is missing or null."""
        return self._rest.pop(name, None)

    def object(self, name: str) -> BodyFields:
        """The fields of an object; none where it is missing or null."""
        value = self.take(name)
        part = BodyFields({} if value is None else value, self.at(name))
        self._parts.append(part)
        return part

    def text(self, name: str) -> str | None:
        """A string. Raises LeapSerializationError for another value."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise LeapSerializationError(f"expected a string, not {kind_of(value)}", path=self.at(name))
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """true or false. Raises LeapSerializationError for another value."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise LeapSerializationError("expected true or false", path=self.at(name))
        return default if value is None else value

    def finish(self, unknown: Unknown) -> tuple[str, ...]:
        """A note for each field that is left, also in the objects of this one. Where they are refused, the first one
        raises LeapSerializationError."""
        names = [path for path in self._left() if path not in HARMLESS]
        if names and unknown is REFUSE:
            raise LeapSerializationError("there is no such field", path=names[0])
        return tuple(f"the field {name!r} is unknown and was ignored" for name in names)

    def _left(self) -> list[str]:
        own = [self.at(name) for name, value in self._rest.items() if value is not None]
        return own + [path for part in self._parts for path in part._left()]


def functions_among(
    tools: object, kind: str, read: Callable[[JsonObject], JsonObject], *, usual: str | None = None
) -> tuple[list[JsonObject], tuple[str, ...]]:
    """The tools of this ``kind`` as chat requests declare functions, by what ``read`` makes of each, and a note on each
    of the others. ``usual``: the kind of a tool that names none."""
    functions, notes = [], []
    for n, tool in enumerate([] if tools is None else list_at(tools, "tools")):
        tool = object_at(tool, f"tools[{n}]")
        if tool.get("type", usual) == kind:
            functions.append({"type": "function", "function": read(tool)})
        else:
            notes.append(f"tools of type {tool.get('type')!r} are not there and were left out")
    return functions, tuple(notes)
