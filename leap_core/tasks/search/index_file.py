"""One index: a SQLite file with the files, their chunks, the chunks' words (FTS5) and vectors (float16).

A file and its chunks change in one transaction; vectors follow in transactions of a batch each. So a process that is
killed leaves an index in which every file is old or new, and some chunks have no vector yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

from ...errors import LeapError, LeapOptionsError
from ...system.dataclass import dataclass
from ...system.sqlite import Schema, SqliteStore
from .chunking import CHUNK_TOKENS, OVERLAP_TOKENS, TextChunk

if TYPE_CHECKING:
    from numpy import float16
    from numpy.typing import NDArray

SCHEMA = Schema(
    "the index",
    2,
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE files (
        id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
        size INTEGER NOT NULL, modified INTEGER NOT NULL, digest BLOB NOT NULL
    );
    CREATE TABLE chunks (
        id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
        first INTEGER NOT NULL, last INTEGER NOT NULL, digest BLOB NOT NULL, vector BLOB
    );
    CREATE INDEX chunks_of_file ON chunks (file);
    CREATE INDEX chunks_without_vector ON chunks (id) WHERE vector IS NULL;
    CREATE INDEX chunks_by_digest ON chunks (digest) WHERE vector IS NOT NULL;
    CREATE VIRTUAL TABLE words USING fts5 (heading, text, tokenize = 'porter unicode61 remove_diacritics 2')
    """,
)
SETTINGS, FINGERPRINT, CHANGE = "settings", "fingerprint", "change"


@dataclass(frozen=True)
class IndexSettings:
    """``model``: the reference of the embedding model, None for words alone. ``paths``: absolute files and directories.
    ``patterns``: of files below them. ``tokens``, ``overlap``: of a chunk."""

    paths: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    model: str | None = None
    tokens: int = CHUNK_TOKENS
    overlap: int = OVERLAP_TOKENS

    def __post_init__(self) -> None:
        if not 16 <= self.tokens <= 8192:
            raise LeapOptionsError("tokens", f"{self.tokens} must be between 16 and 8192")
        if not 0 <= self.overlap <= self.tokens // 2:
            raise LeapOptionsError("overlap", f"{self.overlap} must be between 0 and half of a chunk's tokens")

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @staticmethod
    def from_json(text: str) -> IndexSettings:
        value = json.loads(text)
        return IndexSettings(**{**value, "paths": tuple(value["paths"]), "patterns": tuple(value["patterns"])})


@dataclass(frozen=True)
class IndexedFile:
    """``modified``: nanoseconds; ``digest``: of the content."""

    id: int
    path: str
    kind: str
    size: int
    modified: int
    digest: bytes


@dataclass(frozen=True)
class Passage:
    """A chunk as it is found: its place, and its words."""

    id: int
    path: str
    kind: str
    first: int
    last: int
    heading: str
    text: str


