"""Chat messages: roles, calls of functions, and their JSON. The parts of their content are in ``parts``.

The JSON is OpenAI's chat-completions message, as the LEAP SDK exports it, with one field more: ``reasoning_content``.
"""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from ..errors import LeapSerializationError
from ..json_fields import kind_of, list_at, object_at, text_at
from ..media.fetching import UrlAccess
from .parts import ChatMessageContent, Text



class ChatMessageRole(str, Enum):
    """Who speaks. ``tool`` is the result of a function call."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True)
class LeapFunctionCall:
    """A call the model asked for. ``arguments`` are JSON values by parameter name.

    ``id`` ties a tool's result to its call in OpenAI's JSON; it takes no part in comparison.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = field(default=None, compare=False)

    def to_json(self, default_id: str = "call_0") -> JsonObject:
        """The call in OpenAI's ``tool_calls`` shape: the arguments are a JSON text."""
        try:
            arguments = json.dumps(self.arguments, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:  # an object of the program's, NaN
            raise LeapSerializationError(f"not JSON: {error}", path=f"arguments of {self.name}") from None
        function = {"name": self.name, "arguments": arguments}
        return {"id": self.id or default_id, "type": "function", "function": function}

    @staticmethod
    def from_json(value: object, path: str = "tool_calls[0]") -> LeapFunctionCall:
        """Read OpenAI's shape; arguments may be a JSON text or an object."""
        call = object_at(value, path)
        function = object_at(call.get("function"), f"{path}.function")
        name = text_at(function.get("name"), f"{path}.function.name")
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError) as error:
                raise LeapSerializationError(f"not JSON: {error}", path=f"{path}.function.arguments") from None
        identifier = call.get("id")
        if identifier is not None:
            identifier = text_at(identifier, f"{path}.id")
        return LeapFunctionCall(name, object_at(arguments, f"{path}.function.arguments"), identifier)


@dataclass(frozen=True)
class ChatMessage:
    """One message of a conversation.

    ``content`` may be given as a string (one Text part) or as parts; it is kept as a tuple of parts.
    ``reasoning_content`` is what a reasoning model wrote between its think tags, ``function_calls`` the calls it asked
    for, ``tool_call_id`` (role tool) the id of the call that this message answers.
    """

    role: ChatMessageRole
    content: tuple[ChatMessageContent, ...]
    reasoning_content: str | None = None
    function_calls: tuple[LeapFunctionCall, ...] | None = None
    tool_call_id: str | None = None

    Role: ClassVar[type[ChatMessageRole]] = ChatMessageRole

    def __init__(
        self,
        role: ChatMessageRole | str,
        content: str | ChatMessageContent | Iterable[ChatMessageContent] = (),
        reasoning_content: str | None = None,
        function_calls: Iterable[LeapFunctionCall] | None = None,
        tool_call_id: str | None = None,
    ) -> None:
        try:
            role = ChatMessageRole(role)
        except ValueError:
            raise LeapSerializationError(_unknown_role(role), path="role") from None
        if isinstance(content, str):
            content = (Text(content),)
        elif isinstance(content, ChatMessageContent):
            content = (content,)
        parts = tuple(content)
        for index, part in enumerate(parts):
            if not isinstance(part, ChatMessageContent):
                kind = type(part).__name__
                raise LeapSerializationError(f"expected a content part, not {kind}", path=f"content[{index}]")
        calls = tuple(function_calls) if function_calls is not None else None
        for index, call in enumerate(calls or ()):
            if not isinstance(call, LeapFunctionCall):
                kind = type(call).__name__
                raise LeapSerializationError(
                    f"expected a LeapFunctionCall, not {kind}", path=f"function_calls[{index}]"
                )
        for name, text in (("reasoning_content", reasoning_content), ("tool_call_id", tool_call_id)):
            if text is not None:
                text_at(text, name)
        for name, value in (
            ("role", role),
            ("content", parts),
            ("reasoning_content", reasoning_content),
            ("function_calls", calls or None),
            ("tool_call_id", tool_call_id),
        ):
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def opens_reply(self) -> bool:
        """Whether a reply to a history that ends here goes on from this message's text and does not repeat it."""
        return self.role is ChatMessageRole.ASSISTANT and not self.function_calls and bool(self.text)

    def joined_with(self, reply: ChatMessage) -> ChatMessage:
        """This message and the reply that went on from it as one."""
        text = Text(self.text + reply.text)
        others = [part for part in (*self.content, *reply.content) if not isinstance(part, Text)]
        reasoning = (self.reasoning_content or "") + (reply.reasoning_content or "")
        return ChatMessage(self.role, [text, *others], reasoning or None, reply.function_calls)

    def to_json(self) -> JsonObject:
        """The message in OpenAI's shape; a single text part becomes a plain string."""
        value: JsonObject = {"role": self.role.value, "content": self._content_json()}
        if self.reasoning_content is not None:
            value["reasoning_content"] = self.reasoning_content
        if self.function_calls:
            value["tool_calls"] = [call.to_json(f"call_{n}") for n, call in enumerate(self.function_calls)]
        if self.tool_call_id is not None:
            value["tool_call_id"] = self.tool_call_id
        return value

    def _content_json(self) -> str | list[JsonObject] | None:
        if not self.content and self.role is ChatMessageRole.ASSISTANT:
            return None
        if len(self.content) == 1 and isinstance(self.content[0], Text):
            return self.content[0].text
        return [part.to_json() for part in self.content]

    @staticmethod
    def from_json(value: object, path: str = "message", *, urls: UrlAccess = UrlAccess.FILES) -> ChatMessage:
        """Read OpenAI's shape; unknown roles, types and shapes raise LeapSerializationError naming the path.

        ``urls``: what the URLs of pictures may reach.
        """
        message = object_at(value, path)
        role = message.get("role")
        if role == "developer":  # OpenAI's newer name of the system role
            role = "system"
        if not isinstance(role, str) or role not in ChatMessageRole._value2member_map_:
            raise LeapSerializationError(_unknown_role(role), path=f"{path}.role")
        calls = message.get("tool_calls")
        if calls is not None:
            calls = [
                LeapFunctionCall.from_json(call, f"{path}.tool_calls[{n}]")
                for n, call in enumerate(list_at(calls, f"{path}.tool_calls"))
            ]
        return ChatMessage(
            role,
            _content_from_json(message, role, path, urls),
            reasoning_content=_optional_text(message, "reasoning_content", path),
            function_calls=calls,
            tool_call_id=_optional_text(message, "tool_call_id", path),
        )


