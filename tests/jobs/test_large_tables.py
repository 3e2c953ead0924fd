"""A table on a server that many workers share stays quick as it grows: every statement finds its rows by an index."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from jobs.submission.shared_jobs import NewBatch, add_batch
from jobs.table.batch_rows import ANSWERED, BatchLine, BatchRows, StoredResult
from jobs.table.claims import WorkerReport, WorkerRows
from jobs.table.job import Claim, Ending, NewJob, State, WorkerIdentity
from jobs.table.postgres import PostgresDatabase
from jobs.table.table import Table
from leap_core.errors import LeapUnavailableError
from tests.support.growth import check_growth
from tests.support.lengths import lengths

from .waiting import until

LARGE = ("jobs", "batch_lines", "batch_results", "events")
ME = WorkerIdentity("me", "me", "here", frozenset({"aaa"}))
FILL = """
INSERT INTO jobs (id, kind, state, parameters, model, created, finished, output)
SELECT 'q' || n, 'generate', 'queued', '{}', 'other' || n % 7, n, NULL, NULL FROM generate_series(1, ROWS) n;
INSERT INTO jobs (id, kind, state, parameters, created, finished, forgotten)
SELECT 'e' || n, 'generate', 'succeeded', '{}', n, leap_now(), 0 FROM generate_series(1, ROWS) n;
INSERT INTO jobs (id, kind, state, parameters, created, finished, output)
VALUES ('old', 'batch', 'succeeded', '{"total": ROWS}', 0, leap_now(), 'here:out');
INSERT INTO jobs (id, kind, state, parameters, model, created) VALUES ('wide', 'batch', 'running', '{}', 'aaa', 0);
INSERT INTO jobs (id, kind, state, parameters, model, created, parent, priority)
SELECT 'wide.' || n, 'shard', 'queued', '{}', 'aaa', n, 'wide', -1 FROM generate_series(1, ROWS) n;
INSERT INTO batch_lines SELECT 'old', n, md5('x' || n), md5('x' || n), 'x' FROM generate_series(1, ROWS) n;
INSERT INTO batch_results SELECT 'old', n, md5('x' || n), 1, 3, '{}' FROM generate_series(1, ROWS) n;
INSERT INTO events SELECT 'e' || n, 1, 0, '[]' FROM generate_series(1, ROWS) n
"""


@pytest.fixture
def table(jobs_url) -> Iterator[Table]:
    with Table(jobs_url) as table:
        yield table


@pytest.fixture
def rows() -> int:
    """How many rows the large tables have."""
    return 8_000


@pytest.fixture
def large(table, rows) -> Table:
    for statement in FILL.replace("ROWS", str(rows)).split(";\n"):
        table.database.change(statement)
    table.database.change("ANALYZE")
    return table


@pytest.fixture
def scans(monkeypatch) -> list[str]:
    """The statements that read a large table from one end to the other, as the server plans them."""
    found: list[str] = []
    execute = PostgresDatabase._execute

    def explained(self, sql, values):
        if re.match(r"\s*(SELECT|UPDATE|INSERT|DELETE|WITH)\b", sql) and not sql.startswith("SELECT pg_notify"):
            plan = "\n".join(row["QUERY PLAN"] for row in execute(self, f"EXPLAIN {sql}", values).fetchall())
            if any(re.search(rf"Seq Scan on {name}\b", plan) for name in LARGE):
                found.append(f"{sql}\n{plan}")
        return execute(self, sql, values)

    monkeypatch.setattr(PostgresDatabase, "_execute", explained)
    return found


def lines(count: int, prefix: str = "x") -> NewBatch:
    import hashlib

    def rows() -> Iterator[BatchLine]:
        for n in range(1, count + 1):
            key = hashlib.md5(f"{prefix}{n}".encode()).hexdigest()
            yield BatchLine(n, key, key, b'{"prompt": "x"}')

    job = NewJob("batch", {"label": "x", "batch": {"a": 1}}, model="aaa")
    return NewBatch(job, rows, count, "here:out" if prefix == "x" else f"here:{prefix}")


@lengths(20_000, 200_000, "rows")
def test_every_statement_finds_its_rows_by_an_index(large, scans):
    id = add_batch(large, lines(50))
    assert large.get(id).parameters["reused"] == 50
    fresh = add_batch(large, lines(50, "fresh"))
    workers = WorkerRows(large.database)
    workers.enter(
        "me", WorkerReport(machine="here", name="a", pid=7, version="1", capacity={"batch": 1}, models={"aaa": "A"})
    )
    large.recover(3)
    large.recover(3, "me")
    assert large.waiting(ME) == ({"shard"}, None)
    job = large.claim_next("shard", ME)
    assert job.parameters["batch"] == {"a": 1}, "what shards have in common comes from the batch"
    large.find(fresh[:6])
    large.with_progress(large.get(fresh))
    large.wanted_to_stop("me")
    large.running_of("me")
    large.forget_output(1e9)
    large.lacking(WorkerIdentity("b", "b", "there", frozenset()))
    large.models_waited_for()
    large.jobs(limit=10)
    workers.all()
    claim = Claim(job.id, job.attempt, "me")
    rows = BatchRows(large.database)
    missing = rows.missing(str(job.parent), job.parameters["first"], job.parameters["last"])
    rows.write(claim, str(job.parent), [StoredResult(each.number, each.key, True, 2, {}) for each in missing], {})
    large.finish(claim, Ending(State.SUCCEEDED))
    large.request_cancel(id)
    assert scans == []


def test_progress_and_ends_of_shards_are_counters_on_rows(large, monkeypatch):
    """No result is counted while a batch runs but those of the shard that ends, and no sibling of that."""
    id = add_batch(large, replace(lines(96, "counted"), max_workers=2))
    statements: list[str] = []
    execute = PostgresDatabase._execute
    monkeypatch.setattr(
        PostgresDatabase, "_execute", lambda *of: statements.append(of[1].replace(ANSWERED, "")) or execute(*of)
    )
    shards = int(large.database.rows("SELECT open_shards FROM jobs WHERE id=:id", {"id": id})[0]["open_shards"])
    assert shards > 2
    for ended in range(1, shards):
        job = large.claim_next("shard", ME)
        claim, rows = Claim(job.id, job.attempt, "me"), BatchRows(large.database)
        missing = rows.missing(id, job.parameters["first"], job.parameters["last"])
        rows.write(claim, id, [StoredResult(each.number, each.key, each.number != 2, 5, {}) for each in missing], {})
        statements.clear()
        large.finish(claim, Ending(State.SUCCEEDED))
        progress = large.with_progress(large.get(id)).progress
        assert statements and not [each for each in statements if "batch_results" in each or "COUNT(" in each]
        counted = large.database.rows(
            "SELECT COUNT(*) AS done, SUM(succeeded) AS good FROM batch_results WHERE job=:id", {"id": id}
        )[0]
        assert (progress["done"], progress["succeeded"]) == (counted["done"], counted["good"])
        row = large.database.rows("SELECT open_shards FROM jobs WHERE id=:id", {"id": id})[0]
        assert row["open_shards"] == shards - ended


def test_output_is_deleted_once(large, rows):
    statements = []
    execute = PostgresDatabase._execute
    assert large.forget_output(-1.0) == rows
    large.database._execute = lambda *of: statements.append(of[0]) or execute(large.database, *of)
    assert large.forget_output(-1.0) == 0
    assert len([each for each in statements if "FROM events" in each]) == 1, "nothing but old attempts is looked for"


def test_a_batch_submitted_again_reads_as_many_rows_as_it_has_lines(large):
    """A scan of all results for each line would read many times as many."""

    def submit(count: int) -> None:
        id = add_batch(large, lines(count))
        assert large.get(id).parameters["reused"] == count
        large.request_cancel(id)

    def rows_read() -> int:
        large.database.rows("SELECT pg_stat_force_next_flush()")
        large.database.rows("SELECT 1")
        sums = "SUM(seq_tup_read) + SUM(COALESCE(idx_tup_fetch, 0))"
        return int(large.database.rows(f"SELECT {sums} AS read FROM pg_stat_user_tables")[0]["read"])

    submit(100)
    check_growth(submit, 8000, clock=rows_read)


def test_of_several_submissions_with_one_output_one_is_accepted(jobs_url, table):
    barrier = threading.Barrier(4)
    ends: list[object] = []

    def submit() -> None:
        with Table(jobs_url) as own:
            barrier.wait()
            try:
                ends.append(add_batch(own, lines(200)))
            except LeapUnavailableError as error:
                ends.append(error)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [each for each in ends if isinstance(each, str)]
    assert len(ids) == 1 and len(ends) == 4
    assert ids[0] in str(next(each for each in ends if not isinstance(each, str)).hint)
    table.request_cancel(ids[0])
    add_batch(table, lines(10))
    with pytest.raises(LeapUnavailableError, match="another batch writes"):
        table.retry(ids[0])


def test_a_submission_wakes_as_many_workers_as_it_has_work_for(table, jobs_url):
    workers = WorkerRows(table.database)
    listeners = []
    for n in range(6):
        models = {"aaa": "A"} if n else {}
        workers.enter(
            f"w{n}", WorkerReport(machine="here", name="a", pid=7, version="1", capacity={"generate": 1}, models=models)
        )
        listeners.append(table.database.listen(worker=f"w{n}"))
        assert listeners[-1].wait(1) == []

    def heard(count: int) -> list[bool]:
        """Which listeners heard of work, when so many have, and a moment later."""
        found = [False] * len(listeners)

        def listen() -> bool:
            found[:] = [bool(listener.wait(0.05)) or said for listener, said in zip(listeners, found, strict=True)]
            return sum(found) >= count

        until(listen)
        listen()
        return found

    table.add([NewJob("generate", {}, model="aaa") for _ in range(2)])
    first = heard(2)
    assert sum(first) == 2 and not first[0], "only those with the model"
    claims = [
        table.claim_next("generate", WorkerIdentity(f"w{n}", f"w{n}", "here", frozenset({"aaa"}))) for n in (1, 2)
    ]
    assert all(claims)
    table.add([NewJob("generate", {}, model="aaa") for _ in range(9)])
    assert heard(3) == [False, False, False, True, True, True], "those that are busy look by themselves"
    for listener in listeners:
        listener.close()


def test_starting_and_idle_workers_are_not_started_again(table):
    workers = WorkerRows(table.database)
    listeners = []
    for n in range(3):
        workers.enter(
            f"w{n}", WorkerReport(machine="here", name="a", pid=7, version="1", capacity={"generate": 1}, models={})
        )
        listeners.append(table.database.listen(worker=f"w{n}"))
        assert listeners[-1].wait(1) == []
    for _ in range(3):  # before any of them has begun anything
        table.add([NewJob("generate", {})])
    assert [listener.wait(100) for listener in listeners] == [["queued"]] * 3
    job = table.claim_next("generate", WorkerIdentity("w0", "w0", "here"))
    for _ in range(2):
        assert table.claim_next("generate", WorkerIdentity("w1", "w1", "here"))
    table.requeue(Claim(job.id, job.attempt, "w0"), interrupted=True)
    assert listeners[2].wait(100) == ["queued"]
    assert [listener.wait(0.2) for listener in listeners[:2]] == [[], []], "one is full, one is about to end"
    for listener in listeners:
        listener.close()


def test_messages_that_arrive_together_cause_one_query(table):
    workers = WorkerRows(table.database)
    workers.enter(
        "w", WorkerReport(machine="here", name="a", pid=7, version="1", capacity={"generate": 99}, models={"aaa": "A"})
    )
    changes = table.database.listen(worker="w")
    changes.wait(1)

    def are_one_look() -> bool:
        for _ in range(20):
            table.add([NewJob("generate", {}, model="aaa")])
        time.sleep(0.2)
        looks = [changes.wait(1)]
        while look := changes.wait(0.2):  # a busy server sends the last ones later
            looks.append(look)
        return looks == [["queued"]]

    until(are_one_look)
    changes.close()


def test_at_most_the_allowed_shards_of_a_batch_run(table):
    id = add_batch(table, replace(lines(96), max_workers=2))
    claimants = [WorkerIdentity(f"w{n}", f"w{n}", "here", frozenset({"aaa"})) for n in range(6)]
    done = most = 0
    for _ in range(20):
        running = [(each, table.claim_next("shard", each)) for each in claimants]
        running = [(each, job) for each, job in running if job is not None]
        if not running:
            break
        most = max(most, len(running))
        for each, job in running:
            claim = Claim(job.id, job.attempt, each.owner)
            if done == 0:
                table.requeue(claim, interrupted=True)
            else:
                parameters = job.parameters
                found = BatchRows(table.database).missing(id, parameters["first"], parameters["last"])
                results = [StoredResult(line.number, line.key, line.number != 50, 1, {}) for line in found]
                BatchRows(table.database).write(claim, id, results, {})
                assert table.with_progress(table.get(id)).progress["done"] >= len(results)
                table.finish(claim, Ending(State.SUCCEEDED))
            done += 1
    job = table.get(id)
    assert most == 2
    assert (job.state, job.progress["done"], job.progress["failed"]) == (State.FAILED, 96, 1)
    assert "1 of 96 lines failed" in job.error["message"]
    table.retry(id)
    assert table.with_progress(table.get(id)).progress["done"] == 95
    assert sum(table.claim_next("shard", each) is not None for each in claimants) == 2
