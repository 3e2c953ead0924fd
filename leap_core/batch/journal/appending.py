"""Appending to a file so that a failed write leaves no part of it behind."""

from __future__ import annotations

import os
from contextlib import suppress


def append_whole(descriptor: int, data: bytes) -> None:
    """Append all of ``data``. When that fails (a full disk) the file is cut back to what it was, and OSError raised."""
    before = os.fstat(descriptor).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, before)
        raise
