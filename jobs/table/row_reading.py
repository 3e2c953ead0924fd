"""Questions to the table of jobs, and forgetting those that ended long ago."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from leap_core.errors import LeapJobError, LeapJobNotFoundError
from leap_core.schemas.json_values import JsonObject

from .batch_rows import progress_of_batch
from .claims import (
    LONGEST_BACK_OFF_SECONDS,
    NOW,
    SHARED_KINDS,
    first_with_needs,
    queued_needs,
    seconds_to_the_next,
    waiting_kinds,
)
from .job import BATCH, FINAL, FOLDER, KINDS, SHARD, VERSION, WEBHOOK, Job, JobEvent, State, WorkerIdentity
from .store_protocol import Database, Row

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Ids are made of these: no letter looks like a digit."""
ID_CHARACTERS = 8
DUE = f"(run_after<=leap_now() OR (run_after>leap_now()+:patience AND failures+interruptions>0 AND kind<>'{WEBHOOK}'))"
"""A failed job that is to wait longer than the longest back-off waits because the clock was set back; a message that
was not taken may wait for a day."""
WITH_MODEL = "(model IS NULL OR :any_model=1 OR :models LIKE '%' || model || '%')"
CLAIMABLE_BUT_MODEL = (
    f"state='queued' AND cancel_requested=0 AND version<=:version AND {DUE} AND (machine IS NULL OR machine=:machine) "
    "AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id=:worker AND w.draining=1)"
)
CLAIMABLE = f"{CLAIMABLE_BUT_MODEL} AND {WITH_MODEL}"


