"""Why SQLite cannot do something, by its codes and, on Python 3.10, by its words; transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from leap_core.system.sqlite import SqliteErrorKind, cause_of, transaction


def full(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA max_page_count=3")
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")


def read_only(path: Path) -> None:
    path.touch()
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute("CREATE TABLE t (a)")


def damaged(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT * FROM sqlite_schema")


def busy(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as first:
        first.execute("BEGIN EXCLUSIVE")
        with closing(sqlite3.connect(path, timeout=0)) as second:
            second.execute("CREATE TABLE t (a)")


def mistaken(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT * FROM nothing")


@pytest.mark.parametrize(
    ("act", "cause"),
    [
        (full, SqliteErrorKind.FULL),
        (read_only, SqliteErrorKind.READ_ONLY),
        (damaged, SqliteErrorKind.DAMAGED),
        (busy, SqliteErrorKind.LOCKED),
        (mistaken, SqliteErrorKind.OTHER),
    ],
)
def test_the_cause_is_told_with_and_without_codes(tmp_path: Path, act: Callable[[Path], None], cause: SqliteErrorKind):
    with pytest.raises(sqlite3.DatabaseError) as caught:
        act(tmp_path / "file.db")
    assert cause_of(caught.value) is cause
    assert cause_of(sqlite3.OperationalError(str(caught.value))) is cause


def test_a_transaction_counts_all_or_not_at_all_and_may_be_a_part_of_another():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (a)")
        with transaction(connection), transaction(connection):
            connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(ValueError, match="no"), transaction(connection):
            with transaction(connection):
                connection.execute("INSERT INTO t VALUES (2)")
            raise ValueError("no")
        assert connection.execute("SELECT a FROM t").fetchall() == [(1,)] and not connection.in_transaction
