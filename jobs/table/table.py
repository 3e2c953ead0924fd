"""What is true about every job. The queue may lose a message or deliver it twice: this table decides.

Knows nothing of huey, of models, or of what the kinds of jobs do. Transitions are those that ``job`` lists.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leap_core.errors import LeapJobError, LeapJobNotFoundError
from leap_core.storage.atomic_files import text_of

from .job import FINAL, Event, Job, JsonObject, State
from .schema import connect, wrap_sqlite_errors

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Of ids: no letter that looks like a digit."""
ID_CHARACTERS = 8
OWN = "id=:id AND state='running' AND owner=:owner AND attempt=:attempt"


class Fenced(Exception):
    """The attempt is no longer the job's: it was taken over, ended or removed. Nothing was written."""


@dataclass(frozen=True)
class NewJob:
    """What is needed to queue a job."""

    kind: str
    parameters: JsonObject
    priority: int = 0
    retries: int = 2
    run_after: float = 0.0


@dataclass(frozen=True)
class Claim:
    """The right to write about one attempt of a job."""

    id: str
    attempt: int
    owner: str

    @property
    def values(self) -> JsonObject:
        return {"id": self.id, "attempt": self.attempt, "owner": self.owner}


@dataclass(frozen=True)
class Ending:
    """How an attempt ended."""

    state: State
    result: JsonObject | None = None
    error: JsonObject | None = None


