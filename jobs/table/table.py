"""What is true about every job. The queue may lose a message or deliver it twice: this table decides.

Knows nothing of huey, of models, or of what the kinds of jobs do. Transitions are those that ``job`` lists; the
statements are the same for both stores (see ``database``).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leap_core.errors import LeapJobError
from leap_core.storage.atomic_files import text_of

from .batch_rows import ending_of_batch
from .contract import Values
from .database import open_database
from .job import FINAL, VERSION, Claim, Claimant, Ending, Fenced, Job, NewJob, State
from .reading import ALPHABET, CLAIMABLE, ID_CHARACTERS, TableReader, among

__all__ = ["Claim", "Claimant", "Ending", "Fenced", "NewJob", "Table"]

OWN = "id=:id AND state='running' AND owner=:owner AND attempt=:attempt"
KEPT_ATTEMPTS = 5
"""Attempts of a job whose output is kept."""
FREED = "owner=NULL, heartbeat=NULL, lease_until=NULL"


class Table(TableReader):
    """The table at ``place``: the path of a SQLite file, or the URL of a PostgreSQL server. Safe to use from several
    threads and processes."""

    def __init__(self, place: Path | str, *, durable: bool = True) -> None:
        super().__init__(open_database(place, durable=durable))

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, jobs: Iterable[NewJob]) -> Sequence[str]:
        """Queue jobs, all or none; their ids."""
        rows = [(new_id(), job) for job in jobs]

        def add() -> list[str]:
            ids = [self.insert(id, job) for id, job in rows]
            self.database.announce("queued")
            return ids

        return self.database.transaction(add)

    def insert(
        self,
        id: str,
        job: NewJob,
        *,
        parent: str | None = None,
        max_workers: int | None = None,
        output: str | None = None,
    ) -> str:
        """Queue a job under this id, or another where it is taken, within a transaction that announces it; the id."""
        values = {
            "kind": job.kind,
            "parameters": dumps(job.parameters),
            "priority": job.priority,
            "retries": job.retries,
            "run_after": job.run_after,
            "model": job.model,
            "machine": job.machine,
            "origin": job.origin,
            "version": VERSION,
            "parent": parent,
            "max_workers": max_workers,
            "output": output,
        }
        while not self.database.change(
            "INSERT INTO jobs (id, kind, state, parameters, priority, retries, run_after, model, machine, origin, "
            "version, parent, max_workers, output, created) VALUES (:id, :kind, 'queued', :parameters, :priority, "
            ":retries, :run_after, :model, :machine, :origin, :version, :parent, :max_workers, :output, leap_now()) "
            "ON CONFLICT (id) DO NOTHING",
            {**values, "id": id},
        ):
            row = self.get(id)
            if row is not None and dumps(row.parameters) == values["parameters"]:
                break  # the connection was lost after this had been committed
            id = new_id()
        return id

    def claim(self, id: str, attempt: int, worker: Claimant | str) -> Job | None:
        """Begin this attempt; None when it is not there to be begun (any more)."""
        worker = Claimant(worker, worker, worker) if isinstance(worker, str) else worker
        changed = self.database.change(
            "UPDATE jobs SET state='running', owner=:owner, worker=:worker, heartbeat=leap_now(), "
            "lease_until=leap_now()+:lease, started=COALESCE(started, leap_now()), progress=NULL "
            "WHERE id=:id AND attempt=:attempt AND state='queued' AND cancel_requested=0",
            {
                "id": id,
                "attempt": attempt,
                "owner": worker.owner,
                "worker": worker.id,
                "lease": worker.lease_seconds,
            },
        )
        return self.get(id) if changed else None

    def claim_next(self, kind: str, worker: Claimant) -> Job | None:
        """Begin the next job of this kind that the worker can run, by priority and age; None when there is none."""
        return self.database.transaction(lambda: self._claim_next(kind, worker))

    def _claim_next(self, kind: str, worker: Claimant) -> Job | None:
        rows = self.database.rows(
            f"SELECT id, attempt, parent, max_workers FROM jobs j WHERE kind=:kind AND {CLAIMABLE} AND "
            "(max_workers IS NULL OR max_workers>(SELECT COUNT(*) FROM jobs s WHERE s.parent=j.parent "
            f"AND s.state='running')) ORDER BY priority DESC, created, {self.database.sequence} LIMIT 1 "
            f"{self.database.skip_locked}",
            {**self._claim_values(worker), "kind": kind},
        )
        if not rows or (rows[0]["parent"] and not self._enter_batch(rows[0]["parent"], rows[0]["max_workers"])):
            return None
        return self.claim(rows[0]["id"], rows[0]["attempt"], worker)

    def _enter_batch(self, parent: str, most: int | None) -> bool:
        """Note that the batch runs. False when as many of its shards run as may."""
        self.database.change(
            "UPDATE jobs SET state='running', started=COALESCE(started, leap_now()) WHERE id=:id AND "
            "state IN ('queued', 'running') AND (state='queued' OR :most>0)",
            {"id": parent, "most": most or 0},  # with a limit the row is written, and so locked, by each who enters
        )
        if most is None:
            return True
        rows = self.database.rows(
            "SELECT COUNT(*) AS count FROM jobs WHERE parent=:id AND state='running'", {"id": parent}
        )
        return int(rows[0]["count"]) < most

    def write(
        self,
        claim: Claim,
        first: int,
        events: Sequence[Mapping[str, Any]],
        progress: Mapping[str, Any] | None = None,
        *,
        lease_seconds: float = 60.0,
    ) -> bool:
        """One transaction: append output (numbered from ``first``), renew the lease, set the progress, and tell whether
        the job is to be cancelled. Raises Fenced."""
        values = {**claim.values, "progress": None if progress is None else dumps(progress), "lease": lease_seconds}

        def write() -> bool:
            self._own(
                "heartbeat=leap_now(), lease_until=leap_now()+:lease, progress=COALESCE(:progress, progress)", values
            )
            if events:
                self.database.change(
                    "INSERT INTO events VALUES (:id, :attempt, :number, :value) ON CONFLICT (job, attempt, number) "
                    "DO UPDATE SET value=excluded.value",
                    {"id": claim.id, "attempt": claim.attempt, "number": first, "value": dumps(list(events))},
                )
                self.database.announce("changed", claim.id)
            rows = self.database.rows("SELECT cancel_requested FROM jobs WHERE id=:id", {"id": claim.id})
            return bool(rows[0]["cancel_requested"])

        return self.database.transaction(write)

    def finish(self, claim: Claim, ending: Ending) -> None:
        """The attempt, and with it the job, has ended. Raises Fenced."""
        values = {
            **claim.values,
            "state": ending.state.value,
            "result": None if ending.result is None else dumps(ending.result),
            "error": None if ending.error is None else dumps(ending.error),
        }

        def finish() -> None:
            self._own(f"state=:state, finished=leap_now(), {FREED}, result=:result, error=:error", values)
            self.database.announce("changed", claim.id)
            self._settle_parent_of(claim.id)

        self.database.transaction(finish)

    def requeue(
        self,
        claim: Claim,
        *,
        delay: float = 0.0,
        error: Mapping[str, Any] | None = None,
        failed: bool = False,
        interrupted: bool = False,
        died: bool = False,
        progressed: bool = False,
    ) -> None:
        """Another attempt is due in ``delay`` seconds, unless the job is to be cancelled: then it is.

        ``failed``: the attempt failed by itself. ``interrupted``: it was ended from outside; ``died``: by the death of
        its process before it put anything out. None of them: it only has to wait. ``progressed``: it got further than
        the ones before, so earlier failures count no more. Raises Fenced.
        """
        values = {
            **claim.values,
            "delay": delay,
            "error": None if error is None else dumps(error),
            "failed": int(failed),
            "interrupted": int(interrupted),
            "died": int(died),
            "wait": int(not (failed or interrupted)),
            "keep": int(not progressed),
        }

        def requeue() -> None:
            self._own(
                "state=CASE WHEN cancel_requested=1 THEN 'cancelled' ELSE 'queued' END, "
                "finished=CASE WHEN cancel_requested=1 THEN leap_now() END, "
                f"attempt=attempt+1-cancel_requested, {FREED}, error=:error, "
                "run_after=CASE WHEN :delay>0 THEN leap_now()+:delay ELSE 0 END, "
                "failures=failures*:keep+:failed, interruptions=interruptions*:keep+:interrupted, "
                "deaths=CASE WHEN :died=1 THEN deaths+1 WHEN :wait=1 THEN deaths ELSE 0 END",
                values,
            )
            self.database.announce("queued")
            self.database.announce("changed", claim.id)
            self._settle_parent_of(claim.id)

        self.database.transaction(requeue)

    def _own(self, assignments: str, values: Values) -> None:
        """Change the row of a claim. Raises Fenced."""
        if not self.database.change(f"UPDATE jobs SET {assignments} WHERE {OWN}", values):
            raise Fenced

    def recover(self, most_interruptions: int, worker: str | None = None) -> Sequence[str]:
        """Queue again what runs and is given up: all that ``worker``, an earlier run of the caller's, has begun (in a
        store of one machine every row that runs, with None), and everywhere what outlived its lease. Their ids."""
        given_up = dumps({"type": "LeapJobError", "message": "the worker that ran this was killed too often"})
        lost = "lease_until<leap_now()" if self.database.is_shared else "1=1"
        if worker is not None:
            lost = f"(worker=:worker OR {lost})" if self.database.is_shared else "1=1"
        values = {"worker": worker or "", "error": given_up, "most": most_interruptions}

        running = f"SELECT id FROM jobs WHERE state='running' AND owner IS NOT NULL AND {lost}"
        if not self.database.rows(f"{running} LIMIT 1", values):
            return []

        def recover() -> list[str]:
            rows = self.database.rows(f"{running} {self.database.skip_locked}", values)
            ids = [str(row["id"]) for row in rows]
            for id in ids:
                self.database.change(
                    "UPDATE jobs SET "
                    "state=CASE WHEN cancel_requested=1 THEN 'cancelled' WHEN interruptions>=:most THEN 'failed' "
                    "ELSE 'queued' END, "
                    "finished=CASE WHEN cancel_requested=1 OR interruptions>=:most THEN leap_now() END, "
                    "error=CASE WHEN cancel_requested=0 AND interruptions>=:most THEN :error ELSE error END, "
                    "attempt=CASE WHEN cancel_requested=1 OR interruptions>=:most THEN attempt ELSE attempt+1 END, "
                    f"interruptions=interruptions+1, {FREED} WHERE id=:id AND state='running'",
                    {**values, "id": id},
                )
                self.database.announce("queued")
                self._settle_parent_of(id)
            return ids

        return self.database.transaction(recover)

    def request_cancel(self, id: str) -> State:
        """Cancel a queued job, or ask its worker to stop; the state it then has."""
        self.cancel_all(id)
        return self._existing(id).state

    def cancel_all(self, id: str | None = None) -> int:
        """Cancel all jobs that are queued, and ask the workers of running ones to stop; how many. With ``id`` only that
        job and its shards."""
        among = "1=1" if id is None else "(id=:id OR parent=:id)"

        def cancel() -> int:
            count = self.database.change(
                "UPDATE jobs SET cancel_requested=1, "
                "finished=CASE WHEN state='queued' THEN leap_now() ELSE finished END, "
                "state=CASE WHEN state='queued' THEN 'cancelled' ELSE state END "
                f"WHERE {among} AND state IN ('queued', 'running')",
                {"id": id},
            )
            self.database.announce("cancel")
            if id is not None:
                self.database.announce("changed", id)
            if self.database.is_shared:
                self._settle_all()
            return count

        return self.database.transaction(cancel)

    def retry(self, id: str) -> Job:
        """Queue a failed or cancelled job again. Raises LeapJobError when it is neither."""

        def retry() -> tuple[int, Job]:
            count = self.database.change(
                "UPDATE jobs SET state='queued', attempt=attempt+1, failures=0, interruptions=0, deaths=0, "
                "run_after=0, cancel_requested=0, error=NULL, result=NULL, finished=NULL, started=NULL "
                "WHERE id=:id AND state IN ('failed', 'cancelled')",
                {"id": id},
            )
            if count and self.database.is_shared:
                self.database.change("DELETE FROM batch_results WHERE job=:id AND succeeded=0", {"id": id})
                self.database.change(
                    "UPDATE jobs SET state='queued', attempt=attempt+1, failures=0, interruptions=0, deaths=0, "
                    "run_after=0, cancel_requested=0, error=NULL, finished=NULL WHERE parent=:id",
                    {"id": id},
                )
            self.database.announce("queued")
            return count, self._existing(id)

        count, job = self.database.transaction(retry)
        if not count:
            raise LeapJobError(f"the job {id} is {job.state.value}, and only failed and cancelled jobs are retried")
        return job

    def _settle_all(self) -> None:
        rows = self.database.rows(
            "SELECT id FROM jobs p WHERE kind='batch' AND state='running' AND owner IS NULL AND NOT EXISTS "
            "(SELECT 1 FROM jobs s WHERE s.parent=p.id AND s.state IN ('queued', 'running'))"
        )
        for row in rows:
            self._settle(str(row["id"]))

    def _settle_parent_of(self, id: str) -> None:
        """End the batch of which this is a shard, if it was the last one."""
        if self.database.is_shared:
            rows = self.database.rows("SELECT parent FROM jobs WHERE id=:id", {"id": id})
            if rows and rows[0]["parent"]:
                self._settle(str(rows[0]["parent"]))

    def _settle(self, parent: str) -> None:
        # This change locks the row: of two last shards the second one sees that the first has ended.
        if not self.database.change("UPDATE jobs SET heartbeat=NULL WHERE id=:id AND state='running'", {"id": parent}):
            return
        ending = ending_of_batch(self.database, parent)
        if ending is None:
            return
        self.database.change(
            "UPDATE jobs SET state=:state, finished=leap_now(), result=:result, error=:error, progress=:progress "
            "WHERE id=:id AND state='running'",
            {
                "id": parent,
                "state": ending.state.value,
                "result": dumps(ending.result),
                "progress": dumps(ending.result),
                "error": None if ending.error is None else dumps(ending.error),
            },
        )
        self.database.announce("changed", parent)

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
        return self.database.change(
            "DELETE FROM events WHERE job IN (SELECT id FROM jobs WHERE finished<leap_now()-:seconds) OR "
            "attempt<=(SELECT attempt FROM jobs WHERE id=events.job)-:attempts",
            {"seconds": seconds, "attempts": attempts},
        )


def new_id() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(ID_CHARACTERS))


def dumps(value: object) -> str:
    """JSON as the table keeps it."""
    return text_of(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
