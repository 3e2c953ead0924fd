"""A quick look at the table of jobs, for completion and diagnosis: nothing is created, waited for or migrated."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

MOST = 50
PATIENCE_SECONDS = 0.2


class Glimpse(NamedTuple):
    """What tells jobs apart."""

    id: str
    state: str
    kind: str
    label: str


def newest(table: Path, states: Sequence[str] = ()) -> list[Glimpse]:
    """The newest jobs in these states, in any when there are none. Empty where there is no table that can be read."""
    if not table.is_file():
        return []
    among = f"WHERE state IN ({','.join('?' * len(states))})" if states else ""
    query = f"SELECT id, state, kind, parameters FROM jobs {among} ORDER BY created DESC, rowid DESC LIMIT {MOST}"
    try:
        with closing(sqlite3.connect(f"{table.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)) as connection:
            rows = connection.execute(query, states).fetchall()
    except sqlite3.Error:
        return []
    return [Glimpse(id, state, kind, _label(parameters)) for id, state, kind, parameters in rows]


def counts(table: Path) -> dict[str, int]:
    """How many jobs there are in each state. Empty where there is no table that can be read."""
    if not table.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{table.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)) as connection:
            return dict(connection.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state ORDER BY state"))
    except sqlite3.Error:
        return {}


def _label(parameters: str) -> str:
    try:
        value = json.loads(parameters)
    except ValueError:
        return ""
    return str(value.get("label", "")) if isinstance(value, dict) else ""
