"""The tables of the database of jobs in a SQLite file, and the way there from any older version."""

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
    """
    ALTER TABLE jobs ADD COLUMN worker TEXT;
    ALTER TABLE jobs ADD COLUMN lease_until REAL;
    ALTER TABLE jobs ADD COLUMN model TEXT;
    ALTER TABLE jobs ADD COLUMN machine TEXT;
    ALTER TABLE jobs ADD COLUMN parent TEXT REFERENCES jobs (id) ON DELETE CASCADE;
    ALTER TABLE jobs ADD COLUMN max_workers INTEGER;
    ALTER TABLE jobs ADD COLUMN output TEXT;
    ALTER TABLE jobs ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE jobs ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX jobs_by_parent ON jobs (parent) WHERE parent IS NOT NULL;
    CREATE TABLE workers (
        id TEXT PRIMARY KEY,
        machine TEXT NOT NULL,
        name TEXT NOT NULL,
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        started REAL NOT NULL,
        seen REAL NOT NULL,
        capacity TEXT NOT NULL,
        models TEXT NOT NULL,
        draining INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE batch_lines (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        key TEXT NOT NULL,
        digest TEXT NOT NULL,
        raw BLOB NOT NULL,
        PRIMARY KEY (job, number)
    ) WITHOUT ROWID;
    CREATE TABLE batch_results (
        job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        key TEXT NOT NULL,
        succeeded INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (job, number)
    ) WITHOUT ROWID;
    CREATE TABLE table_id (id TEXT NOT NULL);
    INSERT INTO table_id VALUES (lower(hex(randomblob(8))));
    """,
    """
    ALTER TABLE jobs ADD COLUMN origin TEXT;
    ALTER TABLE workers ADD COLUMN origins TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE workers ADD COLUMN fetches INTEGER NOT NULL DEFAULT 0;
    """,
)


def connect(path: Path, *, durable: bool = True) -> sqlite3.Connection:
    """Open the database, made or brought up to date where necessary (see ``leap_core.storage.sqlite``)."""
    private_directory(path.parent)
    return database.connect(path, MIGRATIONS, WHAT, durable=durable)


def wrap_sqlite_errors(path: Path) -> AbstractContextManager[None]:
    """Raise what SQLite reports as a LeapError that names the file and what to do about it."""
    return database.wrap_sqlite_errors(path, WHAT)
