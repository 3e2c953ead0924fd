"""Sound written while it comes: 16-bit, as WAV or bare samples."""

from __future__ import annotations

import io
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import BinaryIO

from ..errors import LeapSerializationError
from .wav import PCM

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

    def __init__(self, stream: BinaryIO, sample_rate: int, *, header: bool = True, channels: int = 1) -> None:
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


def wav_header(data_bytes: int, sample_rate: int, channels: int = 1) -> bytes:
    """The head of a WAV file of 16-bit samples."""
    width = channels * BYTES_A_SAMPLE
    layout = struct.pack("<HHIIHH", PCM, channels, sample_rate, sample_rate * width, width, 16)
    riff = min(UNKNOWN_LENGTH, data_bytes + HEADER_BYTES - 8)
    return (
        struct.pack("<4sI4s4sI", b"RIFF", riff, b"WAVE", b"fmt ", 16)
        + layout
        + struct.pack("<4sI", b"data", min(UNKNOWN_LENGTH, data_bytes))
    )


def pcm16(samples: Sequence[float]) -> bytes:
    """Samples in [-1, 1] as little-endian 16-bit numbers; louder ones are cut off."""
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
