"""Sound as a model takes it: mono float32 samples at 16 kHz; and what kind of medium a file is.

A message carries WAV, which is read here without a decoder (``wav``). Files of other formats are decoded by libsndfile
and mixed down once, when they come into leap.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from ...errors import LeapSerializationError
from ...system.dataclass import dataclass
from .wav import check_wav, read_riff, read_wav

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Converted:
    """``data``: JPEG or WAV bytes. ``changes``: what had to be done for it, in words; empty for nothing."""

    data: bytes
    changes: str = ""


@contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Name the source, such as a file, in errors about the bytes that came from it."""
    try:
        yield
    except LeapSerializationError as error:
        raise LeapSerializationError(error.reason, path=source, hint=error.hint) from None


RATE = 16_000
"""Hz, of the models' ears."""
LEAST_SECONDS = 0.1
RELIABLE_SECONDS = 1.0
"""Shorter sound is understood badly."""
MOST_SECONDS = 60.0
"""One piece is at most this long: the encoder's attention grows with the square of its length."""
MOST_BYTES = 512 * 1024 * 1024
MOST_HOURS = 4
"""A file that is converted is at most this long: 0.9 GB as samples."""
UNKNOWN_FRAMES = 2**62
"""libsndfile announces about that many when a file does not say how many it has."""
BLOCK = 65_536
SCALE = {"int16": 2.0**15, "int24": 2.0**23, "int32": 2.0**31}


def samples_of_wav(data: bytes) -> tuple[NDArray[float32], int]:
    """Mono samples in [-1, 1] and their rate in Hz. Raises LeapSerializationError for a WAV that no message takes."""
    import numpy as np

    form, body = read_wav(data)
    if form.encoding == "float32":
        return np.frombuffer(body, "<f4").astype(np.float32), form.sample_rate
    if form.encoding == "int24":
        values: Any = _three_bytes_as_integers(body)
    else:
        values = np.frombuffer(body, "<i2" if form.encoding == "int16" else "<i4")
    return (values.astype(np.float64) / SCALE[form.encoding]).astype(np.float32), form.sample_rate


def at_model_rate(samples: NDArray[float32], rate: int) -> NDArray[float32]:
    """The samples at 16 kHz. Raises LeapSerializationError for a rate that cannot be resampled."""
    import numpy as np

    if rate == RATE:
        return samples
    if not 1000 <= rate <= 768_000:
        raise LeapSerializationError(f"the sound has {rate} samples a second; 1000 to 768000 can be resampled")
    import soxr

    resampled: NDArray[float32] = np.ascontiguousarray(soxr.resample(samples, rate, RATE), np.float32)
    return resampled


def check_length(seconds: float, longest: float = MOST_SECONDS) -> None:
    """Refuse sound that is too short or too long for one piece of a prompt."""
    if seconds < LEAST_SECONDS:
        raise LeapSerializationError(
            f"the sound is too short: {seconds:.3f} s, and at least {LEAST_SECONDS:g} s are needed"
        )
    if seconds > longest:
        raise LeapSerializationError(
            f"the sound is too long: {seconds:.1f} s, and at most {longest:g} s fit into one piece",
            hint="cut it, or use leap transcribe, which cuts at silences",
        )


def tokens_of(samples: int) -> int:
    """Positions that this many samples at 16 kHz take in a prompt: 12.5 a second."""
    frames = samples // 160 + 1
    for _ in range(3):  # the encoder halves three times
        frames = -(-frames // 2)
    return frames


CANCELLED = 1e-4
"""Share of the first channel's power below which a mix of the channels has lost it."""


def as_wav(data: bytes) -> Converted:
    """Sound of any format that libsndfile reads (WAV of every kind, FLAC, OGG, MP3, AIFF, …) as a WAV for a message.

    What a message takes already stays as it is, byte for byte; everything else becomes mono int16 at 16 kHz. Raises
    LeapSerializationError for what is damaged, cut short, empty, not finite, or no sound.
    """
    if len(data) > MOST_BYTES:
        raise LeapSerializationError(
            f"the sound has {len(data) / 1024**2:.0f} MiB; at most {MOST_BYTES // 1024**2} MiB are read"
        )
    if data[:4] == b"RIFF":
        try:
            check_wav(data)
        except LeapSerializationError:
            _check_riff(data)
        else:
            return Converted(data)
    if not data:
        raise LeapSerializationError("the sound is empty (no bytes)")
    samples, source = _decode(data)
    if not len(samples):
        raise LeapSerializationError("the sound is empty (0 samples)")
    return Converted(wav_of_integers(samples), source)


def wav_of_integers(samples: NDArray[float32]) -> bytes:
    """Mono samples in [-1, 1], 16 kHz, as a WAV of int16, louder ones cut off."""
    import wave

    import numpy as np

    output = io.BytesIO()
    with wave.open(output, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32767).round().astype("<i2").tobytes())
    return output.getvalue()


