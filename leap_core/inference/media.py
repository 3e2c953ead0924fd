"""Images and audio of a message as segments of a prompt: tokens around rows that a projector encodes."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..conversation.media.audio import (
    MOST_SECONDS,
    RATE,
    RELIABLE_SECONDS,
    at_model_rate,
    check_length,
    samples_of_wav,
    tokens_of,
)
from ..conversation.media.image_plan import MOST_TOKENS, ImagePlan, plan_image
from ..conversation.media.images import decode_image
from ..conversation.messages import Audio, AudioPcmF32, ChatMessageContent, Image
from ..conversation.options import GenerationOptions, ModelLoadingOptions
from ..errors import LeapModelLoadingError, LeapSerializationError, LeapUnsupportedMediaError
from ..system.dataclass import dataclass
from .engine.request import Embeddings, Segment, Tokens
from .engine.slots import CachedRows, MediaCache
from .engine.threads import usable_cores
from .gguf.checks import check_projector
from .gguf.header import read_gguf_header
from .llama.model import LlamaModel
from .llama.projector import Projector

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from .gguf.checks import ProjectorInfo

MOST_MEDIA = 64
"""One prompt may hold these."""
SEES = re.compile(r"(?<![a-z])vl(?![a-z])", re.IGNORECASE)
HEARS = re.compile(r"audio", re.IGNORECASE)


@dataclass(frozen=True)
class MediaSegments:
    """One medium in a prompt. ``key`` differs from every other's, ``warnings`` are for the user."""

    key: bytes
    segments: tuple[Segment, ...]
    warnings: tuple[str, ...] = ()


class ReadsMedia(Protocol):
    """Makes segments of a prompt out of images and audio, or says why not. ``sees``: it takes images."""

    @property
    def sees(self) -> bool: ...

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments: ...


def check_count(parts: Sequence[ChatMessageContent]) -> None:
    """Refuse a prompt with more media than any sensible one has."""
    if len(parts) > MOST_MEDIA:
        raise LeapSerializationError(
            f"the messages contain {len(parts)} images and audio clips; at most {MOST_MEDIA} are allowed"
        )


class NoProjector:
    """Takes the place of the projector of a model that has none: every picture and every sound is refused."""

    sees = False

    def __init__(self, model_id: str, path: Path) -> None:
        self._model_id, self._path = model_id, path

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments:
        """Raises LeapUnsupportedMediaError."""
        is_image = isinstance(part, Image)
        medium, sense = ("picture", "see") if is_image else ("sound", "hear")
        if (SEES if is_image else HEARS).search(self._path.name):
            raise LeapUnsupportedMediaError(
                f"{self._model_id} needs its projector to {sense}, and no file like mmproj-{self._path.stem}.gguf lies "
                f"beside {self._path}",
                hint=f"`leap download {self._model_id}` gets it, or give the file with --mmproj (mm_proj_path)",
            )
        example = "LFM2.5-VL-450M" if is_image else "LFM2.5-Audio-1.5B"
        raise LeapUnsupportedMediaError(
            f"the message contains a {medium}, and {self._model_id} reads text only",
            hint=f"load a model that can {sense}, such as {example}",
        )


IMAGE_START, IMAGE_END = "<|image_start|>", "<|image_end|>"
THUMBNAIL = "<|img_thumbnail|>"
REMEMBERED = 512
"""Media whose size is remembered, so that a history is not decoded again at every turn."""

Value = TypeVar("Value")


