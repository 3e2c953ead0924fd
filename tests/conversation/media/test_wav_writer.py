"""WAV written while its samples come."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import soundfile

from leap_core.conversation.media.wav import UNKNOWN_LENGTH, WavWriter, check_wav, pcm16, wav_header
from tests.wav_bytes import wav_of


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0) -> int:
        raise OSError("a pipe")


def test_a_file_has_its_length_and_its_samples() -> None:
    samples = np.sin(np.arange(5000) / 10).tolist()
    file = io.BytesIO()
    file.write(b"before")  # the writer touches nothing but its own part
    writer = WavWriter(file, 24_000)
    writer.write(samples[:1000])
    writer.write(samples[1000:])
    writer.finish()
    data = file.getvalue()
    assert data[:6] == b"before"
    assert check_wav(data[6:]).samples == 5000
    read, rate = soundfile.read(io.BytesIO(data[6:]))
    assert rate == 24_000
    np.testing.assert_allclose(read, samples, atol=2 / 32767)  # soundfile divides by 32768
    assert wav_of(samples, 24_000) == data[6:]


def test_a_pipe_gets_a_header_of_unknown_length() -> None:
    pipe = Pipe()
    writer = WavWriter(pipe, 8_000)
    writer.write([0.0, 0.5])
    writer.finish()
    data = pipe.getvalue()
    assert struct.unpack_from("<I", data, 40) == (0xFFFFFFFF,)
    assert check_wav(data).samples == 2
    assert soundfile.info(io.BytesIO(data)).samplerate == 8_000


def test_audio_too_long_for_a_wav_header_is_written_to_its_end() -> None:
    assert struct.unpack_from("<I", wav_header(2**32, 24_000), 40) == (UNKNOWN_LENGTH,)


def test_raw_samples_are_written_without_a_header() -> None:
    file = io.BytesIO()
    writer = WavWriter(file, 8_000, header=False)
    writer.write([0.0, 1.0, -1.0, 7.0, -7.0])
    writer.finish()
    assert file.getvalue() == struct.pack("<5h", 0, 32767, -32767, 32767, -32767) == pcm16([0.0, 1.0, -1.0, 7.0, -7.0])


@pytest.mark.parametrize("count", [0, 1])
def test_the_header_of_short_audio_is_right(count: int) -> None:
    assert len(wav_of([0.1] * count, 24_000)) == 44 + 2 * count
