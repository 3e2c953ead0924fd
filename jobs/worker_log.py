"""What the worker and its processes report: on standard error, which is worker.log unless a terminal shows it."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from leap_core.system.processes import LONGEST_LOG

REPEATED_SECONDS = 600.0
"""How long an equal message is counted instead of written again."""

_guard = threading.Lock()
_counts: dict[str, tuple[float, int]] = {}
"""Each recent message has the time when it was written, and how often it was left out since."""
MOST_COUNTED = 100


def log(message: str) -> None:
    """Write a message with the time, unless an equal one was written lately: that one is counted. Where the log cannot
    be written, on a full disk for example, the work continues without."""
    now = time.monotonic()
    with _guard:
        written, left_out = _counts.get(message, (float("-inf"), 0))
        if now - written < REPEATED_SECONDS:
            _counts[message] = (written, left_out + 1)
            return
        again = f" (and {left_out} times since the last report of it)" if left_out else ""
        with suppress(OSError, ValueError):
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}{again}", file=sys.stderr, flush=True)
            _counts[message] = (now, 0)  # one that could not be written is written the next time
        while len(_counts) > MOST_COUNTED:
            _counts.pop(next(iter(_counts)))


def log_traceback() -> None:
    """Write where the exception that is being handled came from."""
    log(traceback.format_exc().rstrip())


def bound_log(path: Path) -> None:
    """Where standard error is the file at ``path`` and long: move its text to ``PATH.1``, and continue with an empty
    one. The processes that share the file continue in it too, for they append."""
    with suppress(OSError):
        own = os.fstat(2)
        if stat.S_ISREG(own.st_mode) and own.st_size > LONGEST_LOG and os.path.samestat(own, os.stat(path)):
            shutil.copyfile(path, path.with_suffix(".log.1"))
            os.ftruncate(2, 0)
