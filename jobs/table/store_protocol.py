"""What the table of jobs needs of its store.

Statements are written once for both stores: values are named (``:id``), ``leap_now()`` is the store's clock in seconds
since 1970, and ``sequence`` numbers the jobs in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = Mapping[str, Any]
Values = Mapping[str, object]
NO_VALUES: Values = {}


class Conflict(Exception):
    """A row that may be there once is there already. Nothing was changed."""


MISSED = "missed"
"""Heard after a store was away for a while: there may have been anything."""


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

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Append rows, which are new, at the least cost a row."""
        ...

    def transaction(self, action: Callable[[], T]) -> T:
        """Run ``action``, whose statements count all or not at all. It may run again after a lost connection."""
        ...

    def announce(self, message: str, job: str = "") -> None:
        """Tell ``Changes`` of other processes, once the running transaction counts: those of workers, or with ``job``
        those about this job."""
        ...

    def listen(self, job: str = "", worker: str = "") -> Changes:
        """Receive what is announced to workers, or about a job; and what is meant for this worker alone."""
        ...

    def version(self) -> int | None:
        """A number that changes with every change by another connection; None where that is not known."""
        ...

    def undurable(self) -> Database:
        """The same place for what may be lost with the power; over the same connection where that is scarce."""
        ...

    def compact(self) -> None:
        """Give back the space of what was removed, where there is much of it."""
        ...

    def close(self) -> None: ...


JOB_COLUMNS = """
        kind TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
        parameters TEXT NOT NULL,
        attempt INTEGER NOT NULL DEFAULT 1,
        failures INTEGER NOT NULL DEFAULT 0,
        interruptions INTEGER NOT NULL DEFAULT 0,
        deaths INTEGER NOT NULL DEFAULT 0,
        retries INTEGER NOT NULL DEFAULT 0,
        priority INTEGER NOT NULL DEFAULT 0,
        run_after REAL NOT NULL DEFAULT 0,
        owner TEXT,
        worker TEXT,
        heartbeat REAL,
        lease_until REAL,
        cancel_requested INTEGER NOT NULL DEFAULT 0,
        progress TEXT,
        error TEXT,
        result TEXT,
        model TEXT,
        origin TEXT,
        machine TEXT,
        max_workers INTEGER,
        output TEXT,
        version INTEGER NOT NULL DEFAULT 1,
        created REAL NOT NULL,
        started REAL,
        finished REAL"""
"""Columns of the table of jobs in both stores. A REAL of SQLite has eight bytes."""
WORKER_COLUMNS = """
        id TEXT PRIMARY KEY,
        machine TEXT NOT NULL,
        name TEXT NOT NULL,
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        started REAL NOT NULL,
        seen REAL NOT NULL,
        capacity TEXT NOT NULL,
        models TEXT NOT NULL,
        origins TEXT NOT NULL DEFAULT '{}',
        fetches INTEGER NOT NULL DEFAULT 0,
        draining INTEGER NOT NULL DEFAULT 0"""
