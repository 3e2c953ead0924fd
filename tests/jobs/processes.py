"""Looking after real processes on Linux: which belong to a test's data directory, and which are whose children."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path


def of_home(home: Path) -> dict[int, str]:
    """Processes whose LEAP_HOME is this: pid -> command line. The dead that nobody has buried count too."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            with suppress(OSError):
                if f"LEAP_HOME={home}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def named(home: Path, part: str) -> list[int]:
    """The processes of this data directory with ``part`` in their command line."""
    return [pid for pid, command in of_home(home).items() if part in command]


def stop_between_writes(pid: int, table: Path) -> None:
    """SIGSTOP for a process that holds no lock on the SQLite file ``table`` just then."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        while "\nState:\tT" not in Path(f"/proc/{pid}/status").read_text():  # it leaves the kernel first
            time.sleep(0.001)
        try:
            with closing(sqlite3.connect(table, timeout=0.5, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                return
        except sqlite3.OperationalError:
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.1)
