"""Jobs through PgBouncer in transaction mode, which lends a connection for no longer than a transaction."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from jobs.submission.shared_jobs import NewBatch, add_batch
from jobs.table.batch_rows import BatchLine, BatchRows, StoredResult
from jobs.table.job import Claim, Ending, NewJob, State, WorkerIdentity
from jobs.table.postgres import PostgresDatabase
from jobs.table.table import Table
from leap_core.conversation.options import GenerationOptions
from leap_core.models.builtin import model_path

from .machines import Machine
from .waiting import until

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SERVERS = 2
"""Connections that the pooler keeps to the server: fewer than who wants one, so each is lent to all in turn."""


@pytest.fixture
def pooled_url(jobs_url) -> Iterator[str]:
    """The test's database through a pooler; announcements come from the server itself."""
    if PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed")
    (host,) = parse_qs(urlsplit(jobs_url).query)["host"]
    directory = Path(tempfile.mkdtemp(prefix="leap-bouncer-"))
    owner = Path(host).owner()
    shutil.chown(directory, owner)
    settings = {
        "unix_socket_dir": directory,
        "listen_port": 6432,
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": SERVERS,
        "logfile": directory / "log",
        **({"user": owner} if os.getuid() == 0 else {}),
    }
    lines = [f"{name} = {value}" for name, value in settings.items()]
    configuration = directory / "pgbouncer.ini"
    configuration.write_text("\n".join([f"[databases]\n* = host={host} user=postgres", "[pgbouncer]", *lines, ""]))
    process = subprocess.Popen([PGBOUNCER, "-q", str(configuration)], stderr=subprocess.DEVNULL)
    try:
        until((directory / ".s.PGSQL.6432").exists)
        yield jobs_url.partition("?")[0] + f"?host={directory}&port=6432&listen_host={host}&listen_port=5432"
    finally:
        process.terminate()
        process.wait(100)
        shutil.rmtree(directory, ignore_errors=True)


def test_more_threads_than_connections_share_out_a_batch(pooled_url, jobs_url):
    def lines() -> Iterator[BatchLine]:
        return (BatchLine(n, f"key{n}", f"key{n}", b'{"prompt": "x"}') for n in range(1, 321))

    done: list[str] = []

    def work(name: str) -> None:
        me = WorkerIdentity(name, name, name, frozenset())
        with Table(pooled_url) as table:
            output = table.undurable()
            rows = BatchRows(table.database)
            while (job := table.claim_next("shard", me)) is not None:
                claim = Claim(job.id, job.attempt, name)
                assert output.write(claim, 0, [{"by": name}], {"done": 1}) is False
                lines = rows.missing(str(job.parent), job.parameters["first"], job.parameters["last"])
                results = [StoredResult(line.number, line.key, True, 1, {"text": "x"}) for line in lines]
                rows.write(claim, str(job.parent), results, {"done": len(results)})
                table.finish(claim, Ending(State.SUCCEEDED))
                done.append(job.id)

    with Table(pooled_url) as table:
        id = add_batch(table, NewBatch(NewJob("batch", {"label": "x"}), lines, 320, "here:out"))
        threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == len(set(done)) == len(table.shards(id)) == 20
        assert table.get(id).state.is_final
    with Table(jobs_url) as direct:
        assert direct.get(id).state.is_final, "the same tables"


def test_announcements_come_from_the_server_itself(pooled_url):
    with Table(pooled_url) as table, Table(pooled_url) as other:
        changes = table.database.listen("abcdefgh")
        assert changes.wait(1) == []
        other.database.announce("changed", "abcdefgh")
        assert changes.wait(100) == ["changed"]
        changes.close()


def test_doctor_reports_when_announcements_do_not_arrive(pooled_url, leap):
    leap.variables["LEAP_JOBS_URL"] = pooled_url.partition("&listen_host")[0]
    assert "jobs_url says with listen_host and listen_port where the server itself is" in leap("doctor").stderr
    with closing(PostgresDatabase.at(pooled_url)) as database:
        assert database.server_facts()["deaf"] is None
    with closing(PostgresDatabase.at(pooled_url.replace("listen_port=5432", "listen_port=5433"))) as database:
        assert str(database.server_facts()["deaf"]).startswith("listening at listen_host fails: ")
        assert database.listen().wait(0.1) == [], "looking now and then goes on"


@pytest.mark.skipif(not model_path().is_file(), reason="the built-in model has not been trained yet")
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_worker_runs_behind_a_pooler(jobs_url, pooled_url, tmp_path):
    import psycopg

    machine = Machine(tmp_path / "worker", pooled_url)
    machine.start()
    try:
        with machine.client() as jobs, psycopg.connect(jobs_url, autocommit=True) as observer:
            until(lambda: len(jobs.workers()) == 1)
            ids = [jobs.generate("Hi", options=GenerationOptions(max_tokens=3)) for _ in range(3)]
            assert {jobs.wait(id, 60).state for id in ids} == {State.SUCCEEDED}
            held = "SELECT count(*) FROM pg_stat_activity WHERE datname=current_database() AND pid<>pg_backend_pid()"
            assert observer.execute(held).fetchone()[0] <= SERVERS + 2, "the pooler's, and two that listen"
    finally:
        machine.stop()