class TableReader:
    """Reads the table in ``database``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def get(self, id: str) -> Job | None:
        """The job with exactly this id."""
        rows = self.database.rows("SELECT * FROM jobs WHERE id=:id", {"id": id})
        if not rows:
            return None
        job = Job.of_row(rows[0])
        if job.kind == SHARD:
            batch = self.database.rows("SELECT parameters FROM jobs WHERE id=:id", {"id": job.parent})
            job = with_common(job, batch[0]["parameters"] if batch else None)
        return job

    def find(self, prefix: str) -> Job:
        """The job whose id begins so. Raises LeapJobError when there is none, or more than one."""
        rows: Sequence[Row] = []
        if prefix and set(prefix) <= set(ALPHABET):
            values = {"first": prefix, "last": prefix + "~"}
            rows = self.database.rows(
                "SELECT * FROM jobs WHERE id>=:first AND id<:last AND parent IS NULL ORDER BY id LIMIT 3", values
            )
        if len(rows) == 1 or (rows and rows[0]["id"] == prefix):
            return Job.of_row(rows[0])
        if not rows:
            raise LeapJobNotFoundError(f"there is no job {prefix!r}", hint="leap jobs list shows the jobs")
        matches = ", ".join(row["id"] for row in rows)
        raise LeapJobNotFoundError(f"several jobs begin with {prefix!r}: {matches}", hint="give more of the id")

    def jobs(
        self,
        *,
        states: Collection[State] = (),
        kinds: Collection[str] = (),
        limit: int | None = None,
        **marks: str | None,
    ) -> list[Job]:
        """Jobs, newest first; all states and kinds unless some are given. ``marks``: those alone whose parameters have
        these values: ``schedule``, of which they are runs; ``client``, which submitted them."""
        where, values = among("state", [State(state).value for state in states])
        if (State.QUEUED in states) != (State.RUNNING in states) and not self.database.is_shared:
            watched = f"kind='{FOLDER}' AND state='queued'"  # which runs, though no worker has claimed it
            where = f"{where} AND NOT ({watched})" if State.QUEUED in states else f"({where} OR ({watched}))"
        more, others = among("kind", list(kinds))
        order = f"created DESC, {self.database.sequence} DESC"
        end = "" if limit is None else f"LIMIT {int(limit)}"
        marked = {name: f'%"{name}":"{value}"%' for name, value in marks.items() if value is not None}
        alone = "".join(f" AND parameters LIKE :{name}" for name in marked)
        rows = self.database.rows(
            f"SELECT * FROM jobs WHERE parent IS NULL AND {where} AND {more}{alone} ORDER BY {order} {end}",
            {**values, **others, **marked},
        )
        return [Job.of_row(row) for row in rows]

    def with_progress(self, job: Job) -> Job:
        """The job; a batch that runs in shards with how far all of them are."""
        if job.kind != BATCH or job.state.is_final or not self.database.is_shared:
            return job
        return replace(job, progress=progress_of_batch(self.database, job.id))

    def shards(self, parent: str) -> list[Job]:
        """The shards of a batch, in the order of their lines."""
        order = self.database.sequence
        rows = self.database.rows(f"SELECT * FROM jobs WHERE parent=:parent ORDER BY {order}", {"parent": parent})
        return [Job.of_row(row) for row in rows]

    def events(self, id: str, attempt: int, after: int = -1) -> Sequence[JobEvent]:
        """The output of one attempt, beyond the event with the number ``after``, which ends a row."""
        rows = self.database.rows(
            "SELECT attempt, number, value FROM events WHERE job=:id AND attempt=:attempt AND number>:after "
            "ORDER BY number",
            {"id": id, "attempt": attempt, "after": after},
        )
        return [event for row in rows for event in _events_of(row)]

    def last_attempt_with_output(self, id: str) -> int | None:
        """The newest attempt that wrote anything."""
        rows = self.database.rows("SELECT MAX(attempt) AS attempt FROM events WHERE job=:id", {"id": id})
        newest: int | None = rows[0]["attempt"]
        return newest

    def counts(self) -> dict[tuple[str, State], int]:
        """How many jobs of each kind are in each state."""
        rows = self.database.rows(
            "SELECT kind, state, COUNT(*) AS count FROM jobs WHERE parent IS NULL GROUP BY kind, state"
        )
        return {(row["kind"], State(row["state"])): row["count"] for row in rows}

    def waiting(self, worker: WorkerIdentity) -> tuple[frozenset[str], float | None]:
        """The kinds of which this worker could begin a job now, and in how many seconds the next one is due."""
        if self.database.is_shared:
            return waiting_kinds(self.database, worker), seconds_to_the_next(self.database)
        rows = self.database.rows(
            f"SELECT DISTINCT kind, CAST(NULL AS DOUBLE PRECISION) AS due FROM jobs WHERE {CLAIMABLE} UNION ALL "
            "SELECT NULL, MIN(run_after)-leap_now() FROM jobs WHERE state='queued' AND run_after>leap_now()",
            self._claim_values(worker),
        )
        kinds = frozenset(row["kind"] for row in rows if row["kind"] is not None)
        return kinds, next(row["due"] for row in rows if row["kind"] is None)

    def lacking(self, worker: WorkerIdentity) -> Sequence[tuple[str, str]]:
        """The models that this worker would need for jobs that wait: SHA-256, and where it may fetch it."""
        if self.database.is_shared:
            firsts = self._first_of_each_need()
            places, models = (None, worker.machine), worker.models
            lacking = [row for row in firsts if row["origin"] and row["machine"] in places and row["model"]]
            lacking = [row for row in lacking if models is not None and row["model"] not in models]
            origins = {row["model"]: row["origin"] for row in sorted(lacking, key=lambda row: -row["created"])}
            return list(reversed(origins.items()))
        rows = self.database.rows(
            f"SELECT model, MIN(origin) AS origin FROM jobs WHERE {CLAIMABLE_BUT_MODEL} AND NOT {WITH_MODEL} "
            "AND origin IS NOT NULL AND kind<>'batch' GROUP BY model ORDER BY MIN(created)",
            self._claim_values(worker),
        )
        return [(row["model"], row["origin"]) for row in rows]

    def models_waited_for(self) -> Sequence[Job]:
        """One queued job for each model that queued jobs need."""
        if self.database.is_shared:
            ids = [row["id"] for row in self._first_of_each_need() if row["model"]]
            return [job for id in ids if (job := self.get(id)) is not None]
        rows = self.database.rows(
            "SELECT MIN(id) AS id FROM jobs WHERE state='queued' AND model IS NOT NULL GROUP BY model, machine"
        )
        return [job for row in rows if (job := self.get(row["id"])) is not None]

    def _first_of_each_need(self) -> list[Row]:
        return [
            row
            for kind in SHARED_KINDS
            for needs in queued_needs(self.database, kind)
            if (row := first_with_needs(self.database, kind, needs)) is not None
        ]

    def wanted_to_stop(self, owner: str) -> set[tuple[str, int]]:
        """(id, attempt) of this owner's running jobs that are to be cancelled."""
        rows = self.database.rows(
            "SELECT id, attempt FROM jobs WHERE state='running' AND cancel_requested=1 AND owner=:owner",
            {"owner": owner},
        )
        return {(row["id"], row["attempt"]) for row in rows}

    def running_of(self, owner: str) -> set[tuple[str, int]]:
        """(id, attempt) of what this owner runs."""
        rows = self.database.rows(
            "SELECT id, attempt FROM jobs WHERE state='running' AND owner=:owner", {"owner": owner}
        )
        return {(row["id"], row["attempt"]) for row in rows}

    def unfinished_ids(self) -> frozenset[str]:
        """The ids of all jobs that are queued or running."""
        rows = self.database.rows("SELECT id FROM jobs WHERE state IN ('queued', 'running') AND parent IS NULL")
        return frozenset(row["id"] for row in rows)

    def unfinished(self) -> int:
        """Jobs of known kinds that are queued or running."""
        return self._count("state IN ('queued', 'running')")

    def running(self) -> int:
        """Jobs of known kinds that a worker has begun and not ended, whether it still lives or not."""
        return self._count("state='running'")

    def _count(self, where: str) -> int:
        condition, values = among("kind", list(KINDS))
        rows = self.database.rows(f"SELECT COUNT(*) AS count FROM jobs WHERE {where} AND {condition}", values)
        return int(rows[0]["count"])

    def _existing(self, id: str) -> Job:
        job = self.get(id)
        if job is None:
            raise LeapJobNotFoundError(f"there is no job {id!r}", hint="leap jobs list shows the jobs")
        return job

    def _claim_values(self, worker: WorkerIdentity) -> JsonObject:
        return {
            "version": VERSION,
            "patience": LONGEST_BACK_OFF_SECONDS,
            "machine": worker.machine,
            "worker": worker.id,
            "any_model": int(worker.models is None),
            "models": " ".join(worker.models or ()),
        }


