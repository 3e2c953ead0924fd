"""The database of the log. It is private to the user, and a lost line of it costs no answer.

Lines have numbers that are never used again. The newest transactions may go with the machine's power, in order.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..storage import sqlite as database
from ..storage.atomic_files import text_of
from .entry import Entry

WHAT = "the log of prompts"
PATIENCE_MILLISECONDS = 5000
"""How long a line waits for another process that writes."""
SNIPPET_WORDS = 12
MIGRATIONS = (
    """
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        asked REAL NOT NULL,
        seconds REAL NOT NULL,
        command TEXT NOT NULL,
        model TEXT NOT NULL,
        system TEXT,
        prompt TEXT NOT NULL,
        turns INTEGER NOT NULL,
        answer TEXT NOT NULL,
        reasoning TEXT,
        calls TEXT NOT NULL,
        options TEXT NOT NULL,
        schema TEXT,
        finish TEXT,
        error TEXT,
        prompt_tokens INTEGER,
        answer_tokens INTEGER
    );
    CREATE INDEX entries_by_time ON entries (asked);
    CREATE INDEX entries_by_schema ON entries (schema) WHERE schema IS NOT NULL;
    CREATE VIRTUAL TABLE words USING fts5 (prompt, answer, tokenize="unicode61 remove_diacritics 2");
    """,
    "ALTER TABLE entries ADD COLUMN rating TEXT;",
    "ALTER TABLE entries ADD COLUMN made_by TEXT NOT NULL DEFAULT '{}';",
)
COLUMNS = tuple(name for name in Entry.__dataclass_fields__ if name != "id")
JSON_COLUMNS = ("calls", "options", "made_by")


@dataclass(frozen=True)
class Match:
    """An entry that was searched for, and the part of its text around what was found."""

    entry: Entry
    snippet: str


@dataclass
class PromptLog:
    """The log in the file at ``path``, which is made where necessary. Safe to use from several threads and processes.
    Raises LeapError when the file cannot be used, or was made by a newer leap."""

    path: Path
    _guard: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._connection = database.connect(self.path, MIGRATIONS, WHAT, durable=False)
        with self._guard, database.wrap_sqlite_errors(self.path, WHAT):
            self._connection.execute(f"PRAGMA busy_timeout={PATIENCE_MILLISECONDS}").close()
            self._connection.execute("PRAGMA secure_delete=ON").close()

    def close(self) -> None:
        with self._guard:
            self._connection.close()

    def __enter__(self) -> PromptLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, entry: Entry) -> int:
        """Write an entry; its number."""
        values = {**asdict(entry), **{name: json.dumps(getattr(entry, name)) for name in JSON_COLUMNS}}
        row = [text_of(values[name]) if isinstance(values[name], str) else values[name] for name in COLUMNS]
        places = ", ".join("?" * len(row))
        with self._transaction() as connection:
            cursor = connection.execute(f"INSERT INTO entries ({', '.join(COLUMNS)}) VALUES ({places})", row)
            number = int(cursor.lastrowid or 0)
            connection.execute(
                "INSERT INTO words (rowid, prompt, answer) VALUES (?, ?, ?)",
                (number, text_of(entry.prompt), text_of(entry.answer)),
            )
        return number

    def rate(self, number: int, rating: str | None) -> bool:
        """Rate an entry, good or bad; None takes its rating away. False where there is no such entry."""
        with self._transaction() as connection:
            return connection.execute("UPDATE entries SET rating=? WHERE id=?", (rating, number)).rowcount > 0

    def get(self, number: int | None = None) -> Entry | None:
        """The entry with this number, or the newest; None where there is none."""
        if number is None:
            rows = self._rows("SELECT * FROM entries ORDER BY id DESC LIMIT 1", ())
        else:
            rows = self._rows("SELECT * FROM entries WHERE id=?", (number,))
        return _entry(rows[0]) if rows else None

    def entries(
        self,
        *,
        limit: int | None = None,
        model: str | None = None,
        since: float | None = None,
        schemas: Sequence[str] | None = None,
    ) -> list[Entry]:
        """Entries, newest first. ``model``: the beginning of its name, in any case. ``since``: seconds since 1970.
        ``schemas``: canonical texts of schemas; an empty sequence is any schema."""
        conditions, values = _conditions(model, since)
        if schemas is not None:
            conditions.append(f"schema IN ({', '.join('?' * len(schemas))})" if schemas else "schema IS NOT NULL")
            values += schemas
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        rows = self._rows(
            f"SELECT * FROM entries {where}ORDER BY id DESC LIMIT ?", (*values, -1 if limit is None else limit)
        )
        return [_entry(row) for row in rows]

    def search(
        self, text: str, *, limit: int | None = None, model: str | None = None, since: float | None = None
    ) -> list[Match]:
        """Entries with all of these words, or beginnings of words, in prompt or answer, best first; where there are
        none, those that hold the text as it is. Case does not matter."""
        words = [word for word in text_of(text).split() if any(char.isalnum() for char in word)]
        conditions, values = _conditions(model, since)
        also = "".join(f" AND {condition}" for condition in conditions)
        most = -1 if limit is None else limit
        rows: list[sqlite3.Row] = []
        if words:
            query = " AND ".join('"{}"*'.format(word.replace('"', '""')) for word in words)
            rows = self._rows(
                f"SELECT entries.*, snippet(words, -1, '', '', '…', {SNIPPET_WORDS}) AS snippet FROM words "
                f"JOIN entries ON entries.id=words.rowid WHERE words MATCH ?{also} ORDER BY rank, id DESC LIMIT ?",
                (query, *values, most),
            )
        if not rows and text.strip():
            rows = self._rows(
                "SELECT *, substr(whole, max(1, at - 30), 100) AS snippet FROM ("
                "SELECT *, instr(lower(whole), lower(?)) AS at FROM ("
                "SELECT *, prompt || char(10) || answer AS whole FROM entries)) "
                f"WHERE at > 0{also} ORDER BY id DESC LIMIT ?",
                (text_of(text), *values, most),
            )
        return [Match(_entry(row), row["snippet"]) for row in rows]

    def count(self, before: float | None = None) -> int:
        """How many entries there are, or were asked before a time in seconds since 1970."""
        rows = self._rows("SELECT COUNT(*) AS n FROM entries WHERE ? IS NULL OR asked < ?", (before, before))
        return int(rows[0]["n"])

    def clear(self, before: float | None = None) -> int:
        """Forget all entries, or those asked before a time; their text is wiped from the file. How many they were."""
        with self._transaction() as connection:
            condition = "" if before is None else " WHERE asked < ?"
            values = () if before is None else (before,)
            connection.execute(f"DELETE FROM words WHERE rowid IN (SELECT id FROM entries{condition})", values)
            removed = connection.execute(f"DELETE FROM entries{condition}", values).rowcount
            connection.execute("INSERT INTO words (words) VALUES ('optimize')")
        with suppress(sqlite3.Error), self._guard:  # room only: another process may be reading
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        return removed

    def _rows(self, query: str, values: Sequence[object]) -> list[sqlite3.Row]:
        with self._guard, database.wrap_sqlite_errors(self.path, WHAT):
            return self._connection.execute(query, tuple(values)).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guard, database.wrap_sqlite_errors(self.path, WHAT), database.transaction(self._connection):
            yield self._connection


def _conditions(model: str | None, since: float | None) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    if model is not None:
        conditions.append("substr(lower(model), 1, length(?)) = lower(?)")
        values += [model, model]
    if since is not None:
        conditions.append("asked >= ?")
        values.append(since)
    return conditions, values


def _entry(row: sqlite3.Row) -> Entry:
    values = {name: row[name] for name in (*COLUMNS, "id")}
    return Entry(**{**values, **{name: json.loads(row[name]) for name in JSON_COLUMNS}})