class MediaReader:
    """Makes segments of the media that one projector can encode. Any thread may call.

    ``info``: what the projector takes. Encoding itself runs later, in the compute thread.
    """

    def __init__(self, projector: Projector, info: ProjectorInfo, model: LlamaModel, cache: MediaCache) -> None:
        self._projector = projector
        self._info = info
        self._model = model
        self.cache = cache
        self.sees = info.sees
        self._longest = min(info.longest_seconds, MOST_SECONDS)
        self._sizes: _Recent[tuple[int, int]] = _Recent()
        self._lengths: _Recent[int] = _Recent()

    def read(self, part: ChatMessageContent, options: GenerationOptions) -> MediaSegments:
        """The segments of a picture or a sound. Raises LeapSerializationError for a damaged one and
        LeapUnsupportedMediaError for one that this model has no encoder for."""
        name = self._model.path.name
        if isinstance(part, Image):
            if not self.sees:
                raise LeapUnsupportedMediaError(f"{name} does not accept images, only audio", hint="send audio or text")
            return self._picture(part, options)
        if isinstance(part, (Audio, AudioPcmF32)):
            if not self._info.hears:
                raise LeapUnsupportedMediaError(
                    f"{name} does not accept audio, only images", hint="send images or text"
                )
            return self._sound(part)
        raise LeapUnsupportedMediaError(f"{name} cannot take {type(part).__name__}")

    def _picture(self, part: Image, options: GenerationOptions) -> MediaSegments:
        digest = _digest(b"image", part.data)
        image: Any = None
        size = self._sizes.find(digest)
        if size is None:
            image = decode_image(part.data)
            size = self._sizes.keep(digest, image.size)
        plan = plan_image(
            *size,
            most_tokens=options.image_tokens or MOST_TOKENS,
            tiles=options.image_tiles and THUMBNAIL in self._model.special_tokens,
        )
        key = _digest(self._projector.fingerprint, digest, repr(plan).encode())
        looks = _Looks(part.data, plan, image)
        segments: list[Segment] = [self._marker(IMAGE_START)]
        for n, look in enumerate(plan.looks):
            if look.marker:
                segments.append(self._marker(look.marker))
            segments.append(self._embeddings(key + n.to_bytes(2, "little"), look.tokens, self._encoder_of(looks, n)))
        segments.append(self._marker(IMAGE_END))
        return MediaSegments(key, tuple(segments))

    def _encoder_of(self, looks: _Looks, n: int) -> Callable[[int], NDArray[float32]]:
        def encode(threads: int) -> NDArray[float32]:
            width, height, rgb = looks.take(n)
            return self._projector.encode_image(width, height, rgb, threads=threads)

        return encode

    def _sound(self, part: Audio | AudioPcmF32) -> MediaSegments:
        digest = _digest(b"audio", *_bytes_of(part))
        samples: NDArray[float32] | None = None
        count = self._lengths.find(digest)
        if count is None:
            samples = _samples_of(part)
            count = self._lengths.keep(digest, len(samples))
        seconds = count / RATE
        check_length(seconds, self._longest)
        key = _digest(self._projector.fingerprint, digest)

        def encode(threads: int) -> NDArray[float32]:
            return self._projector.encode_audio(_samples_of(part) if samples is None else samples, threads=threads)

        warnings: tuple[str, ...] = ()
        if seconds < RELIABLE_SECONDS:
            warnings = (f"the sound is {seconds:.2f} s long; below {RELIABLE_SECONDS:g} s models understand it badly",)
        return MediaSegments(key, (self._embeddings(key, tokens_of(count), encode),), warnings)

    def _embeddings(self, key: bytes, length: int, encode: Callable[[int], NDArray[float32]]) -> Embeddings:
        def checked(threads: int) -> NDArray[float32]:
            rows = encode(threads)
            if len(rows) != length:  # the prompt was planned with this many
                raise LeapUnsupportedMediaError(f"llama.cpp made {len(rows)} positions where {length} were planned")
            return rows

        return Embeddings(length, key, CachedRows(self.cache, key, checked))

    def _marker(self, text: str) -> Tokens:
        return Tokens(tuple(self._model.tokenize(text, parse_special=True)))


class _Looks:
    """What the encoder is shown of one picture, cut once, and forgotten look by look as it is encoded."""

    def __init__(self, data: bytes, plan: ImagePlan, image: Any) -> None:
        self._data, self._plan = data, plan
        self._guard = threading.Lock()
        self._pixels = {} if image is None else self._cut(image)

    def take(self, n: int) -> tuple[int, int, bytes]:
        """Width, height and RGB of the n-th look."""
        with self._guard:
            if n not in self._pixels:
                self._pixels = self._cut(decode_image(self._data))
            return self._pixels.pop(n)

    def _cut(self, image: Any) -> dict[int, tuple[int, int, bytes]]:
        return {n: (*look.size, look.tobytes()) for n, look in enumerate(self._plan.cut(image))}


class _Recent(Generic[Value]):
    """A small thing known of each of the latest media, by digest."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._values: OrderedDict[bytes, Value] = OrderedDict()

    def find(self, digest: bytes) -> Value | None:
        with self._guard:
            return self._values.get(digest)

    def keep(self, digest: bytes, value: Value) -> Value:
        with self._guard:
            self._values[digest] = value
            if len(self._values) > REMEMBERED:
                self._values.popitem(last=False)
        return value


def _samples_of(part: Audio | AudioPcmF32) -> NDArray[float32]:
    """Mono samples at 16 kHz."""
    import numpy as np

    if isinstance(part, Audio):
        return at_model_rate(*samples_of_wav(part.data))
    return at_model_rate(np.array(part.samples, np.float32), part.sample_rate)


def _bytes_of(part: Audio | AudioPcmF32) -> tuple[bytes, ...]:
    import numpy as np

    if isinstance(part, Audio):
        return (part.data,)
    return b"samples", str(part.sample_rate).encode(), np.array(part.samples, np.float32).tobytes()


def _digest(*values: bytes) -> bytes:
    digest = blake2b(digest_size=16)
    for value in values:
        digest.update(len(value).to_bytes(8, "little"))
        digest.update(value)
    return digest.digest()


def open_projector(path: Path, model: LlamaModel, options: ModelLoadingOptions) -> tuple[Projector, MediaReader]:
    """The projector at ``path`` beside its model, and what reads media with it. The projector must be closed before the
    model. Raises LeapModelLoadingError for a file that is none, is damaged, or belongs to another model."""
    info = check_projector(read_gguf_header(path))
    if info.width != model.width:
        raise LeapModelLoadingError(
            f"{path} makes embeddings of width {info.width}, and {model.path.name} has {model.width}",
            hint="take the projector that belongs to this model",
        )
    projector = Projector(path, model, threads=options.cpu_threads or usable_cores(), use_gpu=model.on_gpu)
    cache = MediaCache(options.media_cache_bytes)
    return projector, MediaReader(projector, info, model, cache)
