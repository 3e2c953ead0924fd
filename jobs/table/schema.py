"""The database of jobs: its tables, and the way from any older version to the present one."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from leap_core.storage import sqlite as database
from leap_core.storage.directories import private_directory

WHAT = "the table of jobs"

MIGRATIONS = (
    """
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
        parameters TEXT NOT NULL,
        attempt INTEGER NOT NULL DEFAULT 1,
        failures INTEGER NOT NULL DEFAULT 0,
        interruptions INTEGER NOT NULL DEFAULT 0,
        retries INTEGER NOT NULL DEFAULT 0,
        priority INTEGER NOT NULL DEFAULT 0,
        run_after REAL NOT NULL DEFAULT 0,
        owner TEXT,
        heartbeat REAL,
        cancel_requested INTEGER NOT NULL DEFAULT 0,
        progress TEXT,
        error TEXT,
        result TEXT,
        created REAL NOT NULL,
        started REAL,
        finished REAL
    );
    CREATE INDEX jobs_by_state ON jobs (state, kind, priority DESC, created);
    CREATE INDEX jobs_by_age ON jobs (created);
    CREATE TABLE events (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        attempt INTEGER NOT NULL,
        number INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (job, attempt, number)
    ) WITHOUT ROWID;
    """,
)


def connect(path: Path, *, durable: bool = True) -> sqlite3.Connection:
    """Open the database, made or brought up to date where necessary (see ``leap_core.storage.sqlite``)."""
    private_directory(path.parent)
    return database.connect(path, MIGRATIONS, WHAT, durable=durable)


def wrap_sqlite_errors(path: Path) -> AbstractContextManager[None]:
    """What SQLite has to say, as a LeapError that names the file and what to do about it."""
    return database.wrap_sqlite_errors(path, WHAT)
