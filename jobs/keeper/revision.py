"""Which of two leaps is newer, where a worker of one runs and a command of the other comes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from leap_core import __version__

from ..table import postgres_schema, schema
from ..table.job import VERSION

FIELD = "revision"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


REVISION = [*_numbers(__version__), len(schema.MIGRATIONS), len(postgres_schema.MIGRATIONS), VERSION]
"""The version, the shapes of the tables, and the newest parameters of jobs that are read."""


def revision_of(state: Mapping[str, Any]) -> list[int]:
    """The revision of the worker that wrote this state; an older leap wrote only its version."""
    value = state.get(FIELD)
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return value
    return _numbers(str(state.get("version", "")))


def is_of_older_leap(state: Mapping[str, Any]) -> bool:
    """Whether the worker that wrote this state is of an older leap than this one. An empty state is not known."""
    return bool(state.get("pid")) and revision_of(state) < REVISION
