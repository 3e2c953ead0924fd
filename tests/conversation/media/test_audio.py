"""Sound: what is converted, what is refused and under which name, and what becomes of the samples."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
import soundfile

from leap_core.conversation.media.audio import RATE, as_wav, at_model_rate, check_length, samples_of_wav, tokens_of
from leap_core.conversation.media.wav import check_wav, wav_from_samples
from leap_core.errors import LeapSerializationError

SECOND = np.sin(np.arange(RATE) * (2 * np.pi * 440 / RATE)).astype(np.float32) * 0.5


def sound(samples: Any = SECOND, rate: int = RATE, format: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=format, subtype=subtype)
    return file.getvalue()


def streamed(data: bytes, size: int) -> bytes:
    """A WAV as a program writes it that cannot go back to its header: RIFF and data announce ``size``."""
    at = data.index(b"data")
    return data[:4] + struct.pack("<I", size) + data[8 : at + 4] + struct.pack("<I", size) + data[at + 8 :]


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_32", "FLOAT"])
def test_every_accepted_encoding_has_the_same_samples(subtype: str) -> None:
    samples, rate = samples_of_wav(sound(subtype=subtype))
    assert rate == RATE and samples.dtype == np.float32
    assert np.abs(samples - SECOND).max() < 2e-5 * (2 if subtype == "PCM_16" else 1)


def test_another_sample_rate_is_resampled() -> None:
    high = np.sin(np.arange(48_000) * (2 * np.pi * 440 / 48_000)).astype(np.float32) * 0.5
    low = at_model_rate(high, 48_000)
    assert len(low) == RATE
    assert np.abs(low[400:-400] - SECOND[400:-400]).max() < 1e-3
    for rate in (0, 999, 800_000):
        with pytest.raises(LeapSerializationError, match="samples a second"):
            at_model_rate(high, rate)


def test_accepted_audio_is_not_converted() -> None:
    for data in (sound(subtype="PCM_16"), sound(rate=44_100, subtype="FLOAT"), streamed(sound(), 0xFFFFFFFF)):
        assert as_wav(data).data is data and as_wav(data).changes == ""


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (sound(format="FLAC"), "FLAC decoded"),
        (sound(format="OGG"), "OGG decoded"),
        (sound(format="MP3"), "MP3 decoded"),
        (sound(format="AIFF"), "AIFF decoded"),
        (sound(subtype="ULAW"), "WAV decoded"),
        (sound(subtype="PCM_U8"), "WAV decoded"),
        (sound(subtype="DOUBLE"), "WAV decoded"),
        (sound(np.stack([SECOND, SECOND], 1)), "WAV decoded, stereo mixed down to mono"),
        (sound(np.stack([SECOND] * 5, 1), 8000), "WAV decoded, 5 channels mixed down to mono, resampled from 8000"),
        (sound(SECOND, 44_100, "FLAC"), "FLAC decoded, resampled from 44100 to 16000 Hz"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_audio_is_converted_and_the_changes_are_reported(data: bytes, changes: str) -> None:
    converted = as_wav(data)
    assert converted.changes.startswith(changes)
    form = check_wav(converted.data)
    assert (form.encoding, form.sample_rate) == ("int16", RATE)
    seconds = soundfile.info(io.BytesIO(data)).duration
    assert abs(form.seconds - seconds) < 0.1  # MP3 pads its frames
    samples, _ = samples_of_wav(converted.data)
    assert 0.3 < np.abs(samples).max() < 0.6


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
@pytest.mark.parametrize("cut", [0, 1])
def test_a_header_of_unknown_length_is_read_to_the_end(size: int, cut: int) -> None:
    data = streamed(sound(subtype="PCM_16"), size)
    samples, _ = samples_of_wav(data[: len(data) - cut])
    assert len(samples) == RATE - cut
    assert np.abs(samples - SECOND[: len(samples)]).max() < 4e-5


def test_a_header_without_length_from_a_pipe_is_read_to_the_end() -> None:
    """As Python's wave module writes it, which counts nothing before it has all."""
    whole = sound(subtype="PCM_16")
    at = whole.index(b"data")
    data = whole[:4] + struct.pack("<I", at) + whole[8 : at + 4] + struct.pack("<I", 0) + whole[at + 8 :]
    assert check_wav(data).samples == RATE


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"some text, no sound at all", "not a sound"),
        (b"\xff\xd8\xff\xe0 a picture", "not a sound"),
        (sound(np.zeros((0, 2))), "empty"),
        (sound(np.zeros(0), format="FLAC"), "empty"),
        (sound(np.stack([SECOND, SECOND], 1))[:-1000], "truncated"),
        (sound(np.stack([SECOND, SECOND], 1))[:20], "truncated"),
        (sound()[:-1000], "truncated"),
        (sound(np.full((1600, 2), np.nan), subtype="FLOAT"), "non-finite"),
        (sound(np.full(1600, np.inf), subtype="DOUBLE"), "non-finite"),
        (sound(np.full(1600, np.nan), subtype="FLOAT"), "non-finite"),
        (sound(np.stack([SECOND, SECOND], 1), rate=500), "500 samples a second"),
    ],
)
def test_each_invalid_file_has_its_own_error(data: bytes, says: str) -> None:
    with pytest.raises(LeapSerializationError, match=says):
        as_wav(data)


@pytest.mark.parametrize("format", ["FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("part", [0.02, 0.5, 0.9])
def test_truncated_compressed_audio_is_refused_or_shorter(format: str, part: float) -> None:
    """FLAC and MP3 announce their length; OGG is a stream that ends wherever it ends."""
    data = sound(np.tile(SECOND, 5), format=format)
    try:
        converted = as_wav(data[: int(len(data) * part)])
    except LeapSerializationError:
        return
    assert format == "OGG"
    assert check_wav(converted.data).seconds < 5


def test_the_length_of_audio_is_checked() -> None:
    check_length(0.1)
    check_length(60.0)
    with pytest.raises(LeapSerializationError, match="too short: 0.020 s"):
        check_length(0.02)
    with pytest.raises(LeapSerializationError, match="too long: 61.0 s, and at most 60 s"):
        check_length(61.0)
    with pytest.raises(LeapSerializationError, match="at most 30 s"):
        check_length(31.0, longest=30.0)


def test_the_token_count_of_audio() -> None:
    assert [tokens_of(int(seconds * RATE)) for seconds in (0.1, 1, 10, 60, 300)] == [2, 13, 126, 751, 3751]


def test_float_samples_of_a_message_are_the_same_after_reading() -> None:
    samples, rate = samples_of_wav(wav_from_samples(SECOND.tolist(), 24_000))
    assert rate == 24_000 and np.array_equal(samples, SECOND)


def test_channels_that_cancel_out_do_not_mix_to_silence() -> None:
    both = np.stack([SECOND, -SECOND], axis=1)
    samples, _ = samples_of_wav(as_wav(sound(both, format="FLAC")).data)
    assert np.sqrt(np.mean(np.square(samples))) > 0.5 * np.sqrt(np.mean(np.square(SECOND)))
