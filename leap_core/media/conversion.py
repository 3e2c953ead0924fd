"""What a medium became so that a message takes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Converted:
    """``data``: JPEG or WAV bytes. ``changes``: what had to be done for it, in words; empty for nothing."""

    data: bytes
    changes: str = ""
