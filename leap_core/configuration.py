"""``config.toml``: the user's settings, read in one place. A file that is not there is an empty one.

default_model = "LFM2.5-1.2B-Instruct"      # what is loaded when a command names no model
keep_alive = "10m"                           # how long ``leap load`` keeps a model without use
log = true                                   # keep prompts and answers for ``leap log``
queue_url = "sqlite:///queue.db"             # in the data directory; or redis://…, postgresql://…
jobs_url = "postgresql://…"                  # table and queue of jobs on a server that several machines share
[jobs]
download = 2                                 # at once, and so on for generate and batch
idle_minutes = 5                             # how long a worker without work stays
lease_seconds = 60                           # on a server: how long a claim holds without a sign of life
fetch_models = false                         # on a server: whether a worker fetches models that jobs need
keep_output_days = 30                        # how long the output of jobs that ended is kept; 0: as long as the job
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import LeapOptionsError, LeapSerializationError

KEYS = ("default_model", "keep_alive", "log", "aliases", "queue_url", "jobs_url", "jobs", "tools", "options")
"""What may stand at the top of the file."""
JOBS_AT_ONCE = {"download": 2, "generate": 4, "batch": 1}
"""Defaults of ``jobs.download`` and so on, by kind of job."""
MOST_JOBS_AT_ONCE = 64
IDLE_MINUTES = 5.0
LEASE_SECONDS = 60.0
KEEP_OUTPUT_DAYS = 30.0
SHORTEST_LEASE_SECONDS, LONGEST_LEASE_SECONDS = 2.0, 3600.0
SQLITE, REDIS, POSTGRESQL = "sqlite:///", ("redis://", "rediss://", "unix://"), ("postgresql://", "postgres://")
QUEUE_SCHEMES = (SQLITE, *REDIS, *POSTGRESQL)
"""What a ``queue_url`` may begin with."""


@dataclass(frozen=True)
class JobSettings:
    """``queue_url``: None means the SQLite file. ``at_once``: jobs of each kind that run at once, 1 to 64.
    ``idle_minutes``: how long a worker without work stays, 0 or more; ``idle_minutes_is_set``: in the file.
    ``jobs_url``: the server of table and queue, None means SQLite files. ``lease_seconds``: how long a claim on a
    server holds without a sign of life, 2 to 3600. ``fetch_models``: a worker of a server fetches models that jobs
    need and it lacks. ``keep_output_days``: how long the output of jobs that ended is kept, 0 means as long as they."""

    queue_url: str | None = None
    at_once: Mapping[str, int] = field(default_factory=lambda: dict(JOBS_AT_ONCE))
    idle_minutes: float = IDLE_MINUTES
    idle_minutes_is_set: bool = False
    jobs_url: str | None = None
    lease_seconds: float = LEASE_SECONDS
    fetch_models: bool = False
    keep_output_days: float = KEEP_OUTPUT_DAYS


@dataclass(frozen=True)
class Configuration:
    """``default_model``: the reference that is loaded when a command names none, or None. ``keep_alive``: how long
    ``leap load`` keeps a model without use, such as "10m", or None."""

    default_model: str | None = None
    keep_alive: str | None = None


def read_configuration(path: Path) -> Configuration:
    """The settings about models. Raises LeapSerializationError that names the file and the setting."""
    table = read_table(path)
    model, keep_alive = table.get("default_model"), table.get("keep_alive")
    if model is not None and not (isinstance(model, str) and model):
        raise _error(path, "default_model must be a non-empty string")
    if keep_alive is not None and not isinstance(keep_alive, str):
        raise _error(path, 'keep_alive must be a text, such as "10m"')
    return Configuration(model, keep_alive)


def read_job_settings(path: Path) -> JobSettings:
    """The settings about jobs. Raises LeapSerializationError that names the file and the setting."""
    table = read_table(path)
    jobs, url = table.get("jobs", {}), table.get("queue_url")
    for name in ("queue_url", "jobs_url"):
        if not isinstance(table.get(name, ""), str):
            raise _error(path, f"{name} must be a text")
    if not isinstance(jobs, dict):
        raise _error(path, "jobs must be a table")
    at_once = {kind: jobs.get(kind, count) for kind, count in JOBS_AT_ONCE.items()}
    for kind, count in at_once.items():
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_JOBS_AT_ONCE:
            raise _error(path, f"jobs.{kind} must be 1 to {MOST_JOBS_AT_ONCE}")
    minutes = jobs.get("idle_minutes", IDLE_MINUTES)
    if not isinstance(minutes, (int, float)) or isinstance(minutes, bool) or not minutes >= 0:
        raise _error(path, "jobs.idle_minutes must be 0 or more")
    lease = jobs.get("lease_seconds", LEASE_SECONDS)
    if not isinstance(lease, (int, float)) or not SHORTEST_LEASE_SECONDS <= lease <= LONGEST_LEASE_SECONDS:
        raise _error(path, f"jobs.lease_seconds must be {SHORTEST_LEASE_SECONDS:g} to {LONGEST_LEASE_SECONDS:g}")
    fetch, days = jobs.get("fetch_models", False), jobs.get("keep_output_days", KEEP_OUTPUT_DAYS)
    if not isinstance(fetch, bool):
        raise _error(path, "jobs.fetch_models must be true or false")
    if not isinstance(days, (int, float)) or isinstance(days, bool) or not days >= 0:
        raise _error(path, "jobs.keep_output_days must be 0 or more")
    return JobSettings(
        queue_url=url,
        at_once=at_once,
        idle_minutes=float(minutes),
        idle_minutes_is_set="idle_minutes" in jobs,
        jobs_url=table.get("jobs_url"),
        lease_seconds=float(lease),
        fetch_models=fetch,
        keep_output_days=float(days),
    )


def read_table(path: Path) -> dict[str, Any]:
    """The whole file, as tables and values. Raises LeapSerializationError that names it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror or error}") from None
    return parse_toml(data, str(path))


def table_or_error(path: Path) -> dict[str, Any] | LeapSerializationError:
    """``read_table``, or why the file cannot be read."""
    try:
        return read_table(path)
    except LeapSerializationError as error:
        return error


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Name the file in errors about options that stand in it."""
    try:
        yield
    except LeapOptionsError as error:
        raise LeapOptionsError(f"{path}: {error.option}", error.reason) from None


def parse_toml(data: bytes, path: str, hint: str = "leap config edit opens it") -> dict[str, Any]:
    """The tables and values of a file's content. Raises LeapSerializationError naming ``path``, with this hint."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return dict(toml.loads(data.decode("utf-8")))
    except ValueError as error:  # also bytes that are not UTF-8
        raise LeapSerializationError(str(error), path=path, hint=hint) from None


def _error(path: Path, problem: str) -> LeapSerializationError:
    return LeapSerializationError(problem, path=str(path))
