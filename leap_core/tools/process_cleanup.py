"""Ends a tool's processes when this process dies, however it dies.

A shell of two lines reads a pipe whose other end only this process holds. A line on it means that the tool has ended;
its end without a line means that this process is gone, and then the tool's process group is killed. The tool writes its
group itself, by another pipe and before it runs, so that this process may die at any moment.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress

SHELL = "/bin/sh"
WATCH = 'trap "" HUP INT TERM; read group < "$0" && { read done || kill -s KILL -- "-$group"; }'
TELL = 'echo $$ > "$0" && exec "$@"'
"""Writes the process's id to its first argument, and becomes the command that follows."""


class Lifeline:
    """Is started before the tool, which then is tied to it, and let go of when the tool has ended. Without a POSIX
    shell nothing is watched."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[bytes] | None = None
        self._telling: int | None = None
        if os.name != "posix":
            return
        pipe, self._telling = os.pipe()
        with suppress(OSError):
            self._watcher = subprocess.Popen(
                [SHELL, "-c", WATCH, f"/dev/fd/{pipe}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[pipe],
            )
        os.close(pipe)

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that ties itself and becomes ``argv``; it needs ``descriptors``."""
        return list(argv) if self._watcher is None else [SHELL, "-c", TELL, f"/dev/fd/{self._telling}", *argv]

    @property
    def descriptors(self) -> list[int]:
        """What ``command`` inherits."""
        return [] if self._watcher is None or self._telling is None else [self._telling]

    def tie(self, group: int) -> None:
        """Kill this process group when this process dies."""
        if self._telling is not None:
            with suppress(OSError):
                os.write(self._telling, f"{group}\n".encode())

    def release(self) -> None:
        """The processes have ended, or none was started."""
        if self._telling is not None:
            os.close(self._telling)
            self._telling = None
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        assert watcher.stdin is not None
        with suppress(OSError), watcher.stdin:
            watcher.stdin.write(b"done\n")
        watcher.wait()

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
