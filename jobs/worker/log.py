"""What the worker and its processes say: on standard error, which is worker.log unless somebody looks on."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress


def log(message: str) -> None:
    """Say something. Where the log cannot be written, on a full disk for example, the work goes on without."""
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)


def log_traceback() -> None:
    """Say where the exception that is being handled came from."""
    log(traceback.format_exc().rstrip())
