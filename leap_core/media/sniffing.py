"""What kind of medium a file is, by its first bytes."""

from __future__ import annotations

from typing import Literal

SNIFFED_BYTES = 16
"""That ``kind_of_medium`` looks at."""
JPEG_START = b"\xff\xd8\xff"
_IMAGE_STARTS = (JPEG_START, b"\x89PNG", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
_AUDIO_STARTS = (b"RIFX", b"RF64", b"fLaC", b"OggS", b"ID3", b".snd", b"caff")
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
    if start.startswith(_PPM_STARTS) and start[2:3].isspace():
        return "image"
    if start[4:8] == b"ftyp" and start[8:12] in (b"avif", b"avis"):
        return "image"
    return None
