"""WAV sound as the LEAP engine accepts it, read, and written while it comes.

Read with a few lines of struct, not with a decoder, because decoders pass in silence what must be refused here:
a data chunk of size 0, a file cut short, NaN. The layout is RIFF/WAVE (Microsoft's Multimedia Programming Interface).
"""

from __future__ import annotations

import io
import math
import struct
import sys
from collections.abc import Sequence
from typing import IO

from ...errors import LeapSerializationError
from ...system.dataclass import dataclass

PCM, IEEE_FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
ENCODINGS = {(PCM, 16): "int16", (PCM, 24): "int24", (PCM, 32): "int32", (IEEE_FLOAT, 32): "float32"}
SUBFORMAT = bytes.fromhex("000000001000800000aa00389b71")
"""What follows the coding's tag in the GUID of an extensible format that means a plain one."""
UNKNOWN_LENGTH_FROM = 0x7FFF_F000
"""From this announced length on (sox writes this one, ffmpeg the largest there is) the header knows no length."""
BLOCK = 1 << 20
"""Bytes that are looked at in one go."""
ACCEPTED = "mono PCM of float32, int16, int24 or int32 is accepted"


@dataclass(frozen=True)
class WavFormat:
    """``encoding`` is float32, int16, int24 or int32; ``sample_rate`` in Hz; ``samples`` counts mono samples."""

    encoding: str
    sample_rate: int
    samples: int

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.samples / self.sample_rate


def check_wav(data: bytes) -> WavFormat:
    """The format of a WAV file, or LeapSerializationError that names what is wrong with it."""
    return read_wav(data)[0]


