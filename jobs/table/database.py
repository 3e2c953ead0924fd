"""The store of jobs in a SQLite file, or at the address of a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from leap_core.errors import LeapError
from leap_core.system.directories import private_directory
from leap_core.system.sqlite import Schema, SqliteStore

from .store_protocol import JOB_COLUMNS, NO_VALUES, WORKER_COLUMNS, Changes, Database, Row, Values

SCHEMA = Schema(
    "the table of jobs",
    3,
    f"""
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        parent TEXT REFERENCES jobs (id) ON DELETE CASCADE,{JOB_COLUMNS}
    );
    CREATE INDEX jobs_by_state ON jobs (state, kind, priority DESC, created);
    CREATE INDEX jobs_by_age ON jobs (created);
    CREATE INDEX jobs_by_parent ON jobs (parent) WHERE parent IS NOT NULL;
    CREATE TABLE events (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        attempt INTEGER NOT NULL,
        number INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (job, attempt, number)
    ) WITHOUT ROWID;
    CREATE TABLE workers ({WORKER_COLUMNS}
    );
    CREATE TABLE table_id (id TEXT NOT NULL);
    INSERT INTO table_id VALUES (lower(hex(randomblob(8))));
    """,
)


LEAST_FREE_PAGES = 256
"""A page has 4 KiB; fewer are not worth a copy of the file."""

T = TypeVar("T")


def open_database(place: Path | str, *, durable: bool = True) -> Database:
    """The store at ``place``: a file, or the URL of a PostgreSQL server."""
    if isinstance(place, Path):
        return SqliteDatabase(place, durable=durable)
    from .postgres import PostgresDatabase

    return PostgresDatabase.at(place, durable=durable)


class SqliteDatabase(SqliteStore):
    """The store in a file of this machine. ``durable``: a transaction that has returned survives the loss of power."""

    schema = SCHEMA
    is_shared = False
    sequence = "rowid"
    skip_locked = ""
    hold_seconds = 0.02

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        private_directory(path.parent)
        super().__init__(path, durable=durable)
        self.connection.create_function("leap_now", 0, lambda: time.time())

    @property
    def id(self) -> str:
        return str(self.rows("SELECT id FROM table_id")[0]["id"])

    def rows(self, sql: str, values: Values = NO_VALUES) -> Sequence[Row]:
        return [dict(zip(row.keys(), row, strict=True)) for row in self._rows(sql, values)]

    def change(self, sql: str, values: Values = NO_VALUES) -> int:
        return self._run(sql, values)

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        places = ", ".join("?" * len(columns))
        with self._usable():
            self.connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows).close()

    def transaction(self, action: Callable[[], T]) -> T:
        with self._transaction():
            return action()

    def announce(self, message: str, job: str = "") -> None:
        """Nothing to do: looking into the file is cheap."""

    def listen(self, job: str = "", worker: str = "") -> Changes:
        return Polling()

    def undurable(self) -> SqliteDatabase:
        return SqliteDatabase(self.path, durable=False)

    def version(self) -> int | None:
        return int(self.rows("PRAGMA data_version")[0]["data_version"])

    def compact(self) -> None:
        free = self.rows("PRAGMA freelist_count")[0]["freelist_count"]
        if free > LEAST_FREE_PAGES and 4 * free > self.rows("PRAGMA page_count")[0]["page_count"]:
            with suppress(LeapError):  # busy, or no room for the copy: another time
                self.change("VACUUM")


class Polling:
    """Changes of a store in which looking costs next to nothing."""

    LOOK_SECONDS = 0.02

    def wait(self, seconds: float) -> Sequence[str]:
        time.sleep(min(seconds, self.LOOK_SECONDS))
        return []

    def close(self) -> None:
        pass