class IndexFile(SqliteStore):
    """The open index. Use it from one thread at a time."""

    schema = SCHEMA

    # -- settings

    @property
    def settings(self) -> IndexSettings | None:
        """What the index was made for; None for a new one."""
        text = self._meta(SETTINGS)
        try:
            return None if text is None else IndexSettings.from_json(text)
        except (ValueError, TypeError, KeyError) as error:
            raise LeapError(f"the index {self.path} is damaged: {error}", hint="remove it and make it anew") from None

    def save_settings(self, settings: IndexSettings) -> None:
        with self.changing():
            self._set_meta(SETTINGS, settings.to_json())

    @property
    def fingerprint(self) -> str | None:
        """Of the model that made the vectors."""
        return self._meta(FINGERPRINT)

    def begin_vectors(self, fingerprint: str) -> None:
        """Vectors of this model are wanted: those of another one are forgotten."""
        if self.fingerprint != fingerprint:
            with self.changing():
                self._run("UPDATE chunks SET vector = NULL WHERE vector IS NOT NULL")
                self._set_meta(FINGERPRINT, fingerprint)
                self._changed()

    @property
    def change(self) -> int:
        """Counts the changes, so that what was made of the index can be checked for being still true."""
        return int(self._meta(CHANGE) or 0)

    # -- files and chunks

    def files(self) -> dict[str, IndexedFile]:
        """The indexed files by path."""
        return {row["path"]: IndexedFile(**row) for row in self._rows("SELECT * FROM files ORDER BY id")}

    def put_file(self, file: IndexedFile, chunks: Sequence[tuple[TextChunk, bytes]]) -> None:
        """Add or replace a file with its chunks and their digests; a chunk that was there before keeps its vector, also
        one in another file: it may have been moved. ``file.id`` is not looked at."""
        with self.changing():
            kept = self._forget(file.path)
            values = (file.path, file.kind, file.size, file.modified, file.digest)
            query = "INSERT INTO files (path, kind, size, modified, digest) VALUES (?, ?, ?, ?, ?)"
            number = self.connection.execute(query, values).lastrowid
            for chunk, digest in chunks:
                query = "INSERT INTO chunks (file, first, last, digest, vector) VALUES (?, ?, ?, ?, ?)"
                vector = kept.get(digest) or self._vector_of(digest)
                row = (number, chunk.first, chunk.last, digest, vector)
                id = self.connection.execute(query, row).lastrowid
                query = "INSERT INTO words (rowid, heading, text) VALUES (?, ?, ?)"
                self._run(query, (id, chunk.heading, chunk.text))
            self._changed()

    def touch_file(self, file: IndexedFile) -> None:
        """Note the new size and time of a file whose content is the same."""
        with self.changing():
            values = (file.size, file.modified, file.path)
            self._run("UPDATE files SET size = ?, modified = ? WHERE path = ?", values)

    def remove_file(self, path: str) -> None:
        with self.changing():
            self._forget(path)
            self._changed()

    def _forget(self, path: str) -> dict[bytes, bytes]:
        """Remove a file; the vectors of its chunks by digest."""
        query = "SELECT c.id, c.digest, c.vector FROM chunks c JOIN files f ON f.id = c.file WHERE f.path = ?"
        rows = self._rows(query, (path,))
        self.connection.executemany("DELETE FROM words WHERE rowid = ?", [(row["id"],) for row in rows])
        self._run("DELETE FROM files WHERE path = ?", (path,))
        return {row["digest"]: row["vector"] for row in rows if row["vector"] is not None}

    def _vector_of(self, digest: bytes) -> bytes | None:
        query = "SELECT vector FROM chunks WHERE digest = ? AND vector IS NOT NULL LIMIT 1"
        row = next(iter(self._rows(query, (digest,))), None)
        return None if row is None else bytes(row["vector"])

    # -- vectors

    def without_vector(self, most: int) -> list[tuple[int, str]]:
        """Chunks that need a vector, in order: id, and what the model reads."""
        query = """SELECT c.id, w.heading, w.text FROM chunks c JOIN words w ON w.rowid = c.id
                   WHERE c.vector IS NULL ORDER BY c.id LIMIT ?"""
        rows = self._rows(query, (most,))
        return [(row["id"], TextChunk(row["heading"], row["text"], 0, 0).embedded) for row in rows]

    def put_vectors(self, ids: Sequence[int], vectors: NDArray[float16]) -> None:
        with self.changing():
            rows = [(vector.tobytes(), id) for id, vector in zip(ids, vectors, strict=True)]
            self.connection.executemany("UPDATE chunks SET vector = ? WHERE id = ?", rows)
            self._changed()

    def vectors(self) -> Iterator[Sequence[Any]]:
        """Ids and vectors of all chunks that have one, by id."""
        query = "SELECT id, vector FROM chunks WHERE vector IS NOT NULL ORDER BY id"
        with self._usable(), closing(self.connection.execute(query)) as rows:  # too many to be held at once
            yield from rows

    # -- questions

    def counts(self) -> dict[str, int]:
        """How many ``files`` and ``chunks`` there are, and chunks ``without_vector``."""
        query = """SELECT (SELECT count(*) FROM files) AS files, (SELECT count(*) FROM chunks) AS chunks,
                   (SELECT count(*) FROM chunks WHERE vector IS NULL) AS without_vector"""
        return dict(self._rows(query)[0])

    def matching(self, query: str, most: int, files: Sequence[int] | None = None) -> list[int]:
        """Ids of the chunks whose words fit the FTS5 query best, best first."""
        within, values = "", [query]
        if files is not None:
            within = "AND rowid IN (SELECT id FROM chunks WHERE file IN (SELECT value FROM json_each(?)))"
            values.append(json.dumps(list(files)))
        statement = f"""SELECT rowid AS id FROM words WHERE words MATCH ? {within}
                        ORDER BY bm25(words, 2.0, 1.0), rowid LIMIT {int(most)}"""
        return [row["id"] for row in self._rows(statement, values)]

    def chunks_of(self, files: Sequence[int]) -> list[int]:
        """Ids of the chunks of these files."""
        query = "SELECT id FROM chunks WHERE file IN (SELECT value FROM json_each(?))"
        return [row["id"] for row in self._rows(query, (json.dumps(list(files)),))]

    def passages(self, ids: Sequence[int]) -> list[Passage]:
        """The chunks of these ids, in their order; those that are gone are left out."""
        query = """SELECT c.id, f.path, f.kind, c.first, c.last, w.heading, w.text
                   FROM chunks c JOIN files f ON f.id = c.file JOIN words w ON w.rowid = c.id
                   WHERE c.id IN (SELECT value FROM json_each(?))"""
        by_id = {row["id"]: Passage(**row) for row in self._rows(query, (json.dumps(list(ids)),))}
        return [by_id[id] for id in ids if id in by_id]

    # -- SQLite

    def changing(self) -> AbstractContextManager[None]:
        """One transaction."""
        return self._transaction()

    def _meta(self, key: str) -> str | None:
        row = next(iter(self._rows("SELECT value FROM meta WHERE key = ?", (key,))), None)
        return None if row is None else str(row["value"])

    def _set_meta(self, key: str, value: str) -> None:
        self._run("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def _changed(self) -> None:
        self._set_meta(CHANGE, str(self.change + 1))