def _check_riff(data: bytes) -> None:
    """Truncation and emptiness are named: libsndfile would read what is there and say nothing."""
    body = read_riff(data).chunks.get(b"data")
    if body is None:
        raise LeapSerializationError("the WAV is truncated before its data chunk")
    if not body:
        raise LeapSerializationError("the WAV is empty (0 samples)")


def _decode(data: bytes) -> tuple[NDArray[float32], str]:
    """Mono samples at 16 kHz, and what was done to get them, in words."""
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            samples = _mono_at_model_rate(file)
            changes = [f"{file.format} decoded"]
            if file.channels > 1:
                name = "stereo" if file.channels == 2 else f"{file.channels} channels"
                changes.append(f"{name} mixed down to mono")
            if file.samplerate != RATE:
                changes.append(f"resampled from {file.samplerate} to {RATE} Hz")
            return samples, ", ".join(changes)
    except LeapSerializationError:
        raise
    except MemoryError:
        raise LeapSerializationError("the sound does not fit into memory") from None
    except Exception as error:  # libsndfile's errors, and what its wrapper makes of damaged headers
        reason = str(error).rpartition(": ")[2].strip().rstrip(".") or type(error).__name__
        raise LeapSerializationError(
            f"not a sound that can be read, or damaged: {reason}",
            hint="WAV, FLAC, OGG, MP3 and AIFF are read; convert others (M4A, AAC, video) first",
        ) from None


def _mono_at_model_rate(file: Any) -> NDArray[float32]:
    """Block by block, so that many channels at a high rate never lie in memory together."""
    import numpy as np
    import soxr

    rate, announced = file.samplerate, file.frames
    if not 1000 <= rate <= 768_000:
        raise LeapSerializationError(f"the sound has {rate} samples a second; 1000 to 768000 can be read")
    most = MOST_HOURS * 3600 * rate
    if most < announced < UNKNOWN_FRAMES:
        raise LeapSerializationError(f"the sound is longer than {MOST_HOURS} hours")
    stream = None if rate == RATE else soxr.ResampleStream(rate, RATE, 1, dtype="float32")
    pieces: list[Any] = []
    frames = 0
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
        frames += len(block)
        if frames > most:
            raise LeapSerializationError(f"the sound is longer than {MOST_HOURS} hours")
        if not np.isfinite(block).all():
            raise LeapSerializationError("the sound has non-finite samples (NaN or infinity)")
        mono = block.mean(axis=1, dtype=np.float64).astype(np.float32)
        if file.channels > 1 and np.square(mono).mean() < CANCELLED * np.square(block[:, 0]).mean():
            mono = np.ascontiguousarray(block[:, 0])  # one channel is the other upside down, so that both cancel out
        pieces.append(mono if stream is None else stream.resample_chunk(mono))
    if frames < announced < UNKNOWN_FRAMES:
        raise LeapSerializationError(f"the sound is truncated: it announces {announced} samples and {frames} follow")
    if stream is not None:
        pieces.append(stream.resample_chunk(np.zeros(0, np.float32), last=True))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def _three_bytes_as_integers(body: bytes) -> Any:
    import numpy as np

    low = np.frombuffer(body, np.uint8).reshape(-1, 3).astype(np.int32)
    values = low[:, 0] | low[:, 1] << 8 | low[:, 2] << 16
    return values - ((values & 0x800000) << 1)


SNIFFED_BYTES = 16
"""That ``kind_of_medium`` looks at."""
JPEG_START = b"\xff\xd8\xff"
_IMAGE_STARTS = (JPEG_START, b"\x89PNG", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_AUDIO_STARTS = (b"RIFX", b"RF64", b"fLaC", b"OggS", *(b"ID3%c" % n for n in range(2, 5)), b".snd\0", b"caff\0")
_PPM_STARTS = tuple(b"P%d" % n for n in range(1, 7))
_MP3_FRAMES = (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa")

Kind = Literal["image", "audio"]


def kind_of_medium(start: bytes) -> Kind | None:
    """``image``, ``audio``, or None for anything else. ``start``: the first SNIFFED_BYTES of the data, or all of it."""
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "image"
    if start.startswith(b"RIFF") or start.startswith(_AUDIO_STARTS) or start.startswith(_MP3_FRAMES):
        return "audio"
    if start.startswith(b"FORM") and start[8:12] in (b"AIFF", b"AIFC"):
        return "audio"
    if start.startswith(_IMAGE_STARTS) and not (start.startswith(b"BM") and len(start) > 9 and any(start[6:10])):
        return "image"  # a text may begin with BM; a bitmap's bytes 6 to 10 are reserved and zero
    if start.startswith(_PPM_STARTS) and re.match(rb"\s+([0-9#]|\Z)", start[2:]):
        return "image"
    if start[4:8] == b"ftyp" and start[8:12] in (b"avif", b"avis"):
        return "image"
    return None
