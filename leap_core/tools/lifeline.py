"""Ends a tool's processes when this process dies, however it dies.

A shell of two lines reads a pipe whose other end only this process holds. A line on it means that the tool has ended;
its end without a line means that this process is gone, and then the tool's process group is killed. It costs one fork.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from types import TracebackType

SHELL = "/bin/sh"
WATCH = 'trap "" HUP INT TERM; read group && { read done || kill -s KILL -- "-$group"; }'


class Lifeline:
    """Is started before the tool, which then is tied to it, and let go of when the tool has ended. Without a POSIX
    shell nothing is watched."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[bytes] | None = None
        if os.name == "posix":
            with suppress(OSError):
                self._watcher = subprocess.Popen(
                    [SHELL, "-c", WATCH],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )

    def tie(self, group: int) -> None:
        """Kill this process group when this process dies."""
        self._write(f"{group}\n")

    def release(self) -> None:
        """The processes have ended."""
        if self._watcher is None:
            return
        self._write("done\n")
        assert self._watcher.stdin is not None
        with suppress(OSError):
            self._watcher.stdin.close()
        self._watcher.wait()

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _write(self, line: str) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            with suppress(OSError):
                self._watcher.stdin.write(line.encode())
                self._watcher.stdin.flush()
