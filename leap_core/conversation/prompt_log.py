"""The log of prompts and answers, kept where the user asked for it: its entries, its database, asking again.

Lines have numbers that are never used again. The newest transactions may go with the machine's power, in order.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LeapError, LeapOptionsError, LeapSchemaError
from ..schemas.json_values import canonical
from ..schemas.shorthand import list_of
from ..schemas.transforms import absent_as_null, closed
from ..system import __version__
from ..system.dataclass import dataclass
from ..system.files import text_of
from ..system.sqlite import Schema, SqliteStore, words_query
from .messages import ChatMessage, ChatMessageRole, Text
from .options import GenerationOptions
from .request_facts import failed
from .responses import Complete

if TYPE_CHECKING:
    from .generator import Generator
    from .request import Request

TRIALS = ("improve", "eval", "bench", "train")
"""Commands whose questions are no person's."""


@dataclass
class Entry:
    """``asked`` is seconds since 1970, ``seconds`` how long the answer took. ``command``: who asked, such as
    ``generate``. ``prompt``: what was said since the last answer; images and audio are named, not kept. ``turns``:
    messages before that. ``options``: those that differ from the model's own, without the shape. ``schema``: the JSON
    schema that the answer was held to, as text. ``finish``: why the answer ended; None where ``error`` says why there
    is none. ``rating``: good, bad, or None. ``made_by``: what the same answer depends on besides the request, see
    ``made_by``. ``facts``: how the request went (``RequestFacts``). ``id``: its number in the log, 0 before it is in
    one."""

    command: str
    model: str
    prompt: str
    system: str | None = None
    turns: int = 0
    answer: str = ""
    reasoning: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    schema: str | None = None
    finish: str | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    asked: float = field(default_factory=time.time)
    seconds: float = 0.0
    rating: str | None = None
    made_by: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    id: int = 0

    @property
    def is_trial(self) -> bool:
        """Whether leap asked it to measure a model or a prompt, and no person did."""
        return self.command.partition(" ")[0] in TRIALS

    def end(self, complete: Complete, seconds: float) -> None:
        """Take note of the answer."""
        message, stats = complete.full_message, complete.stats
        self.answer, self.reasoning = message.text, message.reasoning_content
        self.calls = [call.to_json()["function"] for call in message.function_calls or ()]
        self.finish, self.seconds = complete.finish_reason.value, seconds
        if complete.facts is not None:
            self.facts |= complete.facts.to_json()
        if complete.searches:
            self.facts["searches"] = len(complete.searches)
        if stats is not None:
            self.prompt_tokens, self.answer_tokens = stats.prompt_tokens, stats.completion_tokens
            self.made_by |= {"engine": stats.engine} if stats.engine else {}

    def fail(self, error: LeapError, seconds: float) -> None:
        """Take note that there is none."""
        self.error, self.seconds = error.message, seconds
        self.facts |= failed(error).to_json()

    def to_json(self) -> dict[str, Any]:
        """All of it; ``schema`` as the document that it is."""
        schema = None if self.schema is None else json.loads(self.schema)
        return {"id": self.id, **asdict(self), "schema": schema}


def entry_of(command: str, model: str, request: Request) -> Entry:
    """The beginning of an entry: what is asked. ``facts`` name what of it the log does not hold."""
    messages = request.messages
    system = next((each.text for each in messages if each.role is ChatMessageRole.SYSTEM), None)
    talk = [each for each in messages if each.role is not ChatMessageRole.SYSTEM]
    ends = [n for n, each in enumerate(talk, 1) if each.role is ChatMessageRole.ASSISTANT]
    turns = ends[-1] if ends else 0
    prompt = "\n\n".join(described(each) for each in talk[turns:])
    entry = Entry(command, model, prompt, system=system, turns=turns, **_options(request.options))
    lost = [FUNCTIONS] if request.functions else []
    if not turns and _messages(entry) != list(messages):
        lost.append(MESSAGES)
    return _losing(entry, lost)


def text_entry(command: str, model: str, text: str, options: GenerationOptions | None) -> Entry:
    """The beginning of an entry of a text that the model continues from."""
    return _losing(Entry(command, model, text, **_options(options)), [TEXT])


LOST = "lost"
"""Of an entry's ``facts``: what of the request the log does not hold."""
FUNCTIONS, MESSAGES = "declares functions", "has several messages or parts in one prompt"
TEXT = "continues a text, which is no message"


def _losing(entry: Entry, lost: list[str]) -> Entry:
    entry.facts |= {LOST: lost} if lost else {}
    return entry


