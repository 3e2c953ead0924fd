"""Hears of messages in the queues soon after they were sent, at next to no cost while there are none."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from ..queue import Queues
from ..queue.bell import Bell
from ..table.job import KINDS
from .slots import Slots
from .worker_log import log

LOOK_SECONDS = 0.5
"""Between two looks whether another process has written to the queue's file, when the bell does not ring: an older leap
has none. A look reads one number from shared memory."""
FILE_SECONDS = 1.0
"""The worker looks this often whether the file is still the same."""
FULL_SECONDS = 1.0
"""How long to wait where a server's queue is not listened to, because there is no free slot for its kind."""
PAUSE_SECONDS = 2.0
"""After a failure."""


def listen(queues: Queues, slots: Slots, stop: threading.Event) -> list[threading.Thread]:
    """Threads that take messages until ``stop`` is set: one for a file, one for each queue of a server."""
    if queues.file is not None:
        threads = [threading.Thread(target=_watch_file, args=(queues, stop), name="leap-queue", daemon=True)]
    else:
        threads = [
            threading.Thread(target=_listen, args=(queues, kind, slots, stop), name=f"leap-queue-{kind}", daemon=True)
            for kind in KINDS
        ]
    for thread in threads:
        thread.start()
    return threads


def _watch_file(queues: Queues, stop: threading.Event) -> None:
    while not stop.is_set():
        assert queues.file is not None
        try:
            _follow(queues, queues.file, stop)
        except (sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                log(f"the queue {queues.file} is damaged ({error}): it is made anew")
            else:
                log(f"the queue {queues.file}: {error}")
                stop.wait(PAUSE_SECONDS)
            if not stop.is_set() and not isinstance(error, sqlite3.OperationalError):
                _renew(queues)


def _renew(queues: Queues) -> None:
    try:
        queues.renew()
    except Exception as error:  # such as a full disk
        log(f"the queue cannot be made anew: {error}")
        time.sleep(PAUSE_SECONDS)


def _follow(queues: Queues, path: Path, stop: threading.Event) -> None:
    """Take messages as they come. Raises FileNotFoundError when the file is gone or another one."""
    identity = os.stat(path).st_ino
    looked = time.monotonic()
    assert queues.bell_path is not None
    with closing(Bell(queues.bell_path)) as bell, closing(sqlite3.connect(path, isolation_level=None)) as connection:
        seen = -1
        while not stop.is_set():
            version = connection.execute("PRAGMA data_version").fetchone()[0]
            if version != seen:
                seen = version
                queues.drain()
            bell.wait(LOOK_SECONDS)
            if time.monotonic() - looked > FILE_SECONDS:
                looked = time.monotonic()
                if os.stat(path).st_ino != identity:
                    raise FileNotFoundError(path)


def _listen(queues: Queues, kind: str, slots: Slots, stop: threading.Event) -> None:
    while not stop.is_set():
        if not slots.has_room(kind):
            stop.wait(FULL_SECONDS)
            continue
        try:
            queues.prepare()
            queues.take(kind)
        except Exception as error:  # the server went away; the table is looked through all the same
            log(f"the queue of {kind} jobs: {type(error).__name__}: {error}")
            stop.wait(PAUSE_SECONDS)
