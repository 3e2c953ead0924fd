"""How leap opens a SQLite database of its own: private to the user, several processes may use it, a file of another
version is refused, and SQLite's errors become one line.

``PRAGMA user_version`` is the version of the tables in a file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ..errors import LeapError
from .dataclass import dataclass
from .directories import make_directory

BUSY_SECONDS = 30.0
PAGE_BYTES = 4096
LOG_PAGES = 256
"""The write-ahead log goes into the file after so many pages. With SQLite's 1,000 it takes 4 MB: on a small disk it
fills the space that it would need to go into the file, and nothing can be written ever again."""


@dataclass(frozen=True)
class Schema:
    """The tables of a store: ``script`` makes them, in statements without triggers; ``version`` is that of their shape.
    ``what`` names the store in messages."""

    what: str
    version: int
    script: str


def connect(path: Path, schema: Schema, *, durable: bool = True) -> sqlite3.Connection:
    """Open the database, made where necessary; usable from any thread, one at a time.

    ``durable``: a transaction that has returned survives the loss of power. Otherwise the newest ones may go, in order.
    On a full or read-only disk a file can still be read. Raises LeapError for a file of another version.
    """
    try:
        return _connect(path, schema, durable=durable)
    except LeapError as error:
        if not isinstance(error.__context__, (sqlite3.OperationalError, OSError)):
            raise
        connection = _connect_read_only(path, schema.version)
        if connection is None:
            raise
        return connection


def _connect_read_only(path: Path, version: int) -> sqlite3.Connection | None:
    """The database as it is, or None. ``immutable`` reads it where not even the index of its write-ahead log can be
    made, but not what the log holds."""
    if not path.is_file():
        return None
    with_log = path.with_name(path.name + "-wal")
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        if "immutable" in mode and with_log.exists() and with_log.stat().st_size:
            return None
        connection = None
        try:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?{mode}",
                uri=True,
                timeout=1.0,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.row_factory = sqlite3.Row
            connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
            if _version(connection) == version:
                return connection
        except sqlite3.Error:
            pass
        if connection is not None:
            connection.close()
    return None


def _connect(path: Path, schema: Schema, *, durable: bool) -> sqlite3.Connection:
    try:
        make_directory(path.parent, 0o700)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # prompts and answers are private
    except OSError as error:
        raise LeapError(f"{schema.what} {path} cannot be made: {error.strerror}", hint="LEAP_HOME moves it") from None
    with wrap_sqlite_errors(path, schema.what):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        with wrap_sqlite_errors(path, schema.what):
            _use_write_ahead_log(connection)
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            connection.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}").close()
            connection.execute(f"PRAGMA journal_size_limit={LOG_PAGES * PAGE_BYTES}").close()
            connection.execute("PRAGMA foreign_keys=ON")
            _make_tables(connection, path, schema)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def wrap_sqlite_errors(path: Path, what: str) -> Iterator[None]:
    """What SQLite has to say, as a LeapError that names the file and what to do about it."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)):
            raise  # a bug in leap
        hint = HINTS.get(cause_of(error))
        raise LeapError(f"{what} {path} cannot be used: {error}", hint=hint) from None


class SqliteErrorKind(Enum):
    """Why SQLite cannot do what was asked."""

    FULL = "full"
    READ_ONLY = "read-only"
    DAMAGED = "damaged"
    LOCKED = "locked"
    OTHER = "other"


CODES = {
    5: SqliteErrorKind.LOCKED,  # SQLITE_BUSY
    6: SqliteErrorKind.LOCKED,
    8: SqliteErrorKind.READ_ONLY,
    10: SqliteErrorKind.FULL,  # SQLITE_IOERR: what a full disk gives for the write-ahead log
    11: SqliteErrorKind.DAMAGED,  # SQLITE_CORRUPT
    13: SqliteErrorKind.FULL,
    26: SqliteErrorKind.DAMAGED,  # SQLITE_NOTADB
}
"""Primary result codes: https://www.sqlite.org/rescode.html"""
WORDINGS = {
    "full": SqliteErrorKind.FULL,
    "disk I/O": SqliteErrorKind.FULL,
    "readonly": SqliteErrorKind.READ_ONLY,
    "not a database": SqliteErrorKind.DAMAGED,
    "malformed": SqliteErrorKind.DAMAGED,
    "locked": SqliteErrorKind.LOCKED,
}
"""Python 3.10 does not give the code, so the text has to do there."""
HINTS = {
    SqliteErrorKind.FULL: "free disk space; nothing that was written before is lost",
    SqliteErrorKind.READ_ONLY: "the disk is full or read-only: what is there can be read, and nothing written",
    SqliteErrorKind.DAMAGED: "move the file away to begin with an empty one",
}


