"""The parts of a message: text, a JPEG picture, WAV sound, raw samples; and their JSON.

The JSON is that of OpenAI's chat completions, as the LEAP SDK writes it: pictures as ``image_url`` with a data URI,
sound as ``input_audio``. Two things go beyond it: ``input_audio`` of format ``pcm_f32le`` with its ``sample_rate``,
and ``speech`` beside the ``input_audio`` of what a model said aloud.
"""

from __future__ import annotations

from ..json_fields import JsonObject
import base64
import binascii
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import LeapSerializationError
from ..json_fields import kind_of, list_at, object_at, text_at
from ..media.conversion import naming_source
from ..media.fetching import UrlAccess
from ..media.sniffing import JPEG_START
from ..media.wav import WavFormat, as_float32, check_samples, check_wav, wav_from_samples

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage



class ChatMessageContent:
    """One part of a message: Text, Image, Audio, Speech or AudioPcmF32. Parts are immutable and compare by value."""

    Text: ClassVar[type[Text]]
    Image: ClassVar[type[Image]]
    Audio: ClassVar[type[Audio]]
    AudioPcmF32: ClassVar[type[AudioPcmF32]]

    def to_json(self) -> JsonObject:
        """The part in OpenAI's shape."""
        raise NotImplementedError

    def clone(self) -> ChatMessageContent:
        """The part itself, which never changes: the SDK's way to copy one."""
        return self

    @staticmethod
    def from_json(value: object, path: str = "content", *, urls: UrlAccess = UrlAccess.FILES) -> ChatMessageContent:
        """Read one part; anything but the documented shapes raises LeapSerializationError naming the path.

        A picture of another common format becomes a JPEG. ``urls``: what its URL may reach.
        """
        part = object_at(value, path)
        kind = part.get("type")
        if kind == "text":
            return Text(text_at(part.get("text"), f"{path}.text"))
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
    """A picture, as JPEG bytes. Other formats raise LeapSerializationError; ``from_bytes`` converts them."""

    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_bytes(self.data)
        if not self.data.startswith(JPEG_START):
            raise LeapSerializationError("the picture is not a JPEG", hint="Image.from_bytes converts other formats")

    @staticmethod
    def from_pil_image(image: PillowImage, compression_quality: float = 0.95) -> Image:
        """A Pillow image of any mode, transparency laid on white; ``compression_quality`` from 0 to 1."""
        from ..media.images import encode_jpeg

        if not isinstance(compression_quality, (int, float)) or not 0 <= compression_quality <= 1:
            raise LeapSerializationError(f"compression_quality {compression_quality!r} is not between 0 and 1")
        return Image(encode_jpeg(image, max(1, round(compression_quality * 100))))

    @staticmethod
    def from_bytes(data: bytes) -> Image:
        """A picture of any common format (JPEG, PNG, GIF, BMP, WebP, TIFF, PPM, AVIF); a sound JPEG stays as it is.

        Raises LeapSerializationError for a damaged or misshapen picture, see ``media.images.decode_image``.
        """
        from ..media.images import as_jpeg

        return Image(as_jpeg(data).data)

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Image:
        """A picture file of any common format."""
        from ..media.fetching import read_file

        data = read_file(path)
        with naming_source(str(path)):
            return Image.from_bytes(data)

    def to_json(self) -> JsonObject:
        encoded = base64.b64encode(self.data).decode("ascii")
        return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{encoded}"}}


@dataclass(frozen=True)
class Audio(ChatMessageContent):
    """Sound, as the bytes of a WAV file: mono, little-endian PCM of float32, int16, int24 or int32, any rate.

    Stereo, compressed, empty, truncated and non-finite sound raise LeapSerializationError, each by name;
    ``from_bytes`` converts other sound.
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
    def from_float_samples(samples: Sequence[float], sample_rate: int, channel_count: int = 1) -> Audio:
        """Samples in [-1, 1] as a float32 WAV. Of several channels, whose samples take turns, the mean is taken:
        models hear mono."""
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
        from ..media.audio import as_wav

        return Audio(as_wav(data).data)

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Audio:
        """A sound file of any format that ``from_bytes`` takes."""
        from ..media.fetching import read_file

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
    from ..media.fetching import fetch

    url_path = f"{path}.image_url.url"
    url = text_at(object_at(part.get("image_url"), f"{path}.image_url").get("url"), url_path)
    try:
        data = fetch(url, urls)
        return Image(data) if data.startswith(JPEG_START) else Image.from_bytes(data)
    except LeapSerializationError as error:
        raise LeapSerializationError(error.message, path=url_path, hint=error.hint) from None


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