def with_common(job: Job, parameters: str | None) -> Job:
    """The job with the parameters of its batch, which hold what its shards have in common."""
    return job if parameters is None else replace(job, parameters={**json.loads(parameters), **job.parameters})


def _events_of(row: Row) -> list[JobEvent]:
    """The events of a row, a list of them."""
    return [JobEvent(row["attempt"], row["number"] + n, each) for n, each in enumerate(json.loads(row["value"]))]


def among(column: str, values: Sequence[str]) -> tuple[str, JsonObject]:
    """A condition that the column has one of these values (any when there are none), and the values by name."""
    names = {f"{column}_{n}": value for n, value in enumerate(values)}
    condition = f"{column} IN ({', '.join(':' + name for name in names)})" if names else "1=1"
    return condition, dict(names)


KEPT_ATTEMPTS = 5
"""Attempts of a job whose output is kept."""
AT_ONCE = 500
"""Jobs on a server whose output is forgotten in one transaction."""


class Forgetting(TableReader):
    """The part of the table that removes rows."""

    def remove(self, id: str) -> None:
        """Forget a job that has ended. Raises LeapJobError when it has not."""
        if not self.database.change(
            "DELETE FROM jobs WHERE id=:id AND state IN ('succeeded', 'failed', 'cancelled')", {"id": id}
        ):
            state = self._existing(id).state.value
            raise LeapJobError(f"the job {id} is {state}", hint=f"leap jobs cancel {id} ends it")

    def prune(self, before: float, states: Collection[State] = FINAL) -> Sequence[str]:
        """Forget the jobs that ended before this time, in one of these final states; their ids."""
        condition, values = among("state", [state.value for state in states if state.is_final])
        where = f"{condition} AND finished<:before AND parent IS NULL"
        values["before"] = before

        def prune() -> list[str]:
            ids = [str(row["id"]) for row in self.database.rows(f"SELECT id FROM jobs WHERE {where}", values)]
            self.database.change(f"DELETE FROM jobs WHERE {where}", values)
            return ids

        ids = self.database.transaction(prune)
        self.database.compact()
        return ids

    def forget_output(self, seconds: float, attempts: int = KEPT_ATTEMPTS) -> int:
        """Forget the output of jobs that ended so long ago, and of attempts before the last so many; the number of
        rows. Jobs and their results stay."""
        values = {"seconds": seconds, "attempts": attempts}
        if not self.database.is_shared:
            return self.database.change(
                "DELETE FROM events WHERE job IN (SELECT id FROM jobs WHERE finished<leap_now()-:seconds) OR "
                "attempt<=(SELECT attempt FROM jobs WHERE id=events.job)-:attempts",
                values,
            )
        count = 0
        while ids := self._forgettable(seconds):
            count += self.database.transaction(partial(self._forget, ids))
        return count + self.database.change(
            "DELETE FROM events USING jobs WHERE jobs.id=events.job AND jobs.attempt>1 AND "
            "jobs.attempt>:attempts AND events.attempt<=jobs.attempt-:attempts",
            values,
        )

    def _forgettable(self, seconds: float) -> list[str]:
        rows = self.database.rows(
            f"SELECT id FROM jobs WHERE finished IS NOT NULL AND forgotten=0 AND finished<{NOW}-:seconds "
            f"ORDER BY finished LIMIT {AT_ONCE}",
            {"seconds": seconds},
        )
        return [str(row["id"]) for row in rows]

    def _forget(self, ids: Sequence[str]) -> int:
        count = self.database.change("DELETE FROM events WHERE job=ANY(:ids)", {"ids": ids})
        self.database.change("UPDATE jobs SET forgotten=1 WHERE id=ANY(:ids)", {"ids": ids})
        return count
