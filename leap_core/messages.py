"""Chat messages: roles, parts of content, calls of functions, and their JSON.

The JSON is OpenAI's chat-completions message, as the LEAP SDK exports it: text parts, JPEG pictures as
``image_url`` data URIs, WAV sound as ``input_audio``. Two fields go beyond OpenAI's: ``reasoning_content``, and
``input_audio`` of format ``pcm_f32le`` with its ``sample_rate`` for raw float samples.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from .errors import LeapSerializationError
from .json_fields import kind_of, list_at, object_at, text_at
from .media.wav import WavFormat, as_float32, check_samples, check_wav, wav_from_samples

JsonObject = dict[str, Any]

JPEG_START = b"\xff\xd8\xff"


class ChatMessageRole(str, Enum):
    """Who speaks. ``tool`` is the result of a function call."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ChatMessageContent:
    """One part of a message: Text, Image, Audio or AudioPcmF32. Parts are immutable and compare by value."""

    Text: ClassVar[type[Text]]
    Image: ClassVar[type[Image]]
    Audio: ClassVar[type[Audio]]
    AudioPcmF32: ClassVar[type[AudioPcmF32]]

    def to_json(self) -> JsonObject:
        """The part in OpenAI's shape."""
        raise NotImplementedError

    @staticmethod
    def from_json(value: object, path: str = "content") -> ChatMessageContent:
        """Read one part; anything but the documented shapes raises LeapSerializationError naming the path."""
        part = object_at(value, path)
        kind = part.get("type")
        reader = _PART_READERS.get(kind) if isinstance(kind, str) else None
        if reader is None:
            known = ", ".join(sorted(_PART_READERS))
            raise LeapSerializationError(f"unknown content type {kind!r}; known are {known}", path=f"{path}.type")
        return reader(part, path)


@dataclass(frozen=True)
class Text(ChatMessageContent):
    """Plain text."""

    text: str

    def __post_init__(self) -> None:
        text_at(self.text, "text")

    def to_json(self) -> JsonObject:
        return {"type": "text", "text": self.text}


@dataclass(frozen=True)
class Image(ChatMessageContent):
    """A picture, as JPEG bytes. Other formats raise LeapSerializationError."""

    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_bytes(self.data)
        if not self.data.startswith(JPEG_START):
            raise LeapSerializationError("the picture is not a JPEG", hint="convert it to JPEG first")

    def to_json(self) -> JsonObject:
        encoded = base64.b64encode(self.data).decode("ascii")
        return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{encoded}"}}


@dataclass(frozen=True)
class Audio(ChatMessageContent):
    """Sound, as the bytes of a WAV file: mono, little-endian PCM of float32, int16, int24 or int32, any rate.

    Stereo, compressed, empty, truncated and non-finite sound raise LeapSerializationError, each by name.
    """

    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_bytes(self.data)
        check_wav(self.data)

    @property
    def format(self) -> WavFormat:
        """Encoding, sample rate (Hz) and number of samples."""
        return check_wav(self.data)

    @staticmethod
    def from_float_samples(samples: Sequence[float], sample_rate: int) -> Audio:
        """Mono samples in [-1, 1] as a float32 WAV."""
        return Audio(wav_from_samples(samples, sample_rate))

    def to_json(self) -> JsonObject:
        encoded = base64.b64encode(self.data).decode("ascii")
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": "wav"}}


@dataclass(frozen=True)
class AudioPcmF32(ChatMessageContent):
    """Raw mono sound: float samples in [-1, 1] (kept as float32) at ``sample_rate`` Hz."""

    samples: tuple[float, ...] = field(repr=False)
    sample_rate: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", as_float32(self.samples))
        check_samples(self.samples, self.sample_rate)

    def to_json(self) -> JsonObject:
        packed = struct.pack(f"<{len(self.samples)}f", *self.samples)
        encoded = base64.b64encode(packed).decode("ascii")
        return {
            "type": "input_audio",
            "input_audio": {"data": encoded, "format": "pcm_f32le", "sample_rate": self.sample_rate},
        }


