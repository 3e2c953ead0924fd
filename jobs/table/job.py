"""A job as a value: what it is, how far it is, how it ended.

    queued ──claim──> running ──finish──> succeeded | failed | cancelled
       ^                 │
       └──── requeue ────┘   its attempt failed and may be repeated, or its process was killed
       ^
       └──── retry, from failed and cancelled

A queued job can also be cancelled at once. No other transitions exist; each is one UPDATE that names the state, the
attempt and the owner that it starts from, so of two who try, one succeeds. ``attempt`` grows with every requeue and
retry: the owner of an earlier one can no longer write.

A batch in a store of many machines is a parent: workers claim its shards, which are jobs of their own, and the parent
runs from the first claim to the end of the last shard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from leap_core.errors import LeapError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.dataclass import dataclass

DOWNLOAD, GENERATE, TRANSCRIBE, BATCH = "download", "generate", "transcribe", "batch"
FUNCTION, COMMAND = "function", "command"
SHARD = "shard"
"""A stretch of the lines of a batch, which one worker answers."""
WEBHOOK = "webhook"
"""A message about another job, which is sent until its receiver has taken it."""
SCHEDULE = "schedule"
"""A job that is never run: it queues others, see ``schedules``."""
FOLDER = "folder"
"""Another one: it queues a job for each new file."""
STANDING = (SCHEDULE, FOLDER)
"""Kinds of jobs that have no end of their own."""
KINDS = (DOWNLOAD, GENERATE, TRANSCRIBE, BATCH, FUNCTION, COMMAND, WEBHOOK, SCHEDULE, FOLDER)
LATER = 253_402_300_800.0
"""The year 10000: ``run_after`` of a job that comes after others, until they have ended."""
VERSION = 3
"""Of the parameters of jobs that this leap submits, and the newest that it reads: a worker leaves alone what a newer
leap has submitted."""


SHOWN = (
    *("label", "percent", "attempt", "failures", "retries", "priority", "created", "started", "finished"),
    *("cancel_requested", "progress", "error", "result"),
)
"""What programs see of a job beside its id, kind and state."""


class State(str, Enum):
    """How far a job is."""

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
class NewJob:
    """What is needed to queue a job. ``parameters``: what it is asked for, see ``requests``. ``run_after``: not before
    this moment, in seconds since 1970. ``model``: the SHA-256 of the model file that a worker must have, ``machine``:
    the machine that must run it; None means any. ``origin``: where a worker that lacks the model may fetch it (see
    ``ModelDigests.origins``). ``after``: ids of jobs that must have ended well before, ``after_any``: in any way.
    ``followers``: jobs about this one, queued with it, that begin when it has ended."""

    kind: str
    parameters: JsonObject
    priority: int = 0
    retries: int = 2
    run_after: float = 0.0
    model: str | None = None
    machine: str | None = None
    origin: str | None = None
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    followers: tuple[NewJob, ...] = ()

    def to_json(self) -> JsonObject:
        """The job as a schedule keeps it, which says itself when it begins."""
        names = ("kind", "priority", "retries", "model", "machine", "origin", "parameters")
        followers = [each.to_json() for each in self.followers]
        return {**{name: getattr(self, name) for name in names}, "followers": followers}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> NewJob:
        """Read what ``to_json`` writes."""
        return NewJob(**{**value, "followers": tuple(map(NewJob.from_json, value.get("followers", ())))})


@dataclass(frozen=True)
class Job:
    """One row of the table, with the fields of its NewJob. Times are in seconds since 1970, by the store's clock.

    ``failures``: attempts that failed by themselves, of which ``retries`` are tried again. ``interruptions``: attempts
    that were ended from outside, such as by SIGKILL. ``deaths``: attempts in a row whose process was killed, or hung,
    before it put anything out. ``owner``: the run of a worker that has it, ``worker``: that worker's lasting name,
    ``lease_until``: until when it holds without a sign of life. ``progress``, ``result`` and ``error`` depend on the
    kind; an error has ``type`` (the class in leap_core.errors), ``message`` and perhaps ``hint``. ``parent``: the batch
    of which this is a shard, ``max_workers``: how many shards of it may run at once.
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
    worker: str | None = None
    lease_until: float | None = None
    model: str | None = None
    machine: str | None = None
    parent: str | None = None
    max_workers: int | None = None
    output: str | None = None
    version: int = 1
    deaths: int = 0
    origin: str | None = None

    @staticmethod
    def of_row(row: Mapping[str, Any]) -> Job:
        """Read a row of the table. Columns that a newer leap has added are passed over."""
        values = {field.name: row[field.name] for field in fields(Job) if field.name in row}
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
    def shown_state(self) -> State:
        """The state for people and programs: a folder that is watched runs, though no worker has claimed its row."""
        return State.RUNNING if self.kind == FOLDER and self.state is State.QUEUED else self.state

    @property
    def comes_after(self) -> tuple[str, ...]:
        """Jobs that it waits for, as long as it does."""
        if self.state is not State.QUEUED or self.run_after < LATER or self.kind == SCHEDULE:
            return ()
        after = self.parameters["after"]
        return (*after["well"], *after["any"])

    @property
    def percent(self) -> float | None:
        """How much of the work is done, as far as that is known."""
        progress = self.progress or {}
        done, total = progress.get("done"), progress.get("total")
        if done is None or not total:
            return None
        return round(100.0 * float(done) / float(total), 1)

    def to_json(self) -> JsonObject:
        """The job for people and programs; its parameters come with ``label`` only where they are long."""
        shown = {"id": self.id, "kind": self.kind, "state": self.shown_state.value}
        return {**shown, **{name: getattr(self, name) for name in SHOWN}}


@dataclass(frozen=True)
class Claim:
    """The right to write about one attempt of a job."""

    id: str
    attempt: int
    owner: str

    @property
    def values(self) -> JsonObject:
        """Names for the statements of the table."""
        return {"id": self.id, "attempt": self.attempt, "owner": self.owner}


@dataclass(frozen=True)
class Ending:
    """How an attempt ended. QUEUED: it failed, and another one is due in ``delay`` seconds."""

    state: State
    result: JsonObject | None = None
    error: JsonObject | None = None
    delay: float = 0.0


def error_of(error: LeapError) -> JsonObject:
    """An error as the table keeps it."""
    value: JsonObject = {"type": type(error).__name__, "message": error.message}
    return {**value, "hint": error.hint} if error.hint else value


MALFORMED = (AttributeError, LookupError, TypeError, ValueError)
"""What reading a row raises whose parameters are not those of its kind."""


class ClaimLostError(Exception):
    """The attempt is no longer the job's: it was taken over, ended or removed. Nothing was written."""


@dataclass(frozen=True)
class WorkerIdentity:
    """Who claims jobs. ``id``: the same after a restart; ``owner``: of this run alone; ``machine``: its host name.
    ``models``: SHA-256 of the models at hand, None where any job may be taken. ``lease_seconds``: how long a claim
    holds without a sign of life."""

    id: str
    owner: str
    machine: str
    models: frozenset[str] | None = None
    lease_seconds: float = 60.0


@dataclass(frozen=True)
class JobEvent:
    """A piece of a job's output: ``value`` is the JSON of what happened, ``attempt`` says in which try."""

    attempt: int
    number: int
    value: Mapping[str, Any]
