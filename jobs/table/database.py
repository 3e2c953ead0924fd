"""The store of jobs in a SQLite file, or at the address of a server."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from leap_core.errors import LeapError
from leap_core.storage.sqlite import transaction

from . import schema
from .contract import NO_VALUES, Changes, Database, Row, Values

LEAST_FREE_PAGES = 256
"""A page has 4 KiB; fewer are not worth a copy of the file."""

T = TypeVar("T")


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

    def rows(self, sql: str, values: Values = NO_VALUES) -> Sequence[Row]:
        with self._guard, schema.wrap_sqlite_errors(self.path):
            cursor = self.connection.execute(sql, values)
            try:
                rows: list[sqlite3.Row] = cursor.fetchall()
            finally:
                cursor.close()
        return [dict(zip(row.keys(), row, strict=True)) for row in rows]

    def change(self, sql: str, values: Values = NO_VALUES) -> int:
        with self._guard, schema.wrap_sqlite_errors(self.path):
            cursor = self.connection.execute(sql, values)
            try:
                return cursor.rowcount
            finally:
                cursor.close()

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        places = ", ".join("?" * len(columns))
        with self._guard, schema.wrap_sqlite_errors(self.path):
            self.connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows).close()

    def transaction(self, action: Callable[[], T]) -> T:
        with self._guard, schema.wrap_sqlite_errors(self.path), transaction(self.connection):
            return action()

    def announce(self, message: str, job: str = "") -> None:
        """Nothing to do: looking into the file is cheap."""

    def listen(self, job: str = "", worker: str = "") -> Changes:
        return Polling()

    def undurable(self) -> SqliteDatabase:
        return SqliteDatabase(self.path, durable=False)

    def version(self) -> int | None:
        return int(self.rows("PRAGMA data_version")[0]["data_version"])

    def is_of_newer_leap(self) -> bool:
        return int(self.rows("PRAGMA user_version")[0]["user_version"]) > len(schema.MIGRATIONS)

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
