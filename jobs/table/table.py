"""What is true about every job. The queue may lose a message or deliver it twice: this table decides.

Knows nothing of huey, of models, or of what the kinds of jobs do. Transitions are those that ``job`` lists; the
statements are the same for both stores (see ``database``).
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from leap_core.errors import LeapJobError, LeapUnavailableError
from leap_core.system.files import text_of

from .batch_rows import ANSWERED, change_own, reopen, settle_all
from .claims import ALIVE_SECONDS, NOW, claim_first, wake
from .database import open_database
from .job import (
    BATCH,
    LATER,
    MALFORMED,
    SCHEDULE,
    SHARD,
    VERSION,
    Claim,
    ClaimLostError,
    Ending,
    Job,
    NewJob,
    State,
    WorkerIdentity,
)
from .row_reading import ALPHABET, CLAIMABLE, ID_CHARACTERS, Forgetting, with_common
from .store_protocol import Conflict, Database, Values

__all__ = ["Claim", "WorkerIdentity", "Ending", "ClaimLostError", "NewJob", "Table"]

OWN = "id=:id AND state='running' AND owner=:owner AND attempt=:attempt"
FREED = "owner=NULL, heartbeat=NULL, lease_until=NULL"


WRITE = f"""
WITH own AS (
    UPDATE jobs SET heartbeat=leap_now(), lease_until=leap_now()+:lease, progress=COALESCE(:progress, progress)
    WHERE {OWN} RETURNING id, attempt, cancel_requested, set_config('synchronous_commit', 'off', true)
), put AS (
    INSERT INTO events SELECT id, attempt, :number, CAST(:value AS text) FROM own
    WHERE CAST(:value AS text) IS NOT NULL
    ON CONFLICT (job, attempt, number) DO UPDATE SET value=excluded.value
    RETURNING pg_notify('leap_' || (SELECT id FROM table_id) || '_' || job, 'changed')
)
SELECT cancel_requested FROM own
"""
"""One statement on a server. It is on the disk before the end of the attempt, which waits for the disk."""


class Table(Forgetting):
    """The table at ``place``: the path of a SQLite file, the URL of a PostgreSQL server, or what was opened there. Safe
    to use from several threads and processes."""

    def __init__(self, place: Path | str | Database, *, durable: bool = True) -> None:
        super().__init__(open_database(place, durable=durable) if isinstance(place, (Path, str)) else place)

    def undurable(self) -> Table:
        """The same table for what may be lost with the power."""
        return Table(self.database.undurable())

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, jobs: Iterable[NewJob]) -> Sequence[str]:
        """Queue jobs, all or none; their ids."""
        rows = [(new_id(), job) for job in jobs]

        due = [job for _, job in rows if job.run_after <= time.time() and not job.after and not job.after_any]
        work = Counter((job.kind, job.model, job.machine) for job in due)

        def add() -> list[str]:
            ids = [self.insert_with_followers(job, id) for id, job in rows]
            self._wake(work)
            return ids

        return self.database.transaction(add)

    def insert_with_followers(self, job: NewJob, id: str | None = None) -> str:
        """``insert``, and what follows the job with it."""
        id = self.insert(id or new_id(), job)
        for follower in job.followers:
            about = replace(follower, parameters={**follower.parameters, "about": id}, after_any=(id,))
            self.insert(new_id(), about)
        return id

    def insert(self, id: str, job: NewJob, *, output: str | None = None) -> str:
        """Queue a job under this id, or another where it is taken, within a transaction that announces it; the id."""
        waits = job.after or job.after_any
        after = {"after": {"well": job.after, "any": job.after_any, "at": job.run_after}} if waits else {}
        values = {
            "kind": job.kind,
            "parameters": dumps({**job.parameters, **after}),
            "priority": job.priority,
            "retries": job.retries,
            "run_after": LATER if waits else job.run_after,
            "model": job.model,
            "machine": job.machine,
            "origin": job.origin,
            "version": VERSION,
            "output": output,
        }
        while not self.database.change(
            "INSERT INTO jobs (id, kind, state, parameters, priority, retries, run_after, model, machine, origin, "
            "version, output, created) VALUES (:id, :kind, 'queued', :parameters, :priority, "
            ":retries, :run_after, :model, :machine, :origin, :version, :output, leap_now()) "
            "ON CONFLICT (id) DO NOTHING",
            {**values, "id": id},
        ):
            row = self.get(id)
            if row is not None and dumps(row.parameters) == values["parameters"]:
                break  # the connection was lost after this had been committed
            id = new_id()
        return id

    def claim(self, id: str, attempt: int, worker: WorkerIdentity | str) -> Job | None:
        """Begin this attempt; None when it is not there to be begun (any more)."""
        worker = WorkerIdentity(worker, worker, worker) if isinstance(worker, str) else worker
        changed = self.database.change(
            "UPDATE jobs SET state='running', owner=:owner, worker=:worker, heartbeat=leap_now(), "
            "lease_until=leap_now()+:lease, started=COALESCE(started, leap_now()), progress=NULL "
            "WHERE id=:id AND attempt=:attempt AND state='queued' AND cancel_requested=0",
            {"id": id, "attempt": attempt, "owner": worker.owner, "worker": worker.id, "lease": worker.lease_seconds},
        )
        return self.get(id) if changed else None

    def claim_next(self, kind: str, worker: WorkerIdentity) -> Job | None:
        """Begin the next job of this kind that the worker can run, by priority and age; None when there is none."""
        if self.database.is_shared:
            row = claim_first(self.database, kind, worker)
            return None if row is None else with_common(Job.of_row(row), row["common"])
        return self.database.transaction(lambda: self._claim_next(kind, worker))

    def _claim_next(self, kind: str, worker: WorkerIdentity) -> Job | None:
        rows = self.database.rows(
            f"SELECT id, attempt FROM jobs WHERE kind=:kind AND {CLAIMABLE} "
            f"ORDER BY priority DESC, created, {self.database.sequence} LIMIT 1",
            {**self._claim_values(worker), "kind": kind},
        )
        return self.claim(rows[0]["id"], rows[0]["attempt"], worker) if rows else None

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
        the job is to be cancelled. Raises ClaimLostError."""
        values = {**claim.values, "progress": None if progress is None else dumps(progress), "lease": lease_seconds}
        if self.database.is_shared:
            text = dumps(list(events)) if events else None
            rows = self.database.rows(WRITE, {**values, "number": first, "value": text})
            if not rows:
                raise ClaimLostError
            return bool(rows[0]["cancel_requested"])

        def write() -> bool:
            self._keep(
                "heartbeat=leap_now(), lease_until=leap_now()+:lease, progress=COALESCE(:progress, progress)", values
            )
            if events:
                self.database.change(
                    "INSERT INTO events VALUES (:id, :attempt, :number, :value) ON CONFLICT (job, attempt, number) "
                    "DO UPDATE SET value=excluded.value",
                    {"id": claim.id, "attempt": claim.attempt, "number": first, "value": dumps(list(events))},
                )
            rows = self.database.rows("SELECT cancel_requested FROM jobs WHERE id=:id", {"id": claim.id})
            return bool(rows[0]["cancel_requested"])

        return self.database.transaction(write)

    def finish(self, claim: Claim, ending: Ending) -> None:
        """The attempt, and with it the job, has ended; a shard whose results a server has lost in a crash is queued
        again instead. Raises ClaimLostError."""
        values = {
            **claim.values,
            "state": ending.state.value,
            "result": None if ending.result is None else dumps(ending.result),
            "error": None if ending.error is None else dumps(ending.error),
        }

        def finish() -> None:
            assignments = f"state=:state, finished=leap_now(), {FREED}, result=:result, error=:error"
            self._own(claim, assignments, values, own=ANSWERED if succeeded else OWN)

        succeeded = self.database.is_shared and ending.state is State.SUCCEEDED
        try:
            self.database.transaction(finish)
        except ClaimLostError:
            if not succeeded:
                raise
            self.requeue(claim, interrupted=True)

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
        the ones before, so earlier failures count no more. Raises ClaimLostError.
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
                claim,
                "state=CASE WHEN cancel_requested=1 THEN 'cancelled' ELSE 'queued' END, "
                "finished=CASE WHEN cancel_requested=1 THEN leap_now() END, "
                f"attempt=attempt+1-cancel_requested, {FREED}, error=:error, "
                "run_after=CASE WHEN :delay>0 THEN leap_now()+:delay ELSE 0 END, "
                "failures=failures*:keep+:failed, interruptions=interruptions*:keep+:interrupted, "
                "deaths=CASE WHEN :died=1 THEN deaths+1 WHEN :wait=1 THEN deaths ELSE 0 END",
                values,
            )
            self._wake_for([claim.id])

        self.database.transaction(requeue)

    def _own(self, claim: Claim, assignments: str, values: Values, *, own: str = OWN) -> None:
        """Change the row of a claim, which gives the job up, and say so; a shard's batch does that for it. Raises
        ClaimLostError."""
        if not self.database.is_shared:
            self._keep(assignments, values)
            return
        row = change_own(self.database, own, assignments, values)
        if row is None:
            raise ClaimLostError
        if row["batch"] is None:
            self.database.announce("changed", claim.id)

    def _keep(self, assignments: str, values: Values) -> None:
        """Change the row of a claim. Raises ClaimLostError."""
        if not self.database.change(f"UPDATE jobs SET {assignments} WHERE {OWN}", values):
            raise ClaimLostError

    def recover(self, most_interruptions: int, worker: str | None = None) -> Sequence[str]:
        """Queue again what runs and is given up: all that ``worker``, an earlier run of the caller's, has begun (in a
        store of one machine every row that runs, with None), and everywhere what outlived its lease. Their ids."""
        given_up = dumps({"type": "LeapJobError", "message": "the worker that ran this was killed too often"})
        lost = f"lease_until<{NOW}" if self.database.is_shared else "1=1"
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
                self._give_up(id, values)
            self._wake_for(ids)
            return ids

        return self.database.transaction(recover)

    def _give_up(self, id: str, values: Values) -> None:
        """Queue a job again whose worker is gone, or end it where that came too often."""
        assignments = (
            "state=CASE WHEN cancel_requested=1 THEN 'cancelled' WHEN interruptions>=:most THEN 'failed' "
            "ELSE 'queued' END, "
            "finished=CASE WHEN cancel_requested=1 OR interruptions>=:most THEN leap_now() END, "
            "error=CASE WHEN cancel_requested=0 AND interruptions>=:most THEN :error ELSE error END, "
            "attempt=CASE WHEN cancel_requested=1 OR interruptions>=:most THEN attempt ELSE attempt+1 END, "
            f"interruptions=interruptions+1, {FREED}"
        )
        running = "id=:id AND state='running'"
        if not self.database.is_shared:
            self.database.change(f"UPDATE jobs SET {assignments} WHERE {running}", {**values, "id": id})
            return
        change_own(self.database, running, assignments, {**values, "id": id})

    def release(self) -> Sequence[str]:
        """Let jobs begin that come after others, once those have ended; where one should have ended well and did not,
        they fail. Their ids. What is true of them is read from the rows, so any worker may do it at any time."""
        rows = self.database.rows(
            "SELECT id, parameters FROM jobs WHERE state='queued' AND run_after>0 AND run_after>=:later "
            f"AND kind<>'{SCHEDULE}' AND parent IS NULL",
            {"later": LATER},
        )
        released = []
        for row in rows:
            try:
                if self._release(row["id"], json.loads(row["parameters"])["after"]):
                    released.append(str(row["id"]))
            except MALFORMED as error:
                self.refuse_row(row["id"], error)
        return released

    def refuse_row(self, id: str, reason: Exception) -> None:
        """End a queued job whose row cannot be read, so that it does not keep others from being looked at."""
        message = f"the row of this job cannot be read: {type(reason).__name__}: {reason}"
        self.database.change(
            "UPDATE jobs SET state='failed', finished=leap_now(), error=:error WHERE id=:id AND state='queued'",
            {"id": id, "error": dumps({"type": "LeapJobError", "message": message})},
        )

    def _release(self, id: str, after: Mapping[str, Any]) -> bool:
        well, ended = ({each: self.get(each) for each in after[name]} for name in ("well", "any"))
        if any(job is not None and not job.state.is_final for job in (*well.values(), *ended.values())):
            return False
        bad = {each: job for each, job in well.items() if job is None or job.state is not State.SUCCEEDED}
        values: dict[str, object] = {"id": id, "later": LATER, "at": after["at"], "error": None, "state": "queued"}
        if bad:
            other, job = next(iter(bad.items()))
            how = "was removed" if job is None else "was cancelled" if job.state is State.CANCELLED else "failed"
            error = {"type": "LeapJobError", "message": f"it comes after the job {other}, which {how}"}
            values |= {"error": dumps({**error, "hint": f"leap jobs retry {id} begins it all the same"})}
            values |= {"state": "failed"}

        assignments = (
            "state=:state, run_after=:at, error=:error, "
            "finished=CASE WHEN CAST(:state AS text)='failed' THEN leap_now() END"
        )

        def release() -> bool:
            waiting = "state='queued' AND run_after>=:later"
            changed = self.database.change(f"UPDATE jobs SET {assignments} WHERE id=:id AND {waiting}", values)
            if changed:
                self.database.announce("changed", id)
                self.database.change(f"UPDATE jobs SET {assignments} WHERE parent=:id AND {waiting}", values)
            if changed and self.database.is_shared:
                shards = self.database.rows("SELECT id FROM jobs WHERE parent=:id AND held=0", {"id": id})
                self._wake_for([id, *(str(row["id"]) for row in shards)])
            return bool(changed)

        return self.database.transaction(release)

    def request_cancel(self, id: str) -> State:
        """Cancel a queued job, or ask its worker to stop; the state it then has."""
        self.cancel_all(id)
        return self._existing(id).state

    def cancel_all(self, id: str | None = None) -> int:
        """Cancel all jobs that are queued, and ask the workers of running ones to stop; how many. With ``id`` only that
        job and its shards."""
        among = "1=1" if id is None else "id=:id"
        groups = (
            [among]
            if not self.database.is_shared
            else [
                "parent IS NOT NULL" if id is None else "parent=:id",  # shards before their batches: see batch_parents
                f"{among} AND parent IS NULL",
            ]
        )

        def cancel() -> int:
            counts = [
                self.database.change(
                    "UPDATE jobs SET cancel_requested=1, "
                    "finished=CASE WHEN state='queued' THEN leap_now() ELSE finished END, "
                    "state=CASE WHEN state='queued' THEN 'cancelled' ELSE state END "
                    f"WHERE {group} AND state IN ('queued', 'running')",
                    {"id": id},
                )
                for group in groups
            ]
            self.database.announce("cancel")
            if id is not None:
                self.database.announce("changed", id)
            if self.database.is_shared:
                settle_all(self.database)
            return sum(counts)

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
            job = self._existing(id)
            shards = 0
            if count and self.database.is_shared:
                self.database.change("UPDATE jobs SET forgotten=0 WHERE id=:id", {"id": id})
                shards = reopen(self.database, id) if job.kind == BATCH else 0
            self._wake({(SHARD if shards else job.kind, job.model, job.machine): shards or 1})
            return count, job

        try:
            count, job = self.database.transaction(retry)
        except Conflict:
            raise LeapUnavailableError(
                f"another batch writes to the output of the job {id}", hint="wait for it, then try again"
            ) from None
        if not count:
            raise LeapJobError(f"the job {id} is {job.state.value}, and only failed and cancelled jobs are retried")
        return job

    def in_use(self, output: str) -> str | None:
        """The batch that is queued or runs and has this output."""
        rows = self.database.rows(
            "SELECT id FROM jobs WHERE output=:output AND state IN ('queued', 'running')", {"output": output}
        )
        return str(rows[0]["id"]) if rows else None

    def _wake(self, work: Mapping[tuple[str, str | None, str | None], int], beside: str = "") -> None:
        if self.database.is_shared:
            wake(self.database, work, ALIVE_SECONDS, beside)

    def _wake_for(self, ids: Sequence[str]) -> None:
        """Wake workers for those of these jobs that are queued and due, but not those that gave them up."""
        if self.database.is_shared:
            rows = self.database.rows(
                "SELECT kind, model, machine, worker FROM jobs WHERE id=ANY(:ids) AND state='queued' AND "
                f"run_after<={NOW}",
                {"ids": list(ids)},
            )
            for worker in {row["worker"] for row in rows}:
                given_up = [row for row in rows if row["worker"] == worker]
                work = Counter((row["kind"], row["model"], row["machine"]) for row in given_up)
                self._wake(work, worker or "")


def new_id() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(ID_CHARACTERS))


def dumps(value: object) -> str:
    """JSON as the table keeps it."""
    return text_of(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
