"""Sounds and pictures are not expanded to many times their size on the way in."""

from __future__ import annotations

import io
import struct
import threading
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from leap_core import LeapSerializationError
from leap_core.conversation.media.images import decode_image
from leap_core.conversation.media.wav import read_wav


def float_wav(samples: np.ndarray) -> bytes:
    body = samples.astype("<f4").tobytes()
    form = struct.pack("<HHIIHH", 3, 1, 16_000, 64_000, 4, 32)
    chunks = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def test_float_audio_takes_little_more_memory_than_its_bytes():
    """It took nine times its size, and more as a message."""
    data = float_wav(np.zeros(5_000_000))
    tracemalloc.start()
    try:
        assert read_wav(data)[0].samples == 5_000_000
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
    finally:
        tracemalloc.stop()


def test_a_nan_sample_is_named_by_its_position():
    samples = np.zeros(600_000)
    samples[500_001] = np.nan
    with pytest.raises(LeapSerializationError, match="nan.* at index 500001"):
        read_wav(float_wav(samples))


def test_sixteen_bit_images_are_scaled_in_strips_with_equal_results():
    values = (np.arange(1000 * 700, dtype=np.uint32) * 97 % 65_536).astype(np.uint16).reshape(1000, 700)
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    tracemalloc.start()
    try:
        decoded = np.asarray(decode_image(file.getvalue()))
        assert tracemalloc.get_traced_memory()[1] < 12 * values.size, "it was 24 bytes a pixel"
    finally:
        tracemalloc.stop()
    assert (decoded[..., 0] == np.round(values * (255 / 65_535))).all()


def test_decoding_images_in_threads_does_not_change_warning_filters():
    import warnings

    file = io.BytesIO()
    Image.new("RGB", (300, 300), "red").save(file, "PNG")
    before, sizes = list(warnings.filters), []
    threads = [threading.Thread(target=lambda: sizes.append(decode_image(file.getvalue()).size)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [(300, 300)] * 8 and list(warnings.filters) == before