def read_wav(data: bytes) -> tuple[WavFormat, bytes]:
    """The format of a WAV file and its samples' bytes. Raises LeapSerializationError naming what is wrong with it."""
    riff = read_riff(data)
    chunks = riff.chunks
    encoding, width, sample_rate = _read_format(chunks.get(b"fmt "))
    body = chunks.get(b"data")
    if body is None:
        raise LeapSerializationError("the WAV is truncated before its data chunk")
    if not body:
        raise LeapSerializationError("the WAV is empty (0 samples)")
    if len(body) % width and not riff.is_streamed:
        raise LeapSerializationError("the WAV is truncated inside a sample")
    body = body[: len(body) // width * width]
    if encoding == "float32":
        _check_body(body)
    return WavFormat(encoding, sample_rate, len(body) // width), body


@dataclass(frozen=True)
class Riff:
    """The first chunk of each name of a RIFF/WAVE file. ``is_streamed``: the header was written before the length was
    known, so the last sample may be cut."""

    chunks: dict[bytes, bytes]
    is_streamed: bool


def read_riff(data: bytes) -> Riff:
    """The chunks of a WAV file. Raises LeapSerializationError for what is none, or truncated.

    A header that announces no length (0, or about 2 GiB and more, as programs write it that cannot go back in a pipe)
    means everything to the end of the data.
    """
    if not data:
        raise LeapSerializationError("the WAV data is empty (no bytes)")
    if data[:4] == b"RIFX":
        raise LeapSerializationError("the WAV is big-endian (RIFX); little-endian RIFF is accepted")
    if len(data) >= 4 and data[:4] != b"RIFF":
        raise LeapSerializationError("not a WAV file (no RIFF header)", hint="convert it to WAV first")
    if len(data) < 12:
        raise LeapSerializationError("the WAV is truncated inside its header")
    if data[8:12] != b"WAVE":
        raise LeapSerializationError("not a WAV file (RIFF, but not WAVE)", hint="convert it to WAV first")
    (size,) = struct.unpack_from("<I", data, 4)
    end = 8 + size
    if not _is_unknown(size):
        chunks = _chunks(data[:end])  # what follows the RIFF is not one of its chunks
        if chunks.get(b"data") != b"" or len(data) <= end:
            return Riff(chunks, is_streamed=False)
    return Riff(_chunks(data, to_the_end=True), is_streamed=True)


def _check_body(body: bytes) -> None:
    """``_check_finite`` for the bytes of float32 samples, block by block: a sound of 200 MB took 2.4 GB."""
    import numpy as np

    for start in range(0, len(body), BLOCK):
        block = np.frombuffer(body[start : start + BLOCK], "<f4")
        if not np.isfinite(block).all():
            _check_finite(block.tolist(), start // 4)


def check_samples(samples: Sequence[float], sample_rate: int) -> None:
    """Refuse empty or non-finite samples and impossible rates."""
    if not isinstance(sample_rate, int) or isinstance(sample_rate, bool):
        raise LeapSerializationError(f"sample_rate {sample_rate!r} is not a whole number of Hz")
    if not 1 <= sample_rate <= 768_000:
        raise LeapSerializationError(f"sample_rate {sample_rate} is outside 1 to 768000 Hz")
    if not samples:
        raise LeapSerializationError("the sound is empty (0 samples)")
    _check_finite(samples)


def as_float32(samples: Sequence[float]) -> tuple[float, ...]:
    """The samples as float32 holds them; numpy's arrays will do. What float32 cannot hold becomes infinite."""
    from array import array  # here, because every prompt would pay for it

    try:
        return tuple(array("f", samples))
    except TypeError:
        raise LeapSerializationError("the samples must be numbers, one a sample (mono)") from None


def wav_from_samples(samples: Sequence[float], sample_rate: int) -> bytes:
    """Mono float32 samples as the bytes of a WAV file."""
    samples = as_float32(samples)
    check_samples(samples, sample_rate)
    body = struct.pack(f"<{len(samples)}f", *samples)
    return wav_header(len(body), sample_rate, coding=IEEE_FLOAT) + body


def _is_unknown(size: int) -> bool:
    return size == 0 or size >= UNKNOWN_LENGTH_FROM


def _chunks(data: bytes, *, to_the_end: bool = False) -> dict[bytes, bytes]:
    """The first chunk of each name. A chunk that runs past the end means the file was cut short. ``to_the_end``:
    samples of unknown length are all that follows."""
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        end = at + 8 + size
        if to_the_end and name == b"data" and _is_unknown(size):
            end = len(data)
        if end > len(data):
            raise LeapSerializationError(
                f"the WAV is truncated: its {name.decode('ascii', 'replace').strip()} chunk announces {size} bytes "
                f"and {len(data) - at - 8} follow"
            )
        chunks.setdefault(name, data[at + 8 : end])
        at = end + (end - at & 1)  # chunks start on even offsets
    return chunks


def _read_format(chunk: bytes | None) -> tuple[str, int, int]:
    if chunk is None or len(chunk) < 16:
        raise LeapSerializationError("the WAV is truncated: it has no complete fmt chunk")
    tag, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", chunk)
    if tag == EXTENSIBLE:
        if len(chunk) < 40:
            raise LeapSerializationError("the WAV is truncated inside its extensible fmt chunk")
        (tag,) = struct.unpack_from("<H", chunk, 24)
        if chunk[26:40] != SUBFORMAT:
            raise LeapSerializationError(f"the WAV is of an unknown coding (GUID {chunk[24:40].hex()}); {ACCEPTED}")
    if tag not in (PCM, IEEE_FLOAT):
        raise LeapSerializationError(f"the WAV is compressed or of an unknown coding (format tag {tag}); {ACCEPTED}")
    if channels != 1:
        name = "stereo" if channels == 2 else f"{channels} channels"
        raise LeapSerializationError(f"the WAV is {name}; only mono is accepted", hint="downmix it to mono first")
    encoding = ENCODINGS.get((tag, bits))
    if encoding is None:
        kind = "float" if tag == IEEE_FLOAT else "int"
        raise LeapSerializationError(f"the WAV's samples are {kind}{bits}; {ACCEPTED}")
    if frame != bits // 8:
        raise LeapSerializationError(f"the WAV has {bits}-bit samples in blocks of {frame} bytes; {ACCEPTED}, packed")
    if rate == 0:
        raise LeapSerializationError("the WAV's sample rate is 0 Hz")
    return encoding, bits // 8, rate


def _check_finite(samples: Sequence[float], first: int = 0) -> None:
    # One fast sum shows it: float32 values cannot overflow a double's sum, so it is finite exactly when all are.
    if math.isfinite(sum(samples)):
        return
    index, value = next((n, v) for n, v in enumerate(samples, first) if not math.isfinite(v))
    raise LeapSerializationError(f"the sound has a non-finite sample ({value}) at index {index}")


UNKNOWN_LENGTH = 0xFFFF_FFFF
"""What programs read as "to the end", as ffmpeg writes it into a pipe."""
BYTES_A_SAMPLE = 2
HEADER_BYTES = 44


class WavWriter:
    """Writes sound of ``sample_rate`` Hz to ``stream``, which stays open: mono, or the samples of several ``channels``
    in turns.

    ``header``: False leaves the bare little-endian samples. The header's lengths are unknown until ``finish``, and stay
    so in a stream that cannot be sought.
    """

    def __init__(self, stream: IO[bytes], sample_rate: int, *, header: bool = True, channels: int = 1) -> None:
        self._stream = stream
        self._rate = sample_rate
        self._header = header
        self._channels = channels
        self.samples = 0
        """Samples written so far."""
        if header:
            stream.write(wav_header(UNKNOWN_LENGTH, sample_rate, channels))

    def write(self, samples: Sequence[float]) -> None:
        """Add samples in [-1, 1]; louder ones are cut off."""
        self._stream.write(pcm16(samples))
        self._stream.flush()
        self.samples += len(samples)

    def finish(self) -> None:
        """Put the length into the header where the stream allows it."""
        if self._header and self._stream.seekable():
            end = self._stream.tell()
            self._stream.seek(end - HEADER_BYTES - self.samples * BYTES_A_SAMPLE)
            self._stream.write(wav_header(self.samples * BYTES_A_SAMPLE, self._rate, self._channels))
            self._stream.seek(end)
        self._stream.flush()


def wav_header(data_bytes: int, sample_rate: int, channels: int = 1, coding: int = PCM) -> bytes:
    """The head of a WAV file of 16-bit samples, or of float32."""
    bytes_a_sample = BYTES_A_SAMPLE if coding == PCM else 4
    width = channels * bytes_a_sample
    layout = struct.pack("<HHIIHH", coding, channels, sample_rate, sample_rate * width, width, 8 * bytes_a_sample)
    riff = min(UNKNOWN_LENGTH, data_bytes + HEADER_BYTES - 8)
    return (
        struct.pack("<4sI4s4sI", b"RIFF", riff, b"WAVE", b"fmt ", 16)
        + layout
        + struct.pack("<4sI", b"data", min(UNKNOWN_LENGTH, data_bytes))
    )


def pcm16(samples: Sequence[float]) -> bytes:
    """Samples in [-1, 1] as little-endian 16-bit numbers; louder ones are cut off."""
    from array import array

    values = array("h", (round(max(-1.0, min(1.0, sample)) * 32767) for sample in samples))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def encoded_sound(samples: bytes, sample_rate: int, format: str) -> bytes:
    """16-bit mono samples as mp3, opus (in Ogg) or flac, by libsndfile. Raises LeapSerializationError where that cannot
    write them."""
    import numpy as np
    import soundfile

    container, coding = {"mp3": ("MP3", None), "opus": ("OGG", "OPUS"), "flac": ("FLAC", None)}[format]
    file = io.BytesIO()
    try:
        soundfile.write(file, np.frombuffer(samples, "<i2"), sample_rate, format=container, subtype=coding)
    except (soundfile.LibsndfileError, ValueError) as error:
        message = f"libsndfile cannot write {format} here: {error}"
        raise LeapSerializationError(message, path="response_format") from None
    return file.getvalue()
