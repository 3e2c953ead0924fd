"""A quick look at the table of jobs, for completion and diagnosis: nothing is created, or waited for long."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

MOST = 50
PATIENCE_SECONDS = 0.2
SERVER_SECONDS = 0.8
"""How long a server may take to answer."""
LABEL = re.compile(r'"label": ?("(?:[^"\\]|\\.)*")')
LABEL_CHARACTERS = 1200
"""So much of the parameters is read, which begin with the label: pictures may be among the rest."""


class JobGlimpse(NamedTuple):
    """What distinguishes jobs."""

    id: str
    state: str
    kind: str
    label: str


def newest(place: Path | str, states: Sequence[str] = ()) -> list[JobGlimpse]:
    """The newest jobs in these states, in any when there are none, of the table in a file or at a server's URL. Empty
    where there is none that can be read at once."""
    if isinstance(place, str):
        return _newest_on_server(place, states)
    return _newest_in_file(place, states)


def _newest_on_server(url: str, states: Sequence[str]) -> list[JobGlimpse]:
    """The driver waits two seconds at least for a server that is away, so a thread asks, and is left alone then."""
    rows: list[tuple[str, str, str, str]] = []
    query = f"SELECT id, state, kind, substr(parameters, 1, {LABEL_CHARACTERS}) FROM leap.jobs WHERE parent IS NULL "
    query += "AND (%s::text[] IS NULL OR state=ANY(%s)) ORDER BY created DESC, sequence DESC "
    query += f"LIMIT {MOST}"

    def ask() -> None:
        with suppress(Exception):  # psycopg is not there, or the server is not, or has no table yet
            import psycopg

            from .postgres_link import addresses

            among, address = list(states) or None, addresses(url)[0]
            with psycopg.connect(address, connect_timeout=2, application_name="leap completion") as connection:
                rows.extend(connection.execute(query, (among, among)).fetchall())

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SERVER_SECONDS)
    return [] if thread.is_alive() else [_glimpse(*row) for row in rows]


def _newest_in_file(table: Path, states: Sequence[str]) -> list[JobGlimpse]:
    if not table.is_file():
        return []
    among = f"WHERE state IN ({','.join('?' * len(states))})" if states else ""
    query = f"SELECT id, state, kind, substr(parameters, 1, {LABEL_CHARACTERS}) FROM jobs {among} "
    query += f"ORDER BY created DESC, rowid DESC LIMIT {MOST}"
    try:
        with closing(sqlite3.connect(f"{table.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)) as connection:
            rows = connection.execute(query, states).fetchall()
    except sqlite3.Error:
        return []
    return [_glimpse(*row) for row in rows]


def _glimpse(id: str, state: str, kind: str, parameters: str) -> JobGlimpse:
    label = LABEL.search(parameters)
    return JobGlimpse(id, state, kind, str(json.loads(label[1])) if label else "")


def counts(table: Path) -> dict[str, int]:
    """How many jobs there are in each state. Empty where there is no table that can be read."""
    if not table.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{table.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)) as connection:
            return dict(connection.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state ORDER BY state"))
    except sqlite3.Error:
        return {}