class LeapJSONEncoder(json.JSONEncoder):
    """``json.dumps(conversation.history, cls=LeapJSONEncoder)`` writes messages, parts and calls."""

    def default(self, o: object) -> Any:
        if isinstance(o, (ChatMessage, ChatMessageContent, LeapFunctionCall)):
            return o.to_json()
        return super().default(o)


def leap_object_hook(value: JsonObject) -> object:
    """``json.loads(text, object_hook=leap_object_hook)`` reads messages back; other objects stay as they are."""
    role = value.get("role")
    is_message = isinstance(role, str) and (role == "developer" or role in ChatMessageRole._value2member_map_)
    if is_message and ("content" in value or "tool_calls" in value):
        return ChatMessage.from_json(value)
    return value


def messages_from_json(
    value: object, path: str = "messages", *, urls: UrlAccess = UrlAccess.FILES
) -> list[ChatMessage]:
    """Read a JSON array of messages, see ``ChatMessage.from_json``."""
    return [ChatMessage.from_json(item, f"{path}[{n}]", urls=urls) for n, item in enumerate(list_at(value, path))]


def _content_from_json(message: JsonObject, role: str, path: str, urls: UrlAccess) -> list[ChatMessageContent]:
    content = message.get("content")
    where = f"{path}.content"
    if isinstance(content, str):
        return [Text(content)]
    if content is None and role == "assistant":
        return []
    if not isinstance(content, list):
        raise LeapSerializationError(f"expected a string or a list of parts, not {kind_of(content)}", path=where)
    return [ChatMessageContent.from_json(part, f"{where}[{n}]", urls=urls) for n, part in enumerate(content)]


def _unknown_role(role: object) -> str:
    return f"unknown role {role!r}; known are " + ", ".join(r.value for r in ChatMessageRole)


def _optional_text(message: JsonObject, key: str, path: str) -> str | None:
    value = message.get(key)
    return None if value is None else text_at(value, f"{path}.{key}")