ChatMessageContent.Text = Text
ChatMessageContent.Image = Image
ChatMessageContent.Audio = Audio
ChatMessageContent.AudioPcmF32 = AudioPcmF32


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
        arguments = json.dumps(self.arguments, ensure_ascii=False)
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
    def from_json(value: object, path: str = "message") -> ChatMessage:
        """Read OpenAI's shape; unknown roles, types and shapes raise LeapSerializationError naming the path."""
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
            _content_from_json(message, role, path),
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
    known = isinstance(role, str) and (role == "developer" or role in ChatMessageRole._value2member_map_)
    if known and ("content" in value or "tool_calls" in value):
        return ChatMessage.from_json(value)
    return value


def messages_from_json(value: object, path: str = "messages") -> list[ChatMessage]:
    """Read a JSON array of messages."""
    return [ChatMessage.from_json(item, f"{path}[{n}]") for n, item in enumerate(list_at(value, path))]


def _content_from_json(message: JsonObject, role: str, path: str) -> list[ChatMessageContent]:
    content = message.get("content")
    where = f"{path}.content"
    if isinstance(content, str):
        return [Text(content)]
    if content is None and role == "assistant":
        return []
    if not isinstance(content, list):
        raise LeapSerializationError(f"expected a string or a list of parts, not {kind_of(content)}", path=where)
    return [ChatMessageContent.from_json(part, f"{where}[{n}]") for n, part in enumerate(content)]


def _read_text(part: JsonObject, path: str) -> ChatMessageContent:
    return Text(text_at(part.get("text"), f"{path}.text"))


def _read_image(part: JsonObject, path: str) -> ChatMessageContent:
    url_path = f"{path}.image_url.url"
    url = text_at(object_at(part.get("image_url"), f"{path}.image_url").get("url"), url_path)
    head, comma, encoded = url.partition(",")
    if not head.startswith("data:image/") or not head.endswith(";base64") or not comma:
        raise LeapSerializationError("expected a data URI of base64 (data:image/jpeg;base64,…)", path=url_path)
    try:
        return Image(_base64(encoded, url_path))
    except LeapSerializationError as error:
        raise error if error.path else LeapSerializationError(error.message, path=url_path, hint=error.hint) from None


def _read_audio(part: JsonObject, path: str) -> ChatMessageContent:
    where = f"{path}.input_audio"
    audio = object_at(part.get("input_audio"), where)
    data = _base64(text_at(audio.get("data"), f"{where}.data"), f"{where}.data")
    kind = audio.get("format")
    try:
        if kind == "wav":
            return Audio(data)
        if kind == "pcm_f32le":
            return _pcm_from_bytes(data, audio.get("sample_rate"))
    except LeapSerializationError as error:
        raise LeapSerializationError(error.message, path=where, hint=error.hint) from None
    raise LeapSerializationError(f"unknown audio format {kind!r}; known are 'wav', 'pcm_f32le'", path=f"{where}.format")


def _pcm_from_bytes(data: bytes, sample_rate: object) -> AudioPcmF32:
    if not isinstance(sample_rate, int) or isinstance(sample_rate, bool):
        raise LeapSerializationError("sample_rate must be a whole number of Hz")
    if len(data) % 4:
        raise LeapSerializationError("the float32 samples are truncated")
    return AudioPcmF32(struct.unpack(f"<{len(data) // 4}f", data), sample_rate)


_PART_READERS = {"text": _read_text, "image_url": _read_image, "input_audio": _read_audio}


def _unknown_role(role: object) -> str:
    return f"unknown role {role!r}; known are " + ", ".join(r.value for r in ChatMessageRole)


def _check_bytes(data: object) -> None:
    if not isinstance(data, bytes):
        raise LeapSerializationError(f"expected bytes, not {kind_of(data)}")


def _optional_text(message: JsonObject, key: str, path: str) -> str | None:
    value = message.get(key)
    return None if value is None else text_at(value, f"{path}.{key}")


def _base64(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LeapSerializationError("not valid base64", path=path) from None
