"""Wake-ups from those who submit jobs to the worker, carried by huey; the table is the truth, a message only a hint.

A message is a job's id and attempt and nothing else, as JSON. It says that there may be something to do: the worker
then claims the next job from the table. So a lost message costs a second, and a second copy does no harm.

It is a named pipe (FIFO), so a worker that waits costs nothing. Where there are none, such as on Windows, or no worker
listens, ringing does nothing, and the worker looks into the file now and then.
"""

from __future__ import annotations

import json
import os
import select
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from leap_core.errors import LeapSerializationError, LeapUnavailableError
from leap_core.system.addresses import masked, without_secrets_of
from leap_core.system.configuration import POSTGRESQL, QUEUE_SCHEMES, REDIS, SQLITE
from leap_core.system.sqlite import Cause, cause_of

from .table.job import KINDS


@contextmanager
def _passing_over(name: str) -> Iterator[None]:
    """Let nobody import this module, unless it has been imported."""
    absent = name not in sys.modules
    if absent:
        sys.modules[name] = cast(Any, None)
    try:
        yield
    finally:
        if absent:
            del sys.modules[name]


with _passing_over("psycopg"):  # huey's storages import it where it is, and it takes a third of a worker's start
    from huey import Huey, PriorityRedisHuey, SqliteHuey
    from huey.api import TaskWrapper
    from huey.registry import Message
    from huey.serializer import Serializer
    from huey.storage import PostgresStorage, SqliteStorage

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


BUSY_SECONDS = 5
CONNECT_SECONDS = 5
LISTEN_SECONDS, POSTGRES_LISTEN_SECONDS = 15, 60
"""How long one look into an empty queue of a server lasts; a message ends it at once."""
MOST_SENT = 8
"""Messages of a kind that are sent to a server at once: a worker that takes one looks for more jobs by itself, and each
message is a transaction there."""
MOST_RUN = 32
"""Messages of a kind that are run one by one; beyond that the rest is dropped, for all of them say the same."""

Wake = Callable[[str], object]
"""Called with a kind of which there may be a job."""


class JsonSerializer(Serializer):  # type: ignore[misc]
    """Messages as JSON: a process that can write to the queue can start jobs, and not run code."""

    def _serialize(self, data: Message) -> bytes:
        return json.dumps(list(data)).encode()

    def _deserialize(self, data: bytes) -> Message:
        return Message(*json.loads(bytes(data)))


class Queues:
    """A queue for each kind of job. ``url`` None is the SQLite file ``path``, and relative files in URLs lie in its
    directory. ``table_id`` keeps apart the queues of several tables at one URL. ``wake`` is called for each message
    that is taken."""

    def __init__(self, path: Path, url: str | None = None, *, table_id: str = "", wake: Wake | None = None) -> None:
        self._path, self._url, self._table_id, self._wake = path, url, table_id, wake
        self._hueys: dict[str, Huey] = {}
        self._tasks: dict[str, TaskWrapper] = {}
        self._preparing, self._prepared = threading.Lock(), False
        self._open()

    def _open(self) -> None:
        self._hueys = {}
        for kind in KINDS:
            name = f"leap-{self._table_id}-{kind}" if self._url and self._table_id else f"leap-{kind}"
            huey = _open(name, self._path, self._url, check=self._wake is not None and not self._hueys)
            self._hueys[kind] = huey
            # Explicit names: a message made by one module is understood by the worker, whatever it was started as.
            self._tasks[kind] = TaskWrapper(huey, _as_function(kind, self._wake), name=f"leap-{kind}")

    @property
    def file(self) -> Path | None:
        """The SQLite file of the queues; None where they are a server's."""
        storage = self._hueys[KINDS[0]].storage
        return Path(storage.filename) if isinstance(storage, SqliteStorage) else None

    @property
    def bell_path(self) -> Path | None:
        """The bell of the worker that listens to the file; None where the queues are a server's."""
        file = self.file
        own = f".{self._table_id}" if self._url and self._table_id else ""
        return None if file is None else file.with_name(f"{file.name}{own}.bell")

    def send(self, jobs: Iterable[tuple[str, int, str, int]]) -> None:
        """Wake the worker for these jobs: (id, attempt, kind, priority). Unknown kinds are passed over. Raises
        LeapUnavailableError."""
        tasks: dict[str, list[Any]] = {}
        for id, attempt, kind, priority in jobs:
            if kind in self._tasks:
                task = self._tasks[kind].s(id, attempt, priority=priority)
                task.id = message_id(id, attempt)
                tasks.setdefault(kind, []).append(task)
        try:
            for kind, messages in tasks.items():
                self._enqueue(self._hueys[kind], messages)
        except Exception as error:
            raise LeapUnavailableError(
                f"the queue of jobs cannot be written to: {without_secrets_of(self._url or '', str(error))}"
            ) from None
        if self.bell_path is not None:
            ring(self.bell_path)

    def _enqueue(self, huey: Huey, tasks: list[Any]) -> None:
        try:
            _enqueue(huey, tasks)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged: it holds wake-ups only
            if self._url is not None:
                raise
            self.renew()
            _enqueue(next(each for each in self._hueys.values() if each.name == huey.name), tasks)
        except Exception:
            if not isinstance(huey.storage, PostgresStorage):
                raise
            huey.storage.initialize_schema()  # the first message of all
            _enqueue(huey, tasks)

    def take(self, kind: str) -> bool:
        """Take a message of this kind, if there is one, and run it; in a server's queue wait a while for one."""
        huey = self._hueys[kind]
        try:
            task = huey.dequeue()
        except (ValueError, TypeError, KeyError):  # a message that is none: what it was about is found by the sweep
            return True
        if task is None:
            return False
        huey.execute(task)
        return True

    def drain(self) -> None:
        """Take all messages that wait in a file."""
        for kind, huey in self._hueys.items():
            for _ in range(MOST_RUN):
                if not self.take(kind):
                    break
            else:  # their jobs are in the table already, and the next claim sees them
                huey.storage.flush_queue()
                if self._wake is not None:
                    self._wake(kind)

    def prepare(self) -> None:
        """Make the tables of a server's queues, once. Raises what its driver raises."""
        with self._preparing:
            storage = self._hueys[KINDS[0]].storage
            if isinstance(storage, PostgresStorage) and not self._prepared:
                with suppress(Exception):
                    storage.initialize_schema()
                storage.initialize_schema()  # again, because another process may have made the same tables just then
                self._prepared = True

    def renew(self) -> None:
        """Begin the file anew, because it is damaged: it holds wake-ups only, and the worker looks for work itself."""
        self.close()
        _remove(self._path)
        self._open()

    def pending(self) -> set[str]:
        """The ids of all messages that wait."""
        return {task.id for huey in self._hueys.values() for task in huey.pending()}

    def close(self) -> None:
        for huey in self._hueys.values():
            with suppress(Exception):
                huey.storage.close()


