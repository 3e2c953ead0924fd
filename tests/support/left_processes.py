"""Processes that a run of the tests started and left. Each has the run's mark in its environment (Linux)."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

MARK = "TESTS_OF_LEAP"
"""The variable; its value names the run."""


def marked(run: str) -> dict[int, str]:
    """The other processes of a run that live: pid -> command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if int(path.name) != os.getpid() and f"{MARK}={run}".encode() in (path / "environ").read_bytes().split(
                b"\0"
            ):
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(path.name)] = command.strip()
    return found


def left(run: str, seconds: float) -> dict[int, str]:
    """Those that have not ended by themselves after so long."""
    deadline = time.monotonic() + seconds
    while (found := marked(run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
