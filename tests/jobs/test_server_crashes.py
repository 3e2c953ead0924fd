"""A PostgreSQL server one of whose processes is killed begins anew, without what was not yet on its disk."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from jobs.submission.shared_jobs import NewBatch, add_batch
from jobs.table.batch_rows import BatchLine, BatchRows, StoredResult
from jobs.table.job import Claim, ClaimLostError, Ending, NewJob, State, WorkerIdentity
from jobs.table.table import Table
from jobs.worker.worker_loop import WorkerLoop

from .waiting import until

ME = WorkerIdentity("w", "owner", "here", frozenset())


def lines() -> list[BatchLine]:
    return [BatchLine(n, f"k{n}", f"k{n}", b'{"prompt": "x"}') for n in range(1, 9)]


def answered(lines: list[BatchLine]) -> list[StoredResult]:
    return [StoredResult(line.number, line.key, True, 1, {"a": 1}) for line in lines]


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
def test_lines_whose_results_a_crash_has_lost_are_answered_again(own_postgres):
    with Table(own_postgres.get_uri()) as table:
        rows = BatchRows(table.undurable().database)
        id = add_batch(table, NewBatch(NewJob("batch", {"label": "x"}), lines, 8, "here:out"))
        job = table.claim_next("shard", ME)
        claim, stretch = Claim(job.id, job.attempt, "owner"), (job.parameters["first"], job.parameters["last"])
        todo = rows.missing(id, *stretch)
        table.database.change("UPDATE jobs SET priority=priority")  # on the disk, and the claim with it
        backend = "SELECT pid FROM pg_stat_activity WHERE backend_type='walwriter' OR pid=pg_backend_pid()"
        pids = [row["pid"] for row in table.database.rows(f"{backend} ORDER BY pid=pg_backend_pid()")]
        os.kill(pids[0], signal.SIGSTOP)  # nothing reaches the disk that does not wait for it
        rows.write(claim, id, answered(todo[:3]), {"done": 3})
        for pid in reversed(pids):
            os.kill(pid, signal.SIGKILL)
        rows.write(claim, id, answered(todo[3:]), {"done": len(todo)})
        assert [line.number for line in rows.missing(id, *stretch)] == [line.number for line in todo[:3]]
        table.finish(claim, Ending(State.SUCCEEDED))
        assert (table.get(job.id).state, table.get(job.id).interruptions) == (State.QUEUED, 1)
        while (job := table.claim_next("shard", ME)) is not None:
            claim = Claim(job.id, job.attempt, "owner")
            todo = rows.missing(id, job.parameters["first"], job.parameters["last"])
            rows.write(claim, id, answered(todo), {"done": len(todo)})
            table.finish(claim, Ending(State.SUCCEEDED))
        done = table.get(id)
        assert done.state is State.SUCCEEDED and done.result["done"] == 8
        with pytest.raises(ClaimLostError):
            table.finish(claim, Ending(State.SUCCEEDED))


def test_an_attempt_that_is_claimed_while_it_runs_is_fenced_off(machines, jobs_url, monkeypatch):
    shift = WorkerLoop(machines("worker").configuration, "owner")
    begun: list[int] = []
    over = threading.Event()

    def run(job, is_cancelled) -> None:
        begun.append(job.attempt)
        over.wait(60)

    monkeypatch.setattr(shift._processes, "run", run)
    with Table(jobs_url) as table:
        (id,) = table.add([NewJob("generate", {"label": "x"})])
        shift._slots.wake("generate")
        until(lambda: begun)
        table.database.change("UPDATE jobs SET state='queued', owner=NULL, worker=NULL, lease_until=NULL")  # was lost

        def runs_anew() -> bool:
            shift._slots.wake("generate")
            return len(begun) > 1

        until(runs_anew)
        assert begun == [1, 2]
        with pytest.raises(ClaimLostError):
            table.write(Claim(id, 1, "owner"), 0, [{"by": "the first"}])
    over.set()
    shift.end()
