"""A quick look at the kept sessions, for completion: nothing is created, waited for or migrated."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

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
