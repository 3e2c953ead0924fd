"""Processes of this machine by pid, distinguished from later ones that got the same pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def start_time(pid: int) -> str | None:
    """When the process began, as the system writes it; None when it has ended, or there is no way to know."""
    if sys.platform.startswith("linux"):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        if fields[0] in ("Z", "X"):  # ended, and its parent has not taken note yet
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {fields[19]}"  # proc(5): field 22, clock ticks since boot
    if sys.platform == "win32":
        from .windows_processes import creation_time

        return creation_time(pid)
    variables = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}  # the same words for every reader
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    return done.stdout.strip() or None


def terminate(pid: int, started: str | None, *, kill: bool = False) -> bool:
    """Ask the process to end (or, with ``kill``, end it), if it is still the one that began then."""
    if started is None or start_time(pid) != started:
        return False
    number = signal.SIGTERM
    if sys.platform != "win32" and kill:
        number = signal.SIGKILL
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def resident_bytes(pid: int | None = None) -> int | None:
    """Memory that the process (this one by default) occupies now, or None where that is not cheap to find out."""
    if sys.platform == "win32":
        return None
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1])
        return int(pages * os.sysconf("SC_PAGE_SIZE"))
    return None
