"""What the table of jobs needs of its store, and the store in a SQLite file.

Statements are written once for both stores: values are named (``:id``), ``leap_now()`` is the store's clock in seconds
since 1970, and ``sequence`` numbers the jobs in the order in which they were added.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from leap_core.errors import LeapError

from . import schema

LEAST_FREE_PAGES = 256
"""Of 4 KiB: less is not worth a copy of the file."""

T = TypeVar("T")
Row = Mapping[str, Any]
Values = Mapping[str, object]


class Changes(Protocol):
    """Tells that something in the table may have changed."""

    def wait(self, seconds: float) -> Sequence[str]:
        """Wait for a change, at most so long; what the store says about it, such as ``"cancel"``."""
        ...

    def close(self) -> None: ...


class Database(Protocol):
    """A store. Safe to use from several threads.

    ``is_shared``: workers of other machines may use it too. ``sequence``: the expression that orders jobs as they were
    added. ``skip_locked``: what a SELECT ends with to pass over rows that another transaction has. ``hold_seconds``:
    how long output may wait for more before it is written.
    """

    is_shared: bool
    sequence: str
    skip_locked: str
    hold_seconds: float

    @property
    def id(self) -> str:
        """A random name that this database got when it was made."""
        ...

    def rows(self, sql: str, values: Values = ...) -> Sequence[Row]: ...

    def change(self, sql: str, values: Values = ...) -> int:
        """The number of rows that were changed."""
        ...

    def change_many(self, sql: str, values: Iterable[Values]) -> None: ...

    def transaction(self, action: Callable[[], T]) -> T:
        """Run ``action``, whose statements count all or not at all. It may run again after a lost connection."""
        ...

    def announce(self, message: str, job: str = "") -> None:
        """Tell ``Changes`` of other processes, once the running transaction counts: those of workers, or with ``job``
        those about this job."""
        ...

    def listen(self, job: str = "") -> Changes:
        """Hear what is announced to workers, or about a job."""
        ...

    def version(self) -> int | None:
        """A number that changes with every change by another connection; None where that is not known."""
        ...

    def compact(self) -> None:
        """Give back the room of what was removed, where there is much of it."""
        ...

    def close(self) -> None: ...


def open_database(place: Path | str, *, durable: bool = True) -> Database:
    """The store at ``place``: a file, or the URL of a PostgreSQL server."""
    if isinstance(place, Path):
        return SqliteDatabase(place, durable=durable)
    from .postgres import PostgresDatabase

    return PostgresDatabase.at(place, durable=durable)


class SqliteDatabase:
    """The store in a file of this machine. ``durable``: a transaction that has returned survives the loss of power."""

    is_shared = False
    sequence = "rowid"
    skip_locked = ""
    hold_seconds = 0.02

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        self._guard = threading.RLock()
        self.connection = schema.connect(path, durable=durable)
        self.connection.create_function("leap_now", 0, lambda: time.time())

    @property
    def id(self) -> str:
        return str(self.rows("SELECT id FROM table_id")[0]["id"])

    def rows(self, sql: str, values: Values = {}) -> Sequence[Row]:  # noqa: B006 - it is not changed
        with self._guard, schema.wrap_sqlite_errors(self.path):
            cursor = self.connection.execute(sql, values)
            try:
                rows: list[sqlite3.Row] = cursor.fetchall()
            finally:
                cursor.close()
        return [dict(zip(row.keys(), row, strict=True)) for row in rows]

    def change(self, sql: str, values: Values = {}) -> int:  # noqa: B006 - it is not changed
        with self._guard, schema.wrap_sqlite_errors(self.path):
            cursor = self.connection.execute(sql, values)
            try:
                return cursor.rowcount
            finally:
                cursor.close()

    def change_many(self, sql: str, values: Iterable[Values]) -> None:
        with self._guard, schema.wrap_sqlite_errors(self.path):
            self.connection.executemany(sql, values).close()

    def transaction(self, action: Callable[[], T]) -> T:
        with self._transaction():
            return action()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._guard, schema.wrap_sqlite_errors(self.path):
            self.connection.execute("BEGIN IMMEDIATE").close()
            try:
                yield
                self.connection.execute("COMMIT").close()
            except BaseException:
                with suppress(sqlite3.OperationalError):  # a full disk has rolled it back already
                    self.connection.execute("ROLLBACK").close()
                raise

    def announce(self, message: str, job: str = "") -> None:
        """Nothing to do: looking into the file is cheap."""

    def listen(self, job: str = "") -> Changes:
        return Polling()

    def version(self) -> int | None:
        return int(self.rows("PRAGMA data_version")[0]["data_version"])

    def compact(self) -> None:
        free = self.rows("PRAGMA freelist_count")[0]["freelist_count"]
        if free > LEAST_FREE_PAGES and 4 * free > self.rows("PRAGMA page_count")[0]["page_count"]:
            with suppress(LeapError):  # busy, or no room for the copy: another time
                self.change("VACUUM")

    def close(self) -> None:
        with self._guard:
            self.connection.close()


class Polling:
    """Changes of a store in which looking costs next to nothing."""

    LOOK_SECONDS = 0.02

    def wait(self, seconds: float) -> Sequence[str]:
        time.sleep(min(seconds, self.LOOK_SECONDS))
        return []

    def close(self) -> None:
        pass
