"""Reading and writing at a place of an open file, also where the system has no call for that (Windows)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BINARY = getattr(os, "O_BINARY", 0)
"""The flag with which ``os.open`` translates no line ends on Windows; 0 elsewhere."""
_POSITIONS = threading.Lock()


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """At most ``length`` bytes from ``offset`` on. The file's own position stays."""
    if sys.platform != "win32" and hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    with _moved_to(descriptor, offset):
        return os.read(descriptor, length)


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    """Write at ``offset``; how many bytes were written. The file's own position stays."""
    if sys.platform != "win32" and hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    with _moved_to(descriptor, offset):
        return os.write(descriptor, data)


@contextmanager
def _moved_to(descriptor: int, offset: int) -> Iterator[None]:
    with _POSITIONS:
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, offset, os.SEEK_SET)
        try:
            yield
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)
