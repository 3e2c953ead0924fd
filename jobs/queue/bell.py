"""A bell between processes of one machine: a writer of a file rings, and the worker wakes at once.

It is a named pipe (FIFO), so a worker that waits costs nothing. Where there are none, such as on Windows, or no worker
listens, ringing does nothing, and the worker looks into the file now and then.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

WITHOUT_BELL_SECONDS = 0.05
"""Where there are no named pipes, the queue is looked at this often."""


def ring(path: Path) -> None:
    """Wake the process that waits at this bell, if there is one."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # no worker listens, or it rings already
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, b"!")
        finally:
            os.close(descriptor)


class Bell:
    """The waiting side. ``wait`` returns when it rings, and after ``seconds`` at the latest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = _open(path)

    def wait(self, seconds: float) -> None:
        if self._descriptor is None:
            time.sleep(min(seconds, WITHOUT_BELL_SECONDS))
        elif select.select([self._descriptor], [], [], seconds)[0]:
            with suppress(BlockingIOError):
                os.read(self._descriptor, 1 << 16)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self.path.unlink(missing_ok=True)


def _open(path: Path) -> int | None:
    """A pipe of this process's own: one that an earlier process left may be anything. None where there are none."""
    if sys.platform == "win32":
        return None
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)  # also for writing: without a writer it would be readable always
