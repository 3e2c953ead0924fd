"""Conversations that are kept: a SQLite file of sessions, their messages, and an index of their words.

A session has an id, and may have a name. Messages are kept in OpenAI's JSON with their pictures and
sound. What a method has written when it returns survives the death of the process and the loss of power.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import LeapSerializationError, LeapSessionError
from ..system.dataclass import dataclass
from ..system.files import text_of
from ..system.sqlite import Schema, SqliteStore, words_query
from .conversation import NOTHING, Omission
from .messages import ChatMessage, ChatMessageRole

RATINGS = ("good", "bad")


@dataclass(frozen=True)
class Mark:
    """``finish``: why an answer ended, a GenerationFinishReason's value; None for what no model answered here.
    ``rating``: one of RATINGS, or None."""

    finish: str | None = None
    rating: str | None = None

    def to_json(self) -> dict[str, str]:
        """Its values that are there."""
        return {name: value for name, value in vars(self).items() if value is not None}


UNMARKED = Mark()


def carried(before: Sequence[tuple[str, Mark]], after: Sequence[str]) -> list[Mark | None]:
    """The marks of messages that take the place of others; None for those that are new. ``before``: each message as it
    is stored, with its mark; ``after``: the new ones. A message that stays, in its order, keeps its mark."""
    marks: list[Mark | None] = []
    place = 0
    for value in after:
        found = next((n for n in range(place, len(before)) if before[n][0] == value), None)
        marks.append(None if found is None else before[found][1])
        place = place if found is None else found + 1
    return marks


TITLE_CHARACTERS = 60


def title(history: Sequence[ChatMessage]) -> str:
    first = next((message.text for message in history if message.role is ChatMessageRole.USER), "")
    line = " ".join(storable(first[: 10 * TITLE_CHARACTERS]).split())
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"


def stored_value(message: ChatMessage) -> str:
    """A message as it is stored, in ASCII: a lone surrogate has no UTF-8."""
    return json.dumps(message.to_json(), separators=(",", ":"))


def storable(text: str) -> str:
    """Text that SQLite can hold and its full-text search can read."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Ids are made of these, as those of jobs are: no letter looks like a digit."""
ID_CHARACTERS = 8
LONGEST_NAME = 100
SNIPPET_WORDS = 12
MOST_FOUND = 100

