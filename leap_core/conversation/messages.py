"""Chat messages: roles, the parts of their content, calls of functions, and their JSON.

The JSON is that of OpenAI's chat completions, as the LEAP SDK writes it: pictures as ``image_url`` with a data URI,
sound as ``input_audio``. Three things go beyond it: ``input_audio`` of format ``pcm_f32le`` with its ``sample_rate``,
``speech`` beside the ``input_audio`` of what a model said aloud, and ``reasoning_content``.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import LeapSerializationError
from ..schemas.json_values import JsonObject, kind_of, list_at, number_at, object_at, text_at
from ..system.dataclass import dataclass
from .media.audio import JPEG_START, naming_source
from .media.fetching import UrlAccess
from .media.wav import WavFormat, as_float32, check_samples, check_wav, wav_from_samples

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage


class ChatMessageContent:
    """One part of a message: Text, Image, Audio, Speech or AudioPcmF32. Parts are immutable and compare by value."""

    Text: ClassVar[type[Text]]
    Image: ClassVar[type[Image]]
    Audio: ClassVar[type[Audio]]
    AudioPcmF32: ClassVar[type[AudioPcmF32]]

    def to_json(self) -> JsonObject:
        """The part in OpenAI's format."""
        raise NotImplementedError

    def clone(self) -> ChatMessageContent:
        """The part itself, which never changes: the SDK's way to copy one."""
        return self

    @staticmethod
    def from_json(value: object, path: str = "content", *, urls: UrlAccess = UrlAccess.FILES) -> ChatMessageContent:
        """Read one part; anything but the documented formats raises LeapSerializationError naming the path.

        A picture of another common format becomes a JPEG. ``urls``: what its URL may reach.
        """
        part = object_at(value, path)
        kind = part.get("type")
        if kind == "text":
            return Text(text_at(part.get("text"), f"{path}.text"))
        if kind == "refusal":  # of an answer that another model gave
            return Text(text_at(part.get("refusal"), f"{path}.refusal"))
        if kind == "image_url":
            return _read_image(part, path, urls)
        if kind == "input_audio":
            return _read_audio(part, path)
        raise LeapSerializationError(
            f"unknown content type {kind!r}; known are image_url, input_audio, text", path=f"{path}.type"
        )

    @staticmethod
    def from_pil_image(image: PillowImage, compression_quality: float = 0.95) -> ChatMessageContent:
        """A Pillow image of any mode as an Image part, a JPEG; ``compression_quality`` from 0 to 1."""
        return Image.from_pil_image(image, compression_quality)

    @staticmethod
    def from_wav_data(data: bytes) -> ChatMessageContent:
        """An Audio part of WAV bytes as they are, after the check that every Audio part gets."""
        return Audio(data)

    @staticmethod
    def from_float_samples(samples: Sequence[float], sample_rate: int, channel_count: int = 1) -> ChatMessageContent:
        """Float samples in [-1, 1] as an Audio part, see ``Audio.from_float_samples``."""
        return Audio.from_float_samples(samples, sample_rate, channel_count)


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
    """A picture, as JPEG bytes. Other formats raise LeapSerializationError; ``from_bytes`` converts them. ``name``: of
    its file, for messages."""

    data: bytes = field(repr=False)
    name: str = field(default="", kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_bytes(self.data)
        if not self.data.startswith(JPEG_START):
            raise LeapSerializationError("the picture is not a JPEG", hint="Image.from_bytes converts other formats")

    @staticmethod
    def from_pil_image(image: PillowImage, compression_quality: float = 0.95) -> Image:
        """A Pillow image of any mode, transparency laid on white; ``compression_quality`` from 0 to 1."""
        from .media.images import encode_jpeg

        if not isinstance(compression_quality, (int, float)) or not 0 <= compression_quality <= 1:
            raise LeapSerializationError(f"compression_quality {compression_quality!r} is not between 0 and 1")
        return Image(encode_jpeg(image, max(1, round(compression_quality * 100))))

    @staticmethod
    def from_bytes(data: bytes) -> Image:
        """A picture of any common format (JPEG, PNG, GIF, BMP, WebP, TIFF, PPM, AVIF); a sound JPEG stays as it is.

        Raises LeapSerializationError for a damaged or misshapen picture, see ``media.images.decode_image``.
        """
        from .media.images import as_jpeg

        return Image(as_jpeg(data).data)

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Image:
        """A picture file of any common format."""
        from .media.fetching import read_file

        data = read_file(path)
        with naming_source(str(path)):
            return Image.from_bytes(data)

    def to_json(self) -> JsonObject:
        encoded = base64.b64encode(self.data).decode("ascii")
        return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{encoded}"}}


MOST_PAGES = 10**9
"""Of a document."""


@dataclass(frozen=True)
class PagePicture(Image):
    """A page of a document as a picture. A model that takes no pictures gets the message without it, see
    ``page_pictures``, unless the document has no text at all (``is_needed``).

    ``file``: the document's name. ``page``: counted from 1.
    """

    file: str = ""
    page: int = 1
    is_needed: bool = False

    def to_json(self) -> JsonObject:
        return super().to_json() | {"page": {"file": self.file, "number": self.page, "needed": self.is_needed}}


@dataclass(frozen=True)
class Audio(ChatMessageContent):
    """Sound, as the bytes of a WAV file: mono, little-endian PCM of float32, int16, int24 or int32, any rate.

    Stereo, compressed, empty, truncated and non-finite sound raise LeapSerializationError, each by name;
    ``from_bytes`` converts other sound. ``name``: of its file, for messages.
    """

    data: bytes = field(repr=False)
    name: str = field(default="", kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_bytes(self.data)
        check_wav(self.data)

    @property
    def format(self) -> WavFormat:
        """Encoding, sample rate (Hz) and number of samples."""
        return check_wav(self.data)

    @staticmethod
    def from_float_samples(samples: Sequence[float], sample_rate: int, channel_count: int = 1) -> Audio:
        """Samples in [-1, 1] as a float32 WAV. Of several channels, whose samples take turns, the mean is taken:
        models take mono."""
        if not isinstance(channel_count, int) or isinstance(channel_count, bool) or channel_count < 1:
            raise LeapSerializationError(f"channel_count {channel_count!r} is not a whole number above 0")
        if channel_count > 1:
            flat = as_float32(samples)
            if len(flat) % channel_count:
                raise LeapSerializationError(f"{len(flat)} samples cannot be shared by {channel_count} channels")
            frames = zip(*(iter(flat),) * channel_count, strict=True)
            samples = [sum(frame) / channel_count for frame in frames]
        return Audio(wav_from_samples(samples, sample_rate))

    @staticmethod
    def from_bytes(data: bytes) -> Audio:
        """Sound of any format that libsndfile reads (WAV of every kind, FLAC, OGG, MP3, AIFF), mixed down to mono.

        A WAV that this part takes stays as it is; everything else becomes int16 at 16 kHz.
        """
        from .media.audio import as_wav

        return Audio(as_wav(data).data)

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Audio:
        """A sound file of any format that ``from_bytes`` takes."""
        from .media.fetching import read_file

        data = read_file(path)
        with naming_source(str(path)):
            return Audio.from_bytes(data)

    def to_json(self) -> JsonObject:
        encoded = base64.b64encode(self.data).decode("ascii")
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": "wav"}}


@dataclass(frozen=True)
class Speech(Audio):
    """What a model said aloud: the sound, and ``turn``, with which the same model reads its answer back.

    ``turn`` has the answer in order: the id of each token, and for each frame of sound its codes.
    """

    turn: tuple[int | tuple[int, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        turn = tuple(item if isinstance(item, int) else tuple(item) for item in self.turn)
        object.__setattr__(self, "turn", turn)

    def to_json(self) -> JsonObject:
        turn = [item if isinstance(item, int) else list(item) for item in self.turn]
        return {**super().to_json(), "speech": {"turn": turn}}


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


def _read_image(part: JsonObject, path: str, urls: UrlAccess) -> Image:
    from .media.fetching import fetch

    url_path = f"{path}.image_url.url"
    url = text_at(object_at(part.get("image_url"), f"{path}.image_url").get("url"), url_path)
    try:
        data = fetch(url, urls)
        image = Image(data) if data.startswith(JPEG_START) else Image.from_bytes(data)
    except LeapSerializationError as error:
        raise LeapSerializationError(error.message, path=url_path, hint=error.hint) from None
    page = part.get("page")
    if not isinstance(page, dict):
        return image
    file, number = text_at(page.get("file"), f"{path}.page.file"), number_at(page.get("number"), f"{path}.page.number")
    if not 1 <= number <= MOST_PAGES:
        raise LeapSerializationError("expected the number of a page", path=f"{path}.page.number")
    return PagePicture(image.data, file, int(number), bool(page.get("needed")))


def _read_audio(part: JsonObject, path: str) -> ChatMessageContent:
    where = f"{path}.input_audio"
    audio = object_at(part.get("input_audio"), where)
    data = _base64(text_at(audio.get("data"), f"{where}.data"), f"{where}.data")
    kind = audio.get("format")
    try:
        if kind == "wav":
            return Audio(data) if part.get("speech") is None else Speech(data, _read_turn(part["speech"], path))
        if kind == "pcm_f32le":
            return _pcm_from_bytes(data, audio.get("sample_rate"))
    except LeapSerializationError as error:
        raise LeapSerializationError(error.message, path=where, hint=error.hint) from None
    raise LeapSerializationError(
        f"unknown audio format {kind!r}; known are 'wav', 'pcm_f32le'",
        path=f"{where}.format",
        hint="convert it to WAV first",
    )


def _read_turn(speech: object, path: str) -> tuple[int | tuple[int, ...], ...]:
    where = f"{path}.speech.turn"
    turn: list[int | tuple[int, ...]] = []
    for n, item in enumerate(list_at(object_at(speech, f"{path}.speech").get("turn"), where)):
        codes = item if isinstance(item, list) else [item]
        if not codes or not all(isinstance(code, int) and not isinstance(code, bool) and code >= 0 for code in codes):
            raise LeapSerializationError("expected a token id or a list of codes", path=f"{where}[{n}]")
        turn.append(tuple(codes) if isinstance(item, list) else codes[0])
    return tuple(turn)


def _pcm_from_bytes(data: bytes, sample_rate: object) -> AudioPcmF32:
    if not isinstance(sample_rate, int) or isinstance(sample_rate, bool):
        raise LeapSerializationError("sample_rate must be a whole number of Hz")
    if len(data) % 4:
        raise LeapSerializationError("the float32 samples are truncated")
    return AudioPcmF32(struct.unpack(f"<{len(data) // 4}f", data), sample_rate)


def _check_bytes(data: object) -> None:
    if not isinstance(data, bytes):
        raise LeapSerializationError(f"expected bytes, not {kind_of(data)}")


def _base64(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LeapSerializationError("not valid base64", path=path) from None


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
        """The call in OpenAI's ``tool_calls`` format: the arguments are a JSON text."""
        try:
            arguments = json.dumps(self.arguments, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:  # an object of the program's, NaN
            raise LeapSerializationError(f"not JSON: {error}", path=f"arguments of {self.name}") from None
        function = {"name": self.name, "arguments": arguments}
        return {"id": self.id or default_id, "type": "function", "function": function}

    @staticmethod
    def from_json(value: object, path: str = "tool_calls[0]") -> LeapFunctionCall:
        """Read OpenAI's format; arguments may be a JSON text or an object."""
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
        """Whether a reply to a history that ends here continues from this message's text and does not repeat it."""
        return self.role is ChatMessageRole.ASSISTANT and not self.function_calls and bool(self.text)

    def joined_with(self, reply: ChatMessage) -> ChatMessage:
        """This message and the reply that continued it as one."""
        text = Text(self.text + reply.text)
        others = [part for part in (*self.content, *reply.content) if not isinstance(part, Text)]
        reasoning = (self.reasoning_content or "") + (reply.reasoning_content or "")
        return ChatMessage(self.role, [text, *others], reasoning or None, reply.function_calls)

    def to_json(self) -> JsonObject:
        """The message in OpenAI's format; a single text part becomes a plain string."""
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
        """Read OpenAI's format; unknown roles, types and shapes raise LeapSerializationError naming the path.

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
            reasoning_content=_optional_text(
                message, "reasoning" if isinstance(message.get("reasoning"), str) else "reasoning_content", path
            ),
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
    if content is None and role in ("assistant", "tool"):
        return []
    if not isinstance(content, list):
        raise LeapSerializationError(f"expected a string or a list of parts, not {kind_of(content)}", path=where)
    return [ChatMessageContent.from_json(part, f"{where}[{n}]", urls=urls) for n, part in enumerate(content)]


def _unknown_role(role: object) -> str:
    return f"unknown role {role!r}; known are " + ", ".join(r.value for r in ChatMessageRole)


def _optional_text(message: JsonObject, key: str, path: str) -> str | None:
    value = message.get(key)
    return None if value is None else text_at(value, f"{path}.{key}")
