"""Starting the worker when there is work and none runs: detached, so that it outlives the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from leap_core.storage.directories import child_environment
from leap_core.storage.locks import is_locked

from ..configuration import Places

LONGEST_LOG = 4 * 1024 * 1024
WORKER = [sys.executable, "-m", "jobs.worker"]


def is_running(places: Places) -> bool:
    """Whether a worker serves these places."""
    return is_locked(places.worker_lock, shared=True)


def start_worker(places: Places, variables: Mapping[str, str] | None = None) -> None:
    """Start a worker. When one runs already, or is being started too, the surplus one ends by itself."""
    places.worker_log.parent.mkdir(parents=True, exist_ok=True)
    detached: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        detached = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
    with suppress(OSError):
        if places.worker_log.stat().st_size > LONGEST_LOG:
            os.replace(places.worker_log, places.worker_log.with_suffix(".log.1"))
    with places.worker_log.open("ab") as log:
        process = subprocess.Popen(
            WORKER,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=places.directories.data,
            env=child_environment(variables),
            **detached,
        )
    threading.Thread(target=_reap, args=(process.pid,), daemon=True).start()
    process.returncode = 0  # it lives on, and nobody waits for it


def _reap(pid: int) -> None:
    """So that a worker which ends before this process does is not left as a zombie."""
    with suppress(OSError):
        os.waitpid(pid, 0)
