"""Locks on files that free themselves when their process ends, however it ends."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .directories import make_directory

POLL_SECONDS = 0.05
GLANCE_SECONDS = 0.2
"""Longer than `is_locked` holds a lock to find out, also on a busy machine; short enough not to be noticed."""

LEAST_TRIES = 10
"""Least number of attempts of a wait, even past its deadline: a process that was not scheduled has not waited."""

MOST_VANISHED = 10
"""Times that the directory of a lock can be removed between its making and the lock's."""


class Busy(Exception):
    """Another process has the lock on ``path``."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is locked")
        self.path = path


@contextmanager
def locked(
    path: Path, *, shared: bool = False, wait: bool | float = True, while_waiting: Callable[[], object] | None = None
) -> Iterator[None]:
    """Hold the lock on ``path``, a file that is created for the purpose and left behind.

    ``shared`` locks go together, any other excludes all. Without ``wait`` raises Busy at once, or after as many seconds
    as it says; while it waits ``while_waiting`` is called a few times a second and may raise.
    """
    seconds = (math.inf if wait else 0.0) if isinstance(wait, bool) else wait
    descriptor = _acquire(path, shared, seconds, while_waiting)
    try:
        yield
    finally:
        os.close(descriptor)  # this is what frees the lock


def is_locked(path: Path, *, shared: bool = False) -> bool:
    """Whether any process holds a lock on ``path``, shared or not; with ``shared``, one that is not.

    To find out takes the lock for a moment, so others who look must be let pass: where ``shared`` will do, take it.
    """
    if not path.exists():
        return False
    try:
        with locked(path, shared=shared, wait=False if shared else GLANCE_SECONDS):
            return False
    except Busy:
        return True
    except OSError:  # a read-only place: no lock can be taken there
        return False


def _acquire(path: Path, shared: bool, seconds: float, while_waiting: Callable[[], object] | None) -> int:
    poll = min(POLL_SECONDS, seconds / 60)  # so that many who look at once all get their turn
    deadline = time.monotonic() + seconds
    vanished = tries = 0
    while True:
        make_directory(path.parent)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except FileNotFoundError:
            vanished += 1
            if vanished > MOST_VANISHED:
                raise
            continue  # its directory may have been removed since
        try:
            if _try_lock(descriptor, shared) and _is_still(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        tries += 1
        if time.monotonic() >= deadline and (tries >= LEAST_TRIES or not seconds):
            raise Busy(path)
        if while_waiting is not None:
            while_waiting()
        import random  # here, because every start would pay for it

        time.sleep(poll * random.uniform(0.5, 1))  # two who look again and again must not meet again and again


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the path leads to the file that was locked, and not to one made after its removal."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, shared: bool) -> bool:
        # Windows' locks exclude each other: a shared one takes any of 64 bytes, an exclusive one all of them.
        spans = [(byte, 1) for byte in range(64)] if shared else [(0, 64)]
        for start, length in spans:
            os.lseek(descriptor, start, os.SEEK_SET)
            with suppress(OSError):
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, length)
                return True
        return False

else:
    import fcntl

    def _try_lock(descriptor: int, shared: bool) -> bool:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return True
        return False
