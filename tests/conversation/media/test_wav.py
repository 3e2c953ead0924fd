"""WAV sound: what is accepted, and each refusal by name."""

from __future__ import annotations

import io
import math
import struct

import numpy as np
import pytest
import soundfile

from leap_core.conversation.media.wav import check_wav
from leap_core.conversation.messages import Audio, AudioPcmF32
from leap_core.errors import LeapSerializationError

SINE = np.sin(np.arange(1600) / 8.0) * 0.5


def wav(samples=SINE, rate=16000, subtype="FLOAT", format="WAV", endian="LITTLE"):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, subtype=subtype, format=format, endian=endian)
    return file.getvalue()


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if size is None else size) + body + b"\0" * (len(body) % 2)


def fmt(tag=3, channels=1, rate=16000, bits=32) -> bytes:
    width = channels * bits // 8
    return chunk(b"fmt ", struct.pack("<HHIIHH", tag, channels, rate, rate * width, width, bits))


@pytest.mark.parametrize(
    ("subtype", "encoding"), [("FLOAT", "float32"), ("PCM_16", "int16"), ("PCM_24", "int24"), ("PCM_32", "int32")]
)
@pytest.mark.parametrize("format", ["WAV", "WAVEX"])
@pytest.mark.parametrize("rate", [8000, 16000, 44100, 192000])
def test_every_accepted_encoding(subtype, encoding, format, rate):
    found = Audio(wav(subtype=subtype, format=format, rate=rate)).format
    assert (found.encoding, found.sample_rate, found.samples) == (encoding, rate, 1600)
    assert found.seconds == 1600 / rate


def test_unknown_chunks_and_odd_sizes_are_skipped():
    data = riff(chunk(b"LIST", b"odd"), fmt(), chunk(b"fact", b"\0" * 4), chunk(b"data", struct.pack("<2f", 0.5, -0.5)))
    assert check_wav(data).samples == 2


def test_data_after_the_riff_is_ignored_and_a_streamed_one_is_read_to_its_end():
    data = riff(fmt(1, bits=16), chunk(b"data", b"\0" * 4))
    assert check_wav(data + b"TAG" + b"x" * 125).samples == 2
    assert check_wav(data[:4] + b"\0" * 4 + data[8:]).samples == 2


def extensible(guid: bytes) -> bytes:
    plain = fmt(0xFFFE, bits=16)[8:]
    return chunk(b"fmt ", plain + struct.pack("<HHI", 22, 16, 4) + guid)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (riff(extensible(bytes.fromhex("010000002107d31186440050c24b1e2a")), chunk(b"data", b"\0" * 4)), "GUID 0100"),
        (riff(extensible(b"\1\0"), chunk(b"data", b"\0" * 4)), "truncated inside its extensible"),
        (
            riff(chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 16000, 64000, 4, 24)), chunk(b"data", b"\0" * 12)),
            "24-bit samples in blocks of 4 bytes",
        ),
        (b"", "empty"),
        (b"RI", "truncated inside its header"),
        (b"ID3\x04 an mp3 file", "not a WAV file"),
        (b"some text that is no sound", "not a WAV file"),
        (b"RIFF\x10\0\0\0AVI LIST....", "RIFF, but not WAVE"),
        (wav(endian="BIG", format="WAV"), "big-endian"),
        (wav(np.stack([SINE, SINE], axis=1)), "stereo"),
        (wav(np.stack([SINE] * 3, axis=1)), "3 channels"),
        (wav(subtype="ULAW"), "compressed"),
        (wav(subtype="ALAW"), "compressed"),
        (wav(subtype="MS_ADPCM"), "compressed"),
        (wav(subtype="PCM_U8"), "int8"),
        (wav(subtype="DOUBLE"), "float64"),
        (wav(np.zeros(0)), "empty"),
        (riff(fmt(), chunk(b"data", b"")), "empty"),
        (wav()[:-1], "truncated"),
        (wav()[:-1000], "truncated"),
        (wav()[:30], "truncated"),
        (wav()[:13], "truncated"),
        (riff(fmt()), "truncated before its data"),
        (riff(chunk(b"data", b"\0" * 4)), "no complete fmt chunk"),
        (riff(fmt(), chunk(b"data", b"\0" * 4, size=400)), "announces 400 bytes and 4 follow"),
        (riff(fmt(), chunk(b"data", b"\0" * 6)), "truncated inside a sample"),
        (riff(fmt(rate=0), chunk(b"data", b"\0" * 4)), "0 Hz"),
        (wav(np.array([0.0, np.nan])), "non-finite"),
        (wav(np.array([0.0, 0.1, np.inf])), r"non-finite sample \(inf\) at index 2"),
        (wav(np.array([-np.inf, np.inf])), "non-finite"),
    ],
    ids=lambda value: value if isinstance(value, str) else "data",
)
def test_each_invalid_file_has_its_own_error(data, says):
    with pytest.raises(LeapSerializationError, match=says):
        Audio(data)


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_file_cut_anywhere_is_refused(cut):
    data = riff(fmt(), chunk(b"data", struct.pack("<4f", 0.1, 0.2, 0.3, 0.4)))
    assert check_wav(data).samples == 4
    if cut < len(data):
        with pytest.raises(LeapSerializationError):
            check_wav(data[: len(data) - cut])


@pytest.mark.parametrize(
    "samples", [[0.0, 0.25, -1.0], (0.5,), SINE, SINE.astype(np.float32)], ids=["list", "tuple", "f64", "f32"]
)
def test_float_samples_become_a_wav_that_other_programs_read(samples):
    data = Audio.from_float_samples(samples, 24000).data
    read, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert rate == 24000
    assert np.array_equal(read, np.asarray(samples, dtype=np.float32))


@pytest.mark.parametrize(
    ("samples", "rate", "says"),
    [
        ([], 16000, "empty"),
        (np.zeros(0), 16000, "empty"),
        ([0.0, math.nan], 16000, "non-finite"),
        ([0.0, math.inf], 16000, "non-finite"),
        ([1e308, 1e308], 16000, "non-finite"),
        ([0.0], 0, "sample_rate 0"),
        ([0.0], -5, "sample_rate -5"),
    ],
)
@pytest.mark.parametrize("make", [Audio.from_float_samples, AudioPcmF32])
def test_invalid_samples_are_refused(make, samples, rate, says):
    with pytest.raises(LeapSerializationError, match=says):
        make(samples, rate)
