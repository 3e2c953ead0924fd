"""Models in use: a lock file in a model's directory, shared by the processes that have it loaded."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from ...storage.locks import GLANCE_SECONDS, Busy, locked

LOCKS = WRITE_LOCK, USE_LOCK = ".lock", ".in-use"


class Hold:
    """Marks a model as in use until it is closed, or the process ends."""

    def __init__(self, lock: AbstractContextManager[None] | None) -> None:
        self._lock = lock

    def close(self) -> None:
        """Release it; again is harmless."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.__exit__(None, None, None)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def hold(path: Path) -> Hold:
    """Mark the model that ``path`` (a file in a store's directory) belongs to as in use: ``leap models remove`` then
    leaves it alone. Elsewhere, and where nothing can be written, it does nothing."""
    directory = path.parent
    if (directory / f"{directory.name}.json").is_file():
        with suppress(OSError, Busy):
            lock = locked(directory / USE_LOCK, shared=True, wait=GLANCE_SECONDS)
            lock.__enter__()
            with suppress(OSError):
                os.utime(directory / USE_LOCK)  # when it was last used
            return Hold(lock)
    return Hold(None)