def cause_of(error: sqlite3.Error) -> SqliteErrorKind:
    """Why an operation failed."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return CODES.get(code & 0xFF, SqliteErrorKind.OTHER)
    return next((cause for words, cause in WORDINGS.items() if words in str(error)), SqliteErrorKind.OTHER)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """The statements of the block count all or not at all; within another transaction they are a part of it."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE").close()
    try:
        yield
        connection.execute("COMMIT").close()
    except BaseException:
        with suppress(sqlite3.OperationalError):  # a full disk has rolled it back already
            connection.execute("ROLLBACK").close()
        raise


Opened = TypeVar("Opened", bound="SqliteStore")
Values = Mapping[str, object] | Sequence[object]


class SqliteStore:
    """The database of a ``schema`` in the file at ``path``, which is made where necessary, over one connection. Safe to
    use from several threads and processes. Raises LeapError when the file cannot be used, or is of another version.
    ``durable``: see ``connect``."""

    schema: ClassVar[Schema]

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        self._guard = threading.RLock()
        self.connection = connect(path, self.schema, durable=durable)

    def close(self) -> None:
        with self._guard:
            self.connection.close()

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(self, sql: str, values: Values = ()) -> list[Any]:
        """The rows of a query."""
        with self._guard, wrap_sqlite_errors(self.path, self.schema.what):
            cursor = self.connection.execute(sql, values)
            try:
                return cursor.fetchall()
            finally:
                cursor.close()

    def _run(self, sql: str, values: Values = ()) -> int:
        """Run a statement; how many rows it changed."""
        with self._guard, wrap_sqlite_errors(self.path, self.schema.what):
            cursor = self.connection.execute(sql, values)
            try:
                return cursor.rowcount
            finally:
                cursor.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """The statements of the block count all or not at all."""
        with self._usable(), transaction(self.connection):
            yield

    @contextmanager
    def _usable(self) -> Iterator[None]:
        with self._guard, wrap_sqlite_errors(self.path, self.schema.what):
            yield


def words_query(text: str) -> str:
    """What full-text search is asked for all of a text's words, or their beginnings; empty where it has no word."""
    words = [word for word in text.split() if any(char.isalnum() for char in word)]
    return " AND ".join('"{}"*'.format(word.replace('"', '""')) for word in words)


VERSION_AT = 60
"""Where the user version is in a file: https://www.sqlite.org/fileformat.html#the_database_header"""


def has_tables(path: Path) -> bool:
    """Whether the file at ``path`` may hold rows: a full disk leaves a file without tables."""
    try:
        with_log = path.with_name(path.name + "-wal")
        with path.open("rb") as file:
            version = file.read(VERSION_AT + 4)[VERSION_AT:]
        return any(version) or (with_log.exists() and with_log.stat().st_size > 0)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """SQLite does not wait by itself when several processes make this switch at once."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if cause_of(error) is not SqliteErrorKind.LOCKED or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _version(connection: sqlite3.Connection) -> int:
    with closing(connection.execute("PRAGMA user_version")) as cursor:
        return int(cursor.fetchone()[0])


def _make_tables(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    if _version(connection) == schema.version:
        return
    with transaction(connection):
        version = _version(connection)  # another process may have made them meanwhile
        if version == schema.version:
            return
        if version:
            raise LeapError(
                f"{path} is of version {version}, and this leap keeps version {schema.version}",
                hint="use the leap that made it, or another LEAP_HOME; it stays as it is",
            )
        for statement in filter(str.strip, schema.script.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={schema.version}")


def damage(path: Path) -> str | None:
    """What SQLite finds wrong with a file, read only; None when it is sound. Raises LeapError when it cannot be looked
    at now, because it is busy or the disk cannot be written."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)) as connection:
            report = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        raise LeapError(f"{path} cannot be checked: {error}") from None
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if report == "ok" else report
