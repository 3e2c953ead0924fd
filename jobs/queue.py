"""The queues that carry wake-ups to the worker: one a kind of job, so that a long one never stands before a short one.

huey carries them; a message is a job's id and attempt and nothing else, as JSON. What a message says is a hint: the
table decides whether there is something to do, so a lost message is sent again and a second copy does no harm.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from huey import Huey, PriorityRedisHuey, SqliteHuey
from huey.api import TaskWrapper
from huey.consumer import Consumer
from huey.registry import Message
from huey.serializer import Serializer
from huey.storage import SqliteStorage

from leap_core.configuration import POSTGRESQL, QUEUE_SCHEMES, REDIS, SQLITE
from leap_core.errors import LeapSerializationError, LeapUnavailableError

from .table.job import KINDS

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.02, 0.05
"""Between two looks into an empty queue: 20 looks a second, and a median of about 12 ms until a job begins."""
BUSY_SECONDS = 30

Task = Callable[[str, int], object]


class JsonSerializer(Serializer):  # type: ignore[misc]
    """Messages as JSON: whoever can write to the queue can start jobs, and not run code."""

    def _serialize(self, data: Message) -> bytes:
        return json.dumps(list(data)).encode()

    def _deserialize(self, data: bytes) -> Message:
        return Message(*json.loads(bytes(data)))


class Queues:
    """A queue for each kind. ``url`` None is the SQLite file ``path``, and files in URLs are seen from its directory;
    ``run`` is what a worker does with a message."""

    def __init__(self, path: Path, url: str | None = None, run: Mapping[str, Task] | None = None) -> None:
        self._hueys: dict[str, Huey] = {}
        self._tasks: dict[str, TaskWrapper] = {}
        for kind in KINDS:
            huey = _open(kind, path, url)
            self._hueys[kind] = huey
            task = (run or {}).get(kind, _nothing)
            # Explicit names: a message made by one module is understood by the worker, whatever it was started as.
            self._tasks[kind] = TaskWrapper(huey, _as_function(task), name=f"leap-{kind}")

    def send(self, jobs: Iterable[tuple[str, int, str, int]]) -> None:
        """Wake the worker for these jobs: (id, attempt, kind, priority). Raises LeapUnavailableError."""
        tasks: dict[str, list[Any]] = {}
        for id, attempt, kind, priority in jobs:
            task = self._tasks[kind].s(id, attempt, priority=priority)
            task.id = message_id(id, attempt)
            tasks.setdefault(kind, []).append(task)
        try:
            for kind, waiting in tasks.items():
                _enqueue(self._hueys[kind], waiting)
        except Exception as error:
            raise LeapUnavailableError(f"the queue of jobs cannot be written to: {error}") from None

    def pending(self) -> set[str]:
        """The ids of all messages that nobody has taken yet."""
        return {task.id for huey in self._hueys.values() for task in huey.pending()}

    def empty(self) -> set[str]:
        """The kinds of jobs for which no message waits."""
        return {kind for kind, huey in self._hueys.items() if not huey.pending_count()}

    def consumers(self, concurrency: Mapping[str, int]) -> list[Consumer]:
        """What runs the tasks, in threads of this process; each has to be started and stopped."""
        return [
            _QuietConsumer(
                huey,
                workers=concurrency[kind],
                periodic=False,
                initial_delay=FIRST_DELAY_SECONDS,
                max_delay=LONGEST_DELAY_SECONDS,
                backoff=1,
            )
            for kind, huey in self._hueys.items()
        ]

    def close(self) -> None:
        for huey in self._hueys.values():
            with suppress(Exception):
                huey.storage.close()


class _QuietConsumer(Consumer):  # type: ignore[misc]
    """Leaves signals to the worker, which has several consumers."""

    def _set_signal_handlers(self) -> None:
        pass


def _enqueue(huey: Huey, tasks: list[Any]) -> None:
    """All of them; in SQLite in one transaction, because each costs a wait for the disk."""
    if len(tasks) == 1 or not isinstance(huey.storage, SqliteStorage):
        for task in tasks:
            huey.enqueue(task)
        return
    rows = [(huey.storage.name, huey.serialize_task(task), task.priority or 0) for task in tasks]
    with huey.storage.db(commit=True) as cursor:
        cursor.executemany("INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)", rows)


def message_id(id: str, attempt: int) -> str:
    return f"{id}.{attempt}"


def _as_function(task: Task) -> Callable[[str, int], None]:
    def run(id: str, attempt: int) -> None:
        task(id, attempt)

    run.__module__ = "jobs"
    return run


def _nothing(_id: str, _attempt: int) -> None:
    raise AssertionError("this process only sends messages")


def _open_own(path: Path, settings: dict[str, Any]) -> Huey:
    """A damaged file is begun anew: it holds wake-ups only, and the worker sends those that are missing."""
    try:
        return _open_file(path, settings)
    except sqlite3.DatabaseError:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return _open_file(path, settings)


def _open_file(path: Path, settings: dict[str, Any]) -> Huey:
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as first:
            first.execute("PRAGMA schema_version").close()  # huey does not close a file that is no database
        return SqliteHuey(filename=str(path), timeout=BUSY_SECONDS, **settings)
    except sqlite3.OperationalError as error:
        raise LeapUnavailableError(f"the queue {path} cannot be opened: {error}") from None


def _open(kind: str, path: Path, url: str | None) -> Huey:
    settings: dict[str, Any] = {"name": f"leap-{kind}", "results": False, "serializer": JsonSerializer()}
    if url is None:
        return _open_own(path, settings)
    try:
        if url.startswith(SQLITE):
            return _open_file(path.parent / url.removeprefix(SQLITE), settings)
        if url.startswith(REDIS):
            return PriorityRedisHuey(url=url, **settings)
        if url.startswith(POSTGRESQL):
            from huey import PostgresHuey

            return PostgresHuey(dsn=url, **settings)
    except LeapUnavailableError:
        raise
    except Exception as error:
        hint = "see queue_url in config.toml"
        raise LeapUnavailableError(f"the queue {url} cannot be used: {error}", hint=hint) from None
    raise LeapSerializationError(f"{url!r} begins with none of {', '.join(QUEUE_SCHEMES)}", path="queue_url")
