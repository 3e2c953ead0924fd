"""A job as a value: what it is, how far it is, how it ended.

    queued ──claim──> running ──finish──> succeeded | failed | cancelled
       ^                 │
       └──── requeue ────┘   its attempt failed and may be repeated, or whoever ran it was killed
       ^
       └──── retry, from failed and cancelled

A queued job can also be cancelled at once. No other transitions exist; each is one UPDATE that names the state, the
attempt and the owner that it starts from, so of two who try, one succeeds. ``attempt`` grows with every requeue and
retry: whoever still works on an earlier one can no longer write.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

JsonObject = dict[str, Any]

DOWNLOAD, GENERATE, BATCH = "download", "generate", "batch"
KINDS = (DOWNLOAD, GENERATE, BATCH)


class State(str, Enum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL = (State.SUCCEEDED, State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class Job:
    """One row of the table. Times are in seconds since 1970, by the wall clock.

    ``failures``: attempts that failed by themselves, of which ``retries`` are borne. ``interruptions``: attempts that
    were ended from outside, such as by SIGKILL. ``run_after``: not started before. ``owner``: who runs it.
    ``progress``, ``result`` and ``error`` depend on the kind; an error has ``type`` (the class in leap_core.errors),
    ``message`` and perhaps ``hint``.
    """

    id: str
    kind: str
    state: State
    parameters: JsonObject
    attempt: int
    failures: int
    interruptions: int
    retries: int
    priority: int
    run_after: float
    owner: str | None
    heartbeat: float | None
    cancel_requested: bool
    progress: JsonObject | None
    error: JsonObject | None
    result: JsonObject | None
    created: float
    started: float | None
    finished: float | None

    @staticmethod
    def of_row(row: sqlite3.Row) -> Job:
        """Read a row of the table."""
        values = dict(zip(row.keys(), row, strict=True))
        values["state"] = State(values["state"])
        values["cancel_requested"] = bool(values["cancel_requested"])
        for name in ("parameters", "progress", "error", "result"):
            values[name] = None if values[name] is None else json.loads(values[name])
        return Job(**values)

    @property
    def label(self) -> str:
        """What the job is about, in a few words."""
        return str(self.parameters.get("label", self.kind))

    @property
    def percent(self) -> float | None:
        """How much of the work is done, as far as that can be told."""
        progress = self.progress or {}
        done, total = progress.get("done"), progress.get("total")
        if done is None or not total:
            return None
        return round(100.0 * float(done) / float(total), 1)

    def to_json(self) -> JsonObject:
        """The job for people and programs; its parameters come with ``label`` only where they are long."""
        value: JsonObject = {
            "id": self.id,
            "kind": self.kind,
            "state": self.state.value,
            "label": self.label,
            "percent": self.percent,
            "attempt": self.attempt,
            "failures": self.failures,
            "retries": self.retries,
            "priority": self.priority,
            "created": self.created,
            "started": self.started,
            "finished": self.finished,
            "cancel_requested": self.cancel_requested,
            "progress": self.progress,
            "error": self.error,
            "result": self.result,
        }
        return value


@dataclass(frozen=True)
class Event:
    """A piece of a job's output: ``value`` is the JSON of what happened, ``attempt`` says in which try."""

    attempt: int
    number: int
    value: Mapping[str, Any]
