"""Mutated JPEG, PNG and WAV files: each is read, or refused by one LeapSerializationError; nothing else may happen.

    python -m tests.conversation.media.fuzz 5000

counts both per format. The suite runs a short form (test_fuzz.py).
"""

from __future__ import annotations

import io
import random
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable

import numpy as np
import soundfile
from PIL import Image

from leap_core.conversation.media.audio import as_wav, at_model_rate, samples_of_wav
from leap_core.conversation.media.images import as_jpeg, decode_image
from leap_core.errors import LeapSerializationError


def _picture(format: str, size: int, **options: object) -> bytes:
    down, across = np.mgrid[0:size, 0:size]
    pixels = np.stack([across * 3 % 256, down * 5 % 256, (across ^ down) % 256], -1).astype(np.uint8)
    output = io.BytesIO()
    Image.fromarray(pixels).save(output, format, **options)
    return output.getvalue()


def _sound(subtype: str, channels: int = 1) -> bytes:
    output = io.BytesIO()
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, (800, channels))
    soundfile.write(output, samples, 16_000, format="WAV", subtype=subtype)
    return output.getvalue()


SEEDS: dict[str, list[bytes]] = {
    "jpeg": [_picture("JPEG", 64), _picture("JPEG", 48, progressive=True), _picture("JPEG", 32, quality=20)],
    "png": [_picture("PNG", 64), _picture("PNG", 32, optimize=True)],
    "wav": [_sound("PCM_16"), _sound("FLOAT"), _sound("PCM_24"), _sound("PCM_16", 2), _sound("IMA_ADPCM")],
}


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A few bytes changed, mostly near the header; runs removed, doubled or cut off."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        near = min(len(changed), 64) if dice.random() < 0.6 else len(changed)
        at = dice.randrange(near)
        match dice.randrange(6):
            case 0 | 1:
                changed[at] = dice.randrange(256)
            case 2:
                changed[at] ^= 1 << dice.randrange(8)
            case 3:
                changed[at : at + 4] = dice.choice(
                    (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x80")
                )
            case 4:
                del changed[at : at + dice.randrange(1, 64)]
            case _:
                changed[at:at] = changed[at : at + dice.randrange(1, 64)]
    return bytes(changed[: dice.randrange(len(changed) + 1)] if dice.random() < 0.1 else changed)


def with_checksums(data: bytes) -> bytes:
    """A PNG whose chunks' checksums are right again, so that its decoder goes on reading."""
    mended, at = bytearray(data), 8
    while at + 12 <= len(mended):
        (length,) = struct.unpack_from(">I", mended, at)
        end = at + 8 + length
        if end + 4 > len(mended):
            break
        struct.pack_into(">I", mended, end, zlib.crc32(mended[at + 4 : end]))
        at = end + 4
    return bytes(mended)


def _read_picture(data: bytes) -> None:
    decode_image(data)
    as_jpeg(data)


def _read_sound(data: bytes) -> None:
    """Both ways in: as a message, and as a file that is converted."""
    error = None
    try:
        samples, rate = samples_of_wav(data)
        at_model_rate(samples, rate)
    except LeapSerializationError as refusal:
        error = refusal
    as_wav(data)
    if error is not None:
        raise error


READERS: dict[str, Callable[[bytes], None]] = {"jpeg": _read_picture, "png": _read_picture, "wav": _read_sound}


def run(count: int, seed: int = 1) -> Counter[tuple[str, bool]]:
    """Read ``count`` mutated files; returns how many of each format were read (True) or refused (False)."""
    dice = random.Random(seed)
    outcomes: Counter[tuple[str, bool]] = Counter()
    for _ in range(count):
        format = dice.choice(tuple(SEEDS))
        data = mutated(dice.choice(SEEDS[format]), dice)
        if format == "png" and dice.random() < 0.7:
            data = with_checksums(data)
        try:
            READERS[format](data)
            outcomes[format, True] += 1
        except LeapSerializationError as error:
            assert str(error), "a refusal says why"
            outcomes[format, False] += 1
    return outcomes


if __name__ == "__main__":
    for (format, was_read), number in sorted(run(int(sys.argv[1]) if sys.argv[1:] else 5000).items()):
        print(f"{format:5} {'read   ' if was_read else 'refused'} {number}")