SCHEMA = Schema(
    "the file of sessions",
    3,
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        name TEXT UNIQUE,
        title TEXT NOT NULL DEFAULT '',
        model TEXT,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        change INTEGER NOT NULL,
        omitted INTEGER NOT NULL DEFAULT 0,
        summary TEXT
    );
    CREATE INDEX sessions_by_change ON sessions (change);
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        number INTEGER NOT NULL,
        role TEXT NOT NULL,
        value TEXT NOT NULL,
        finish TEXT,
        rating TEXT,
        UNIQUE (session, number)
    );
    CREATE VIRTUAL TABLE words USING fts5 (text, tokenize="unicode61 remove_diacritics 2");
    """,
)
"""``change`` counts all changes, so that the newest is known whatever the clock does. A row of ``words`` has the id of
its message. ``omitted`` and ``summary`` are an Omission, ``finish`` and ``rating`` a Mark."""

SESSION = (
    "SELECT id, name, title, model, created, updated, "
    "(SELECT COUNT(*) FROM messages WHERE session=sessions.id) AS messages FROM sessions"
)


@dataclass(frozen=True)
class Session:
    """What is known of a kept conversation. ``title`` is the beginning of the first thing its user said, ``model`` the
    reference of the model it began with; the times are seconds since 1970."""

    id: str
    name: str | None
    title: str
    model: str | None
    created: float
    updated: float
    messages: int

    @property
    def label(self) -> str:
        """How to call it: its name, or its id."""
        return self.name or self.id

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Found(NamedTuple):
    """A message that was searched for. ``snippet`` is the part of its text around what was found."""

    session: Session
    role: str
    snippet: str


class SessionStore(SqliteStore):
    """Sessions. Raises LeapSessionError for one that is not there or is damaged."""

    schema = SCHEMA

    # -- asking

    def get(self, name_or_id: str) -> Session | None:
        """The session with exactly this name or, when there is none, with this id."""
        rows = self._rows(f"{SESSION} WHERE name=? OR id=? ORDER BY name IS NOT ?", (name_or_id,) * 3)
        return _session(rows[0]) if rows else None

    def matching(self, reference: str) -> Sequence[Session]:
        """The session with this name or id, else those whose ids begin so."""
        exact = self.get(reference)
        if exact is not None:
            return [exact]
        begins = reference != "" and set(reference) <= set(ALPHABET)
        rows = self._rows(f"{SESSION} WHERE id GLOB ? ORDER BY change DESC", (f"{reference}*",)) if begins else []
        return [_session(row) for row in rows]

    def find(self, reference: str) -> Session:
        """The session with this name, or whose id begins so. Raises LeapSessionError when there is none, or several."""
        sessions = self.matching(reference)
        if len(sessions) > 1:
            ids = ", ".join(each.id for each in sessions[:3]) + (", …" if sessions[3:] else "")
            raise LeapSessionError(f"several sessions begin with {reference!r}: {ids}", hint="give more of the id")
        if not sessions:
            raise self._unknown(reference)
        return sessions[0]

    def latest(self) -> Session | None:
        """The session that was written to last."""
        rows = self._rows(f"{SESSION} ORDER BY change DESC LIMIT 1")
        return _session(rows[0]) if rows else None

    def list(self, limit: int | None = None) -> Sequence[Session]:
        """Sessions, the one that was written to last first."""
        rows = self._rows(f"{SESSION} ORDER BY change DESC LIMIT ?", (-1 if limit is None else limit,))
        return [_session(row) for row in rows if not _is_damaged(row)]

    def damaged(self) -> Sequence[str]:
        """The ids of sessions whose rows cannot be read; ``list`` passes them over."""
        return [str(row["id"]) for row in self._rows(SESSION) if _is_damaged(row)]

    def history(self, id: str) -> Sequence[ChatMessage]:
        """The messages of the session with exactly this id. Raises LeapSessionError for one that is damaged."""
        self._existing(id)
        rows = self._rows("SELECT value FROM messages WHERE session=? ORDER BY number", (id,))
        messages = []
        for number, row in enumerate(rows, start=1):
            try:
                messages.append(ChatMessage.from_json(json.loads(row["value"])))
            except (TypeError, ValueError, RecursionError, LeapSerializationError) as error:
                raise LeapSessionError(
                    f"the session {id} is damaged: its message {number} cannot be read: {error}",
                    hint=f"leap sessions remove {id} forgets it",
                ) from None
        return messages

    def marks(self, id: str) -> Sequence[Mark]:
        """What is kept beside each message of ``history``."""
        rows = self._rows("SELECT finish, rating FROM messages WHERE session=? ORDER BY number", (id,))
        return [Mark(*row) for row in rows]

    def omission(self, id: str) -> Omission:
        """What of the session the model no longer gets."""
        rows = self._rows("SELECT omitted, summary FROM sessions WHERE id=?", (id,))
        return Omission(*rows[0]) if rows else NOTHING

    def search(self, text: str) -> Sequence[Found]:
        """Messages with all of these words, or beginnings of words, best first; where there are none, those in which
        the text is searched as it is. Case does not matter."""
        query = words_query(storable(text))
        rows = (
            self._rows(
                f"SELECT session, role, snippet(words, 0, '', '', '…', {SNIPPET_WORDS}) AS snippet FROM words "
                f"JOIN messages ON messages.id=words.rowid WHERE words MATCH ? ORDER BY rank LIMIT {MOST_FOUND}",
                (query,),
            )
            if query
            else []
        )
        rows = (
            rows
            or self._rows(
                "SELECT session, role, substr(text, max(1, at - 30), 100) AS snippet FROM ("
                "SELECT session, role, text, instr(lower(text), lower(?)) AS at, messages.id AS message FROM words "
                f"JOIN messages ON messages.id=words.rowid) WHERE at > 0 ORDER BY message DESC LIMIT {MOST_FOUND}",
                (storable(text),),
            )
            if text.strip()
            else []
        )
        sessions = {session.id: session for session in self.list()}
        return [
            Found(sessions[row["session"]], row["role"], row["snippet"])
            for row in rows
            if row["session"] in sessions  # not removed meanwhile
        ]

    # -- changing

    def create(self, *, model: str | None = None, name: str | None = None) -> Session:
        """A new, empty session. Raises LeapSessionError when the name is taken or is none."""
        with self._transaction():
            self.check_name(name)
            return self._insert(model, name)

    def named(self, name: str, *, model: str | None = None) -> Session:
        """The session with exactly this name or id; where there is none, a new one of this name."""
        with self._transaction():
            session = self.get(name)
            if session is None:
                self.check_name(name)
            return session or self._insert(model, name)

    def append(self, id: str, message: ChatMessage, mark: Mark | None = None) -> None:
        """Add a message at the end."""
        mark = mark or UNMARKED
        with self._transaction():
            self._existing(id)
            rows = self._rows("SELECT COALESCE(MAX(number) + 1, 0) AS next FROM messages WHERE session=?", (id,))
            self._write(id, rows[0]["next"], stored_value(message), message, mark)
            self._touch(id, "title=CASE title WHEN '' THEN ? ELSE title END", title([message]))

    def replace(
        self, id: str, history: Sequence[ChatMessage], *, instead_of: int | None = None, answered: Mark = UNMARKED
    ) -> bool:
        """Put these messages in the place of those that there are; not where those are not ``instead_of`` many, because
        another process has written meanwhile. Messages that stay keep their marks, and new answers get ``answered``.
        Returns whether it was done."""
        with self._transaction():
            if instead_of not in (None, self._existing(id).messages):
                return False
            rows = self._rows("SELECT value, finish, rating FROM messages WHERE session=? ORDER BY number", (id,))
            values = [stored_value(message) for message in history]
            marks = carried([(row["value"], Mark(row["finish"], row["rating"])) for row in rows], values)
            self._forget_messages(id)
            for number, (value, message, mark) in enumerate(zip(values, history, marks, strict=True)):
                if mark is None:
                    mark = answered if message.role is ChatMessageRole.ASSISTANT else UNMARKED
                self._write(id, number, value, message, mark)
            self._touch(id, "title=?", title(history))
        return True

    def rate(self, id: str, rating: str | None) -> None:
        """Rate the last answer; None takes its rating away. Raises LeapSessionError where there is none."""
        with self._transaction():
            rows = self._rows("SELECT MAX(number) AS last FROM messages WHERE session=? AND role='assistant'", (id,))
            if rows[0]["last"] is None:
                raise LeapSessionError("there is no answer yet that could be rated")
            self._run("UPDATE messages SET rating=? WHERE session=? AND number=?", (rating, id, rows[0]["last"]))

    def omit(self, id: str, omission: Omission) -> None:
        """Remember what the model no longer gets."""
        with self._transaction():
            self._existing(id)
            values = (omission.messages, omission.summary and storable(omission.summary), id)
            self._run("UPDATE sessions SET omitted=?, summary=? WHERE id=?", values)

    def rename(self, id: str, name: str | None) -> None:
        """Give the session a name, or take it away. Raises LeapSessionError when it is taken or is none."""
        with self._transaction():
            if self._existing(id).name != name:
                self.check_name(name)
                self._run("UPDATE sessions SET name=? WHERE id=?", (name, id))

    def remove(self, id: str) -> None:
        """Forget the session and its messages, also one that is damaged."""
        with self._transaction():
            if id not in self.damaged():
                self._existing(id)
            self._forget_messages(id)
            self._run("DELETE FROM sessions WHERE id=?", (id,))

    def untouched(self, older_than: float, *, named: bool = False) -> Sequence[Session]:
        """The sessions that nothing was written to for so many seconds, those with a name only if ``named``."""
        before = time.time() - older_than
        return [each for each in self.list() if each.updated < before and (named or each.name is None)]

    def prune(self, older_than: float, *, named: bool = False) -> Sequence[Session]:
        """Forget the sessions that nothing was written to for so many seconds, those with a name only if ``named``.
        Returns what was forgotten."""
        with self._transaction():
            old = self.untouched(older_than, named=named)
            for session in old:
                self.remove(session.id)
        return old

    def _insert(self, model: str | None, name: str | None) -> Session:
        now = time.time()
        model = None if model is None else text_of(model)
        while True:
            id = "".join(secrets.choice(ALPHABET) for _ in range(ID_CHARACTERS))
            if self.get(id) is None:
                break
        self._run(
            "INSERT INTO sessions (id, name, model, created, updated, change) VALUES (?, ?, ?, ?, ?, 0)",
            (id, name, model, now, now),
        )
        self._touch(id, "model=?", model)
        return self._existing(id)

    def _write(self, id: str, number: int, value: str, message: ChatMessage, mark: Mark) -> None:
        self._run(
            "INSERT INTO messages (session, number, role, value, finish, rating) VALUES (?, ?, ?, ?, ?, ?)",
            (id, number, message.role.value, value, mark.finish, mark.rating),
        )
        self._run("INSERT INTO words (rowid, text) VALUES (last_insert_rowid(), ?)", (storable(message.text),))

    def _touch(self, id: str, assignment: str, value: str | None) -> None:
        self._run(
            f"UPDATE sessions SET updated=?, change=(SELECT MAX(change) + 1 FROM sessions), {assignment} WHERE id=?",
            (time.time(), value, id),
        )

    def _forget_messages(self, id: str) -> None:
        self._run("DELETE FROM words WHERE rowid IN (SELECT id FROM messages WHERE session=?)", (id,))
        self._run("DELETE FROM messages WHERE session=?", (id,))

    def check_name(self, name: str | None) -> None:
        """Raises LeapSessionError when a session cannot be given this name; None is no name."""
        if name is None:
            return
        if not name.strip() or name.startswith("-") or not name.isprintable() or len(name) > LONGEST_NAME:
            raise LeapSessionError(
                f"{name!r} cannot name a session",
                hint=f"a name has 1 to {LONGEST_NAME} characters on one line and does not begin with a dash",
            )
        holder = self.get(name)
        if holder is not None:
            raise LeapSessionError(f"the session {holder.id} is called {name!r} already", hint="choose another name")

    def _existing(self, id: str) -> Session:
        rows = self._rows(f"{SESSION} WHERE id=?", (id,))
        if not rows:
            raise self._unknown(id)
        return _session(rows[0])

    def _unknown(self, reference: str) -> LeapSessionError:
        near = get_close_matches(reference, [each.name for each in self.list() if each.name], 2)
        advice = f"did you mean {' or '.join(near)}? " if near else ""
        return LeapSessionError(f"there is no session {reference!r}", hint=f"{advice}leap sessions list shows them")


def _is_damaged(row: sqlite3.Row) -> bool:
    """Whether a row has values of kinds that leap never writes."""
    texts = all(row[name] is None or isinstance(row[name], str) for name in ("id", "name", "title", "model"))
    return not texts or not all(isinstance(row[name], (int, float)) for name in ("created", "updated"))


def _session(row: sqlite3.Row) -> Session:
    if _is_damaged(row):
        raise LeapSessionError(
            f"the session {row['id']} is damaged: its row cannot be read",
            hint=f"leap sessions remove {row['id']} forgets it",
        )
    return Session(**{name: row[name] for name in row.keys()})  # noqa: SIM118 (a Row iterates over values)


MOST = 50
PATIENCE_SECONDS = 0.2


class Glimpse(NamedTuple):
    """What distinguishes sessions."""

    id: str
    name: str | None
    title: str


def newest(file: Path) -> list[Glimpse]:
    """The sessions that were written to last. Empty where there is no file of sessions that can be read."""
    if not file.is_file():
        return []
    query = f"SELECT id, name, title FROM sessions ORDER BY change DESC LIMIT {MOST}"
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)) as connection:
            return [Glimpse(*row) for row in connection.execute(query)]
    except sqlite3.Error:
        return []
