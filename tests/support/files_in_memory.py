"""Where tests keep their files: in memory where that can be. What leap must not lose it has the disk confirm, and the
suite spent a third of its time on that."""

from __future__ import annotations

import os
import tempfile

from leap_core.system.memory import machine_memory

PLACE = "/dev/shm"
LEAST_FREE, LEAST_MEMORY = 4 << 30, 8 << 30


def use_files_in_memory() -> None:
    """Let temporary files lie in memory, unless TMPDIR says where they go. Programs are among them, and the files of
    all workers at once take some gigabytes."""
    if "TMPDIR" in os.environ or not hasattr(os, "statvfs"):
        return
    try:
        place = os.statvfs(PLACE)
    except OSError:
        return
    may_run = os.access(PLACE, os.W_OK | os.X_OK) and not place.f_flag & os.ST_NOEXEC
    if may_run and place.f_bavail * place.f_frsize >= LEAST_FREE and (machine_memory() or 0) >= LEAST_MEMORY:
        os.environ["TMPDIR"] = tempfile.tempdir = PLACE
