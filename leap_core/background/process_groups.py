"""A process with whatever it starts: begun so that it opens no window, ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

OF_A_SESSION = sys.platform != "win32"
"""``start_new_session`` of ``subprocess.Popen``: the process leads a group of its own."""
CREATION_FLAGS = 0
"""``creationflags`` of it. On Windows the process and its children have a console that nobody sees; without one each of
them would open a window."""
if sys.platform == "win32":
    CREATION_FLAGS = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW


def kill_group(pid: int) -> None:
    """End the process and whatever it started, at once. Nothing is raised for one that has ended."""
    if sys.platform == "win32":
        with suppress(OSError):
            command = ["taskkill", "/F", "/T", "/PID", str(pid)]
            subprocess.run(command, capture_output=True, check=False, creationflags=subprocess.CREATE_NO_WINDOW)
    else:
        with suppress(OSError):
            if os.getpgid(pid) == pid:  # it leads a group of its own, unless it runs in a terminal
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