def made_by(runner: Generator) -> dict[str, Any]:
    """The version of leap, which brings its llama.cpp, and in hexadecimal the weights, where the runner knows them."""
    weights = runner.decision_model.fingerprint
    return {"leap": __version__, **({"weights": weights} if weights else {})}


def described(message: ChatMessage) -> str:
    """A message's text, with a mark in place of each image or audio."""
    parts = (part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in message.content)
    return "\n".join(parts)


def _options(options: GenerationOptions | None) -> dict[str, Any]:
    if options is None:
        return {}
    plain = GenerationOptions().to_json()
    values = {name: value for name, value in options.to_json().items() if value != plain.get(name)}
    schema = values.get("json_schema_constraint")
    try:
        text = None if schema is None else canonical(json.loads(schema))
    except ValueError:  # the generation says what is wrong with it
        return {"options": values}
    values.pop("json_schema_constraint", None)
    return {"options": values, "schema": text}


PATIENCE_MILLISECONDS = 5000
"""How long a line waits for another process that writes."""
SNIPPET_WORDS = 12
SCHEMA = Schema(
    "the log of prompts",
    3,
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
        answer_tokens INTEGER,
        rating TEXT,
        made_by TEXT NOT NULL DEFAULT '{}'
    );
    CREATE INDEX entries_by_time ON entries (asked);
    CREATE INDEX entries_by_schema ON entries (schema) WHERE schema IS NOT NULL;
    CREATE VIRTUAL TABLE words USING fts5 (prompt, answer, tokenize="unicode61 remove_diacritics 2");
    """,
)
COLUMNS = tuple(name for name in Entry.__dataclass_fields__ if name not in ("id", "facts"))
JSON_COLUMNS = ("calls", "options", "made_by")
FACTS = "facts"


@dataclass(frozen=True)
class Match:
    """An entry that was searched for, and the part of its text around what was found."""

    entry: Entry
    snippet: str


class PromptLog(SqliteStore):
    """The log; what is removed from it is overwritten in the file."""

    schema = SCHEMA

    def __init__(self, path: Path) -> None:
        super().__init__(path, durable=False)
        self._run(f"PRAGMA busy_timeout={PATIENCE_MILLISECONDS}")
        self._run("PRAGMA secure_delete=ON")

    def add(self, entry: Entry) -> int:
        """Write an entry; its number."""
        values = {**asdict(entry), **{name: json.dumps(getattr(entry, name)) for name in JSON_COLUMNS}}
        if entry.facts:
            values["made_by"] = json.dumps({**entry.made_by, FACTS: entry.facts})
        row = [text_of(values[name]) if isinstance(values[name], str) else values[name] for name in COLUMNS]
        places = ", ".join("?" * len(row))
        with self._transaction():
            self._run(f"INSERT INTO entries ({', '.join(COLUMNS)}) VALUES ({places})", row)
            number = int(self._rows("SELECT last_insert_rowid() AS id")[0]["id"])
            self._run(
                "INSERT INTO words (rowid, prompt, answer) VALUES (?, ?, ?)",
                (number, text_of(entry.prompt), text_of(entry.answer)),
            )
        return number

    def rate(self, number: int, rating: str | None) -> bool:
        """Rate an entry, good or bad; None takes its rating away. False where there is no such entry."""
        return self._run("UPDATE entries SET rating=? WHERE id=?", (rating, number)) > 0

    def get(self, number: int | None = None) -> Entry | None:
        """The entry with this number, or the newest; None where there is none."""
        if number is None:
            rows = self._rows("SELECT * FROM entries ORDER BY id DESC LIMIT 1")
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
        query = words_query(text_of(text))
        conditions, values = _conditions(model, since)
        also = "".join(f" AND {condition}" for condition in conditions)
        most = -1 if limit is None else limit
        rows: list[sqlite3.Row] = []
        if query:
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
        with self._transaction():
            condition = "" if before is None else " WHERE asked < ?"
            values = () if before is None else (before,)
            self._run(f"DELETE FROM words WHERE rowid IN (SELECT id FROM entries{condition})", values)
            removed = self._run(f"DELETE FROM entries{condition}", values)
            self._run("INSERT INTO words (words) VALUES ('optimize')")
        with suppress(sqlite3.Error), self._guard:  # room only: another process may be reading
            self.connection.execute("VACUUM")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        return removed


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
    read = {name: json.loads(row[name]) for name in JSON_COLUMNS}
    return Entry(**{**values, **read}, facts=read["made_by"].pop(FACTS, {}))


FINISHED = ("stop", "constraint")


def forms_of(schema: Any) -> list[str]:
    """The canonical texts of a schema and of what leap makes of it: a list of its documents, and the closed one that
    ``leap extract`` asks for, with null for absent fields and strings from the text."""
    from ..schemas.grounding import copying

    forms = [schema]
    with suppress(LeapSchemaError):
        forms.append(list_of(schema))
    if isinstance(schema, dict):
        forms += [closed(schema), absent_as_null(closed(schema))]
        forms += [copying(form) for form in forms[-2:]]
    return list(dict.fromkeys(canonical(form) for form in forms))


def documents(
    log: PromptLog,
    schemas: Sequence[str] | None,
    *,
    limit: int | None = None,
    model: str | None = None,
    since: float | None = None,
) -> Iterator[Any]:
    """The documents of whole answers with one of these schemas, or with any, oldest first; the newest ``limit`` of
    them. The elements of a list that was asked for as one of a schema's documents come one by one."""
    from ..schemas.json_schema import without_absent

    of_list, own = (schemas[1:2], json.loads(schemas[0])) if schemas else ([], None)
    answers = log.entries(model=model, since=since, schemas=schemas or [])
    values: list[Any] = []
    for entry in answers:
        document = _document(entry)
        if document is not None and schemas and entry.schema == schemas[-1]:
            document = without_absent(document, own, own or {})
        if document is not None:
            values += reversed(document) if entry.schema in of_list and isinstance(document, list) else [document]
    yield from reversed(values[:limit])


