"""What a medium became so that a message takes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import LeapSerializationError


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
