"""A batch on Ray with one node against the same batch in this process, both after their start.

    python benchmarks/ray_batches.py [--model builtin] [--lines 500] [--tokens 64]

Both sides load the model once, with as many threads, and write journal and output; they take turns. Needs Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

from harness import SHORT, Row, alternate, report, words

from leap_core.batch.answering import Runner
from leap_core.batch.checking import check_batch
from leap_core.batch.clusters.opening import open_on_cluster
from leap_core.batch.settings import BatchSettings
from leap_core.opening import HostUse, open_runner


def settings_of(directory: Path, given: argparse.Namespace) -> BatchSettings:
    rows = (
        {"id": f"id-{n}", "prompt": words(8 + 2 * (n % 8), seed=n), "max_tokens": given.tokens}
        for n in range(given.lines)
    )
    (directory / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return BatchSettings.of(
        str(directory / "in.jsonl"),
        str(directory / "out.jsonl"),
        model=given.model,
        loading={"cpu_threads": given.threads},
        options={"temperature": 0.0},
        overwrite=True,
        on="ray",
        workers="1",
    )


def seconds(runner: Runner, settings: BatchSettings) -> float:
    """Of one batch that this loaded runner answers."""
    begun = time.perf_counter()
    with check_batch(settings, default_model=None, variables=os.environ, cwd=Path.cwd()) as checked:
        journal = settings.open_journal()
        assert journal is not None
        batch = checked.open(journal, str, lambda _progress: None)
        progress = batch.run(lambda: nullcontext(runner), threading.Event())
        journal.close()
    assert progress.succeeded == progress.total and not progress.reused
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer at most (default 64)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both sides (default 2)")
    parser.add_argument("--repeat", type=int, default=1 if SHORT else 3, help="measurements of each side (default 3)")
    given = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: beside any other load Ray would come last
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = settings_of(directory, given)
        here = stack.enter_context(open_runner(given.model, settings.loading_options(), host=HostUse.NEVER))
        with check_batch(settings, default_model=None, variables=os.environ, cwd=Path.cwd()) as checked:
            there = stack.enter_context(open_on_cluster(checked, settings))
        sides = [partial(seconds, runner, settings) for runner in (here, there)]
        for side in sides:
            side()
        alone, on_ray = alternate(given.repeat, *sides)
    report("Ray", [Row(f"{given.lines} lines on one node", "this process (s)", alone, "Ray (s)", on_ray, ">= 0.9")])


if __name__ == "__main__":
    main()