@dataclass
class Table:
    """The table in the database at ``path``. Safe to use from several threads and processes."""

    path: Path
    durable: bool = True
    _guard: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._connection = connect(self.path, durable=self.durable)

    def close(self) -> None:
        with self._guard:
            self._connection.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- asking

    def get(self, id: str) -> Job | None:
        """The job with exactly this id."""
        rows = self._rows("SELECT * FROM jobs WHERE id=?", (id,))
        return Job.of_row(rows[0]) if rows else None

    def find(self, prefix: str) -> Job:
        """The job whose id begins so. Raises LeapJobError when there is none, or more than one."""
        known = set(prefix) <= set(ALPHABET) and prefix != ""
        rows = self._rows("SELECT * FROM jobs WHERE id GLOB ? LIMIT 3", (prefix + "*",)) if known else []
        if len(rows) == 1:
            return Job.of_row(rows[0])
        if not rows:
            raise LeapJobNotFoundError(f"there is no job {prefix!r}", hint="leap jobs list shows the jobs")
        matches = ", ".join(row["id"] for row in rows[:3])
        raise LeapJobNotFoundError(f"several jobs begin with {prefix!r}: {matches}", hint="give more of the id")

    def jobs(
        self, *, states: Collection[State] = (), kinds: Collection[str] = (), limit: int | None = None
    ) -> list[Job]:
        """Jobs, newest first; all states and kinds unless some are given."""
        where, values = _among(states=[State(state).value for state in states], kinds=list(kinds))
        most = -1 if limit is None else limit
        rows = self._rows(f"SELECT * FROM jobs {where} ORDER BY created DESC, rowid DESC LIMIT ?", (*values, most))
        return [Job.of_row(row) for row in rows]

    def events(self, id: str, attempt: int, after: int = -1) -> Sequence[Event]:
        """The output of one attempt, beyond the event with the number ``after``."""
        rows = self._rows(
            "SELECT attempt, number, value FROM events WHERE job=? AND attempt=? AND number>? ORDER BY number",
            (id, attempt, after),
        )
        return [Event(row["attempt"], row["number"], json.loads(row["value"])) for row in rows]

    def last_attempt_with_output(self, id: str) -> int | None:
        """The newest attempt that wrote anything."""
        newest: int | None = self._rows("SELECT MAX(attempt) AS attempt FROM events WHERE job=?", (id,))[0]["attempt"]
        return newest

    def counts(self) -> dict[tuple[str, State], int]:
        """How many jobs of each kind are in each state."""
        rows = self._rows("SELECT kind, state, COUNT(*) AS count FROM jobs GROUP BY kind, state")
        return {(row["kind"], State(row["state"])): row["count"] for row in rows}

    def due(self, now: float, patience: float) -> Sequence[tuple[str, int, str, int]]:
        """(id, attempt, kind, priority) of queued jobs whose time has come.

        ``patience``: a job that is to wait longer than this many seconds waits because the clock was set back.
        """
        rows = self._rows(
            "SELECT id, attempt, kind, priority FROM jobs WHERE state='queued' AND (run_after<=? OR "
            "(run_after>? AND failures+interruptions>0)) ORDER BY priority DESC, created",
            (now, now + patience),
        )
        return [tuple(row) for row in rows]

    def wanted_to_stop(self, owner: str) -> set[tuple[str, int]]:
        """(id, attempt) of this owner's running jobs that are to be cancelled."""
        rows = self._rows(
            "SELECT id, attempt FROM jobs WHERE state='running' AND cancel_requested=1 AND owner=?", (owner,)
        )
        return {(row["id"], row["attempt"]) for row in rows}

    def running_of(self, owner: str) -> set[tuple[str, int]]:
        """(id, attempt) of what this owner runs."""
        rows = self._rows("SELECT id, attempt FROM jobs WHERE state='running' AND owner=?", (owner,))
        return {(row["id"], row["attempt"]) for row in rows}

    def unfinished(self) -> int:
        """Jobs that are queued or running."""
        return int(self._rows("SELECT COUNT(*) AS count FROM jobs WHERE state IN ('queued', 'running')")[0]["count"])

    def running(self) -> int:
        """Jobs that a worker has begun and not ended, whether it still lives or not."""
        return int(self._rows("SELECT COUNT(*) AS count FROM jobs WHERE state='running'")[0]["count"])

    # -- changing

    def add(self, jobs: Iterable[NewJob]) -> Sequence[str]:
        """Queue jobs, all or none; their ids."""
        ids = []
        now = time.time()
        with self._transaction():
            for job in jobs:
                ids.append(self._insert(job, now))
        return ids

    def _insert(self, job: NewJob, now: float) -> str:
        while True:
            id = "".join(secrets.choice(ALPHABET) for _ in range(ID_CHARACTERS))
            row = (id, job.kind, _dumps(job.parameters), job.priority, job.retries, job.run_after, now)
            done = self._change(
                "INSERT INTO jobs (id, kind, state, parameters, priority, retries, run_after, created) "
                "VALUES (?, ?, 'queued', ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
                row,
            )
            if done:
                return id

    def claim(self, id: str, attempt: int, owner: str) -> Job | None:
        """Begin this attempt; None when it is not there to be begun (any more)."""
        now = time.time()
        done = self._change(
            "UPDATE jobs SET state='running', owner=?, heartbeat=?, started=COALESCE(started, ?), progress=NULL "
            "WHERE id=? AND attempt=? AND state='queued' AND cancel_requested=0",
            (owner, now, now, id, attempt),
        )
        return self.get(id) if done else None

    def write(
        self, claim: Claim, first: int, events: Sequence[Mapping[str, Any]], progress: Mapping[str, Any] | None = None
    ) -> bool:
        """One transaction: append output (numbered from ``first``), beat the heart, set the progress, and look whether
        the job is to be cancelled, which is what it tells. Raises Fenced."""
        with self._transaction():
            values = {**claim.values, "now": time.time(), "progress": None if progress is None else _dumps(progress)}
            done = self._change(
                f"UPDATE jobs SET heartbeat=:now, progress=COALESCE(:progress, progress) WHERE {OWN}", values
            )
            if not done:
                raise Fenced
            rows = [(claim.id, claim.attempt, first + n, _dumps(event)) for n, event in enumerate(events)]
            self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows).close()
            row = self._rows("SELECT cancel_requested FROM jobs WHERE id=?", (claim.id,))[0]
            return bool(row["cancel_requested"])

    def finish(self, claim: Claim, ending: Ending) -> None:
        """The attempt, and with it the job, has ended. Raises Fenced."""
        values = {
            **claim.values,
            "state": ending.state.value,
            "now": time.time(),
            "result": None if ending.result is None else _dumps(ending.result),
            "error": None if ending.error is None else _dumps(ending.error),
        }
        done = self._change(
            "UPDATE jobs SET state=:state, finished=:now, owner=NULL, heartbeat=NULL, result=:result, error=:error "
            f"WHERE {OWN}",
            values,
        )
        if not done:
            raise Fenced

    def requeue(
        self, claim: Claim, *, run_after: float, error: Mapping[str, Any] | None, failed: bool, progressed: bool = False
    ) -> None:
        """Another attempt is due, unless the job is to be cancelled: then it is. ``failed``: by itself, and not because
        it was ended from outside. ``progressed``: it got further than the ones before, so earlier failures count no
        more. Raises Fenced."""
        values = {
            **claim.values,
            "after": run_after,
            "now": time.time(),
            "error": None if error is None else _dumps(error),
            "failed": int(failed),
            "keep": int(not progressed),
        }
        done = self._change(
            "UPDATE jobs SET state=CASE WHEN cancel_requested THEN 'cancelled' ELSE 'queued' END, "
            "finished=CASE WHEN cancel_requested THEN :now END, "
            "attempt=attempt+1-cancel_requested, owner=NULL, heartbeat=NULL, run_after=:after, error=:error, "
            "failures=failures*:keep+:failed, interruptions=interruptions*:keep+1-:failed "
            f"WHERE {OWN}",
            values,
        )
        if not done:
            raise Fenced

    def recover(self, most_interruptions: int) -> Sequence[str]:
        """Whoever ran jobs is dead: queue what was running again. Called by a worker that is alone by lock."""
        with self._transaction():
            lost = [row["id"] for row in self._rows("SELECT id FROM jobs WHERE state='running'")]
            now = time.time()
            self._change(
                "UPDATE jobs SET state='cancelled', finished=?, owner=NULL, heartbeat=NULL "
                "WHERE state='running' AND cancel_requested=1",
                (now,),
            )
            given_up = _dumps({"type": "LeapJobError", "message": "whoever ran this was killed too often"})
            self._change(
                "UPDATE jobs SET state='failed', finished=?, owner=NULL, heartbeat=NULL, error=? "
                "WHERE state='running' AND interruptions>=?",
                (now, given_up, most_interruptions),
            )
            self._change(
                "UPDATE jobs SET state='queued', attempt=attempt+1, interruptions=interruptions+1, owner=NULL, "
                "heartbeat=NULL WHERE state='running'"
            )
        return lost

    def request_cancel(self, id: str) -> State:
        """Cancel a queued job, or ask whoever runs it to stop; the state it then has."""
        with self._transaction():
            self._change(
                "UPDATE jobs SET state='cancelled', finished=?, cancel_requested=1 WHERE id=? AND state='queued'",
                (time.time(), id),
            )
            self._change("UPDATE jobs SET cancel_requested=1 WHERE id=? AND state='running'", (id,))
            return self._existing(id).state

    def retry(self, id: str) -> Job:
        """Queue a failed or cancelled job again. Raises LeapJobError when it is neither."""
        with self._transaction():
            done = self._change(
                "UPDATE jobs SET state='queued', attempt=attempt+1, failures=0, interruptions=0, run_after=0, "
                "cancel_requested=0, error=NULL, result=NULL, finished=NULL, started=NULL "
                "WHERE id=? AND state IN ('failed', 'cancelled')",
                (id,),
            )
            job = self._existing(id)
        if not done:
            raise LeapJobError(f"the job {id} is {job.state.value}, and only failed and cancelled jobs are retried")
        return job

    def remove(self, id: str) -> None:
        """Forget a job that has ended. Raises LeapJobError when it has not."""
        with self._transaction():
            done = self._change("DELETE FROM jobs WHERE id=? AND state IN ('succeeded', 'failed', 'cancelled')", (id,))
            if not done:
                state = self._existing(id).state.value
                raise LeapJobError(f"the job {id} is {state}", hint=f"leap jobs cancel {id} ends it")

    def prune(self, before: float, states: Collection[State] = FINAL) -> Sequence[str]:
        """Forget the jobs that ended before this time, in one of these final states; their ids."""
        names = [state.value for state in states if state.is_final]
        marks = ", ".join("?" * len(names))
        with self._transaction():
            where = f"state IN ({marks}) AND finished<?"
            ids = [row["id"] for row in self._rows(f"SELECT id FROM jobs WHERE {where}", (*names, before))]
            self._change(f"DELETE FROM jobs WHERE {where}", (*names, before))
        return ids

    def _existing(self, id: str) -> Job:
        job = self.get(id)
        if job is None:
            raise LeapJobNotFoundError(f"there is no job {id!r}", hint="leap jobs list shows the jobs")
        return job

    def _rows(self, sql: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._guard, wrap_sqlite_errors(self.path):
            cursor = self._connection.execute(sql, values)
            try:
                return cursor.fetchall()
            finally:
                cursor.close()

    def _change(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> int:
        """The number of rows that were changed."""
        with self._guard, wrap_sqlite_errors(self.path):
            cursor = self._connection.execute(sql, values)
            try:
                return cursor.rowcount
            finally:
                cursor.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._guard, wrap_sqlite_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE").close()
            try:
                yield
                self._connection.execute("COMMIT").close()
            except BaseException:
                with suppress(sqlite3.OperationalError):  # a full disk has rolled it back already
                    self._connection.execute("ROLLBACK").close()
                raise


def _dumps(value: Mapping[str, Any]) -> str:
    return text_of(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _among(*, states: Sequence[str], kinds: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    parts = []
    for column, values in (("state", states), ("kind", kinds)):
        if values:
            parts.append(f"{column} IN ({', '.join('?' * len(values))})")
    return ("WHERE " + " AND ".join(parts) if parts else ""), (*states, *kinds)
