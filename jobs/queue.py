"""Wake-ups from those who submit jobs to the worker, carried by huey; the table is the truth, a message only a hint.

A message is a job's kind, id and attempt and nothing else, as JSON. It says that there may be something to do: the
worker then claims the next job from the table. So a lost message costs a second, and a second copy does no harm.

The queue is a SQLite file, and beside it is a bell: a named pipe (FIFO), so a worker that waits costs nothing. Where
there are none, such as on Windows, or no worker listens, ringing does nothing, and the worker looks into the file now
and then.
"""

from __future__ import annotations

import json
import os
import select
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from leap_core.errors import LeapUnavailableError
from leap_core.system.sqlite import BUSY_SECONDS, SqliteErrorKind, cause_of

from .table.job import KINDS


def _import_huey() -> tuple[Any, Any]:
    """huey's queue and message. It imports psycopg where that is installed, which would take half of a worker's start,
    for queues on servers."""
    hides = sys.modules.setdefault("psycopg", None) is None  # type: ignore[arg-type]  # None: not to be imported
    try:
        from huey import SqliteHuey
        from huey.registry import Message
    finally:
        if hides:
            del sys.modules["psycopg"]
    return SqliteHuey, Message


SqliteHuey, Message = _import_huey()

WITHOUT_BELL_SECONDS = 0.05
"""Where there are no named pipes, the queue is looked at this often."""


def ring(path: Path) -> None:
    """Wake the process that waits at this bell, if there is one."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # no worker listens, or it rings already
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, b"!")
        finally:
            os.close(descriptor)


class Bell:
    """The waiting side. ``wait`` returns when it rings, and after ``seconds`` at the latest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = _open_bell(path)

    def wait(self, seconds: float) -> None:
        if self._descriptor is None:
            time.sleep(min(seconds, WITHOUT_BELL_SECONDS))
        elif select.select([self._descriptor], [], [], seconds)[0]:
            with suppress(BlockingIOError):
                os.read(self._descriptor, 1 << 16)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self.path.unlink(missing_ok=True)


def _open_bell(path: Path) -> int | None:
    """A pipe of this process's own: one that an earlier process left may be anything. None where there are none."""
    if sys.platform == "win32":
        return None
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)  # also for writing: without a writer it would be readable always


MOST_RUN = 32
"""Messages that are run one by one; beyond that the rest is dropped, for all of them say the same."""

Wake = Callable[[str], object]
"""Called with a kind of which there may be a job."""


class JsonSerializer:
    """Messages as JSON: a process that can write to the queue can start jobs, and not run code."""

    def serialize(self, data: Any) -> bytes:
        return json.dumps(list(data)).encode()

    def deserialize(self, data: bytes) -> Any:
        return Message(*json.loads(bytes(data)))


class WakeUpQueue:
    """The queue in the SQLite file ``path``. ``wake`` is called for each message that is taken. Raises
    LeapUnavailableError."""

    def __init__(self, path: Path, wake: Wake | None = None) -> None:
        self.file, self._wake = path, wake
        self.bell_path = path.with_name(f"{path.name}.bell")
        self._open(check=wake is not None)

    def send(self, jobs: Iterable[tuple[str, int, str, int]]) -> None:
        """Wake the worker for these jobs: (id, attempt, kind, priority). There is one message for each kind, because a
        worker that begins a job looks for the next one by itself. Raises LeapUnavailableError."""
        first = {kind: (id, attempt, priority) for id, attempt, kind, priority in reversed(list(jobs))}
        try:
            try:
                self._enqueue(first)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                self.renew()
                self._enqueue(first)
        except Exception as error:
            raise LeapUnavailableError(f"the queue of jobs cannot be written to: {error}") from None
        ring(self.bell_path)

    def _enqueue(self, messages: dict[str, tuple[str, int, int]]) -> None:
        for kind, (id, attempt, priority) in messages.items():
            self._huey.enqueue(self._task.s(kind, id, attempt, priority=priority))

    def drain(self) -> None:
        """Take all messages that wait."""
        for _ in range(MOST_RUN):
            try:
                task = self._huey.dequeue()
            except (ValueError, TypeError, KeyError):  # a message that is none: what it was about is found by the sweep
                continue
            if task is None:
                return
            self._huey.execute(task)
        self._huey.storage.flush_queue()  # their jobs are in the table already, and the next claim sees them
        for kind in KINDS:
            self._run(kind)

    def renew(self) -> None:
        """Begin the file anew, because it is damaged or gone: it holds wake-ups only, and the worker looks for work
        itself. Raises LeapUnavailableError."""
        self.close()
        _remove(self.file)
        self._open()

    def pending(self) -> list[tuple[str, str, int]]:
        """Kind, id and attempt of all messages that wait, the next one first."""
        return [task.args for task in self._huey.pending()]

    def close(self) -> None:
        with suppress(Exception):
            self._huey.storage.close()

    def _run(self, kind: str, _id: str = "", _attempt: int = 0) -> None:
        assert self._wake is not None, "this process only sends messages"
        if kind in KINDS:
            self._wake(kind)

    def _open(self, *, check: bool = False) -> None:
        """The file is private to its user, and begins anew when it is damaged."""
        with suppress(OSError):  # what opens it says why it cannot be made
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600))
            self.file.chmod(0o600)
        try:
            self._huey = self._open_file(check=check)
        except sqlite3.OperationalError as error:
            hint = "free disk space" if cause_of(error) is SqliteErrorKind.FULL else None
            raise LeapUnavailableError(f"the queue {self.file} cannot be opened: {error}", hint=hint) from None
        except sqlite3.DatabaseError:
            _remove(self.file)
            self._huey = self._open_file()
        # An explicit name: a message made by one module is understood by the worker, whatever it was started as.
        self._task: Any = self._huey.task(name="leap-wake")(lambda *message: self._run(*message))

    def _open_file(self, *, check: bool = False) -> Any:
        with closing(sqlite3.connect(self.file, timeout=BUSY_SECONDS)) as first:
            first.execute("PRAGMA schema_version").close()  # huey does not close a file that is no database
            if check and first.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("damaged")
        # Not durable: a message that a loss of power takes away is replaced by the worker's own look into the table.
        return SqliteHuey(
            "leap",
            filename=str(self.file),
            timeout=BUSY_SECONDS,
            fsync=False,
            results=False,
            serializer=JsonSerializer(),
        )


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