def message_id(id: str, attempt: int) -> str:
    return f"{id}.{attempt}"


def _enqueue(huey: Huey, tasks: list[Any]) -> None:
    """All of them; in SQLite in one transaction, because each costs a wait for the disk."""
    if len(tasks) == 1 or not isinstance(huey.storage, SqliteStorage):
        for task in tasks[:MOST_SENT]:
            huey.enqueue(task)
        return
    rows = [(huey.storage.name, huey.serialize_task(task), task.priority or 0) for task in tasks]
    with huey.storage.db(commit=True) as cursor:
        cursor.executemany("INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)", rows)


def _as_function(kind: str, wake: Wake | None) -> Callable[[str, int], None]:
    def run(_id: str, _attempt: int) -> None:
        assert wake is not None, "this process only sends messages"
        wake(kind)

    run.__module__ = "jobs"
    return run


def _open_own(path: Path, settings: dict[str, Any], *, check: bool) -> Huey:
    """leap's own file, private to its user; begun anew when it is damaged."""
    with suppress(OSError):  # what opens it says why it cannot be made
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    try:
        return _open_file(path, settings, check=check)
    except sqlite3.DatabaseError:
        _remove(path)
        return _open_file(path, settings)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _open_file(path: Path, settings: dict[str, Any], *, check: bool = False) -> Huey:
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as first:
            first.execute("PRAGMA schema_version").close()  # huey does not close a file that is no database
            if check and first.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("damaged")
        # Not durable: a message that a loss of power takes away is replaced by the worker's own look into the table.
        return SqliteHuey(filename=str(path), timeout=BUSY_SECONDS, fsync=False, **settings)
    except sqlite3.OperationalError as error:
        hint = "make room" if cause_of(error) is Cause.FULL else None
        raise LeapUnavailableError(f"the queue {path} cannot be opened: {error}", hint=hint) from None


def _open(name: str, path: Path, url: str | None, *, check: bool) -> Huey:
    settings: dict[str, Any] = {"name": name, "results": False, "serializer": JsonSerializer()}
    if url is None:
        return _open_own(path, settings, check=check)
    try:
        if url.startswith(SQLITE):
            return _open_file(path.parent / url.removeprefix(SQLITE), settings)
        if url.startswith(REDIS):
            return PriorityRedisHuey(url=url, read_timeout=LISTEN_SECONDS, **settings)
        if url.startswith(POSTGRESQL):
            import psycopg
            from huey import PostgresHuey, storage

            storage.psycopg = psycopg
            settings |= {"create_tables": False, "connect_timeout": CONNECT_SECONDS, "application_name": "leap queue"}
            return PostgresHuey(dsn=url, read_timeout=POSTGRES_LISTEN_SECONDS, **settings)
    except LeapUnavailableError:
        raise
    except Exception as error:
        message = f"the queue {masked(url)} cannot be used: {without_secrets_of(url, str(error))}"
        raise LeapUnavailableError(message, hint="see queue_url in config.toml") from None
    raise LeapSerializationError(f"{masked(url)!r} begins with none of {', '.join(QUEUE_SCHEMES)}", path="queue_url")