def _document(entry: Entry) -> Any:
    if entry.finish not in FINISHED:
        return None
    try:
        return json.loads(entry.answer)
    except ValueError:
        return None


NOT_KEPT = re.compile(r"^\[(image|audio|imagefile|audiofile|picture|sound)\w*\]$", re.MULTILINE | re.IGNORECASE)
AROUND = 20
MAKERS = {"weights": "another file of the model", "leap": "another version of leap or of llama.cpp"}


def request_of(entry: Entry) -> Request:
    """What an entry asked. Raises LeapOptionsError where the log does not hold all of it."""
    from .request import Request

    if entry.turns:
        raise LeapOptionsError(
            "entry", f"{entry.id} continues {entry.turns} earlier messages, which the log does not contain"
        )
    if NOT_KEPT.search(entry.prompt):
        raise LeapOptionsError("entry", f"{entry.id} has a picture or a sound, which the log does not hold")
    if entry.calls:
        raise LeapOptionsError("entry", f"{entry.id} calls functions, whose declarations the log does not hold")
    if lost := entry.facts.get(LOST):
        raise LeapOptionsError("entry", f"{entry.id} {' and '.join(lost)}; the log does not hold such a request")
    if entry.error is not None:
        raise LeapOptionsError("entry", f"{entry.id} has no whole answer: {entry.error}")
    options = dict(entry.options)
    if entry.schema is not None:
        options["json_schema_constraint"] = entry.schema
    return Request(_messages(entry), options=GenerationOptions.from_json(options))


def _messages(entry: Entry) -> list[ChatMessage]:
    """Those of an entry's request, where it has one prompt of text."""
    system = [ChatMessage("system", entry.system)] if entry.system is not None else []
    return [*system, ChatMessage("user", entry.prompt)]


def difference(before: Entry, again: Entry) -> dict[str, Any]:
    """Whether text, reasoning and reason of the end are ``same``; else from which character on the texts differ, and
    what may be why."""
    same = (before.answer, before.reasoning, before.finish) == (again.answer, again.reasoning, again.finish)
    if same:
        return {"same": True}
    pairs = enumerate(zip(before.answer, again.answer, strict=False))
    place = next((n for n, (old, new) in pairs if old != new), min(len(before.answer), len(again.answer)))
    around = slice(max(0, place - AROUND), place + AROUND)
    return {
        "same": False,
        "from_character": place,
        "was": before.answer[around],
        "is": again.answer[around],
        "ended": before.finish,
        "ends": again.finish,
        "reasons": reasons(before, again),
    }


def reasons(before: Entry, again: Entry) -> list[str]:
    """What may make two answers to one request differ."""
    found = []
    if before.model != again.model:
        found.append(f"another model: {before.model} answered, now {again.model}")
    if before.options.get("rng_seed") is None and before.options.get("temperature") != 0:
        found.append("the request has no seed, and chance decides above temperature 0")
    if found:
        return found
    old, new = before.made_by, again.made_by
    shared = [name for name in MAKERS if name in old and name in new]
    found = [f"{MAKERS[name]}: {old[name]} answered, now {new[name]}" for name in shared if old[name] != new[name]]
    unknown = [text for name, text in MAKERS.items() if name not in shared]
    return found or [", or ".join([*unknown, "other options of loading, as of the cache's types or of a GPU"])]
