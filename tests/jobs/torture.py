"""Kill -9 at random moments, over a batch, downloads and generations: at the end nothing is lost and nothing is twice.

    python -m tests.jobs.torture --rounds 30 --lines 500 --seed 1

Each round kills one of: the worker, a process that runs a model for it, the host that keeps the model warm, a command
that is just submitting. The suite runs a short form of this (``test_torture.py``).
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
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from jobs.client import JobsClient
from jobs.table.job import State
from jobs.worker_process import is_running
from leap_core.conversation.options import GenerationOptions
from leap_core.system.locks import is_locked
from tests.support.hub import FakeHub

from . import processes
from .waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent
REPO = "LiquidAI/LFM2-350M-GGUF"
FILES = {"Q4_0": "LFM2-350M-Q4_0.gguf", "Q8_0": "LFM2-350M-Q8_0.gguf"}
FLAGS = ["-m", "builtin", "--temperature", "0", "--max-tokens", "24", "--threads", "1"]
BYTES = 4_000_000


@dataclass
class Torture:
    """One run below ``home``; ``report`` is what happened."""

    home: Path
    rounds: int
    lines: int
    seed: int
    report: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Raises AssertionError when anything was lost, done twice, or left behind."""
        self.random = random.Random(self.seed)
        self.home.mkdir(parents=True, exist_ok=True)
        source = self.home / "in.jsonl"
        source.write_text("".join(json.dumps(self._line(n)) + "\n" for n in range(self.lines)))
        calm = self._variables(self.home / "calm")
        # As many at once as in the run that is disturbed: the size of a batch changes the last places of a logit.
        self._leap(calm, "batch", str(source), "-o", str(self.home / "calm.jsonl"), *FLAGS, "--concurrency", "1")
        prompts = [self._prompt() for _ in range(6)]
        wanted = [self._leap(calm, "generate", *FLAGS, prompt) for prompt in prompts]
        with FakeHub(bytes_per_second=400_000) as hub:
            content = {name: self.random.randbytes(BYTES) for name in FILES.values()}
            for name, data in content.items():
                hub.add_file(REPO, name, data)
            variables = {**self._variables(self.home / "leap"), "HF_HOME": str(self.home / "hf"), **hub.environment}
            with JobsClient(variables) as jobs:
                ids = [self._submit(variables, "download", f"LFM2-350M:{quant}") for quant in FILES]
                answers = [self._submit(variables, "generate", *FLAGS, prompt) for prompt in prompts]
                batch = ["batch", str(source), "-o", str(self.home / "out.jsonl"), *FLAGS, "--concurrency", "1"]
                ids.append(self._submit(variables, *batch))
                options = GenerationOptions(temperature=0.0, max_tokens=24)
                for n in range(self.rounds):
                    prompt, text = prompts[n % len(prompts)], wanted[n % len(prompts)]
                    answers.append(jobs.generate(prompt, options=options, loading={"cpu_threads": 1}))
                    wanted.append(text)
                    self._round(n, jobs, variables)
                self._check(jobs, ids, answers, wanted, content, variables)

    def _round(self, n: int, jobs: JobsClient, variables: Mapping[str, str]) -> None:
        victim = self.random.choice(["jobs.worker", "jobs.worker.model_process", "leap_core.server", "submitter"])
        if victim == "leap_core.server":
            self._leap(variables, "load", "builtin")
        jobs.ensure_worker()
        time.sleep(self.random.uniform(0.05, 0.9))
        if victim == "submitter":
            command = [sys.executable, "-m", "leap_cli", "generate", *FLAGS, self._prompt(), "--background"]
            process = subprocess.Popen(command, env=dict(variables), stdout=subprocess.DEVNULL)
            time.sleep(self.random.uniform(0.0, 0.4))
            process.kill()
            process.wait()
        else:
            for pid in processes.named(self.home / "leap", victim)[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        counts = Counter(f"{job.kind} {job.state.value}" for job in jobs.list())
        self.report.append(f"{n}: {victim}; {dict(counts)}")

    def _check(
        self,
        jobs: JobsClient,
        ids: list[str],
        answers: list[str],
        wanted: list[str],
        content: Mapping[str, bytes],
        variables: Mapping[str, str],
    ) -> None:
        for job in jobs.list():  # those of killed submitters too
            ended = jobs.wait(job.id, 300)
            assert ended.state is State.SUCCEEDED, ended
            self.report.append(f"{ended.kind} {ended.id}: attempt {ended.attempt}, failures {ended.failures}")
        calm, out = (_answers(self.home / name) for name in ("calm.jsonl", "out.jsonl"))
        assert [id for id, _ in out] == [f"id-{n}" for n in range(self.lines)], "a line is missing, twice or misplaced"
        assert out == calm, [pair for pair in zip(out, calm, strict=True) if pair[0] != pair[1]][:3]
        journal = (self.home / "out.jsonl.journal").read_bytes().splitlines()
        assert len(journal) == self.lines + 1, "a line was answered twice"
        for id, text in zip(answers, wanted, strict=True):
            assert jobs.get(id).result["message"]["content"] == text.removesuffix("\n")  # type: ignore[index]
            kinds = [event.value["type"] for event in jobs.events(id)]
            assert kinds.count("complete") == 1
        for id in ids[:-1]:
            path = Path(jobs.get(id).result["path"])  # type: ignore[index]
            assert path.read_bytes() == content[path.name]
        jobs.stop_worker()
        self._leap(variables, "unload", "--all")
        until(lambda: not processes.of_home(self.home / "leap"))  # no orphans
        assert not is_running(jobs.configuration)
        locks = [path for path in self.home.rglob("*") if path.name.endswith((".lock", ".journal"))]
        assert not [path for path in locks if is_locked(path)], "a lock is left"

    def _line(self, n: int) -> dict[str, object]:
        return {"custom_id": f"id-{n}", "prompt": self._prompt()}

    def _prompt(self) -> str:
        """Something that the model is sure about, so that no answer hangs on the last place of a logit."""
        number = self.random.randrange(100, 900)
        wordings = ("Say {0}", "Repeat {0}", "Repeat after me: {0}", "Echo {0}", "Count from {0} to {1}.")
        return self.random.choice(wordings).format(number, number + 5)

    def _variables(self, home: Path) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return {**os.environ, "LEAP_HOME": str(home), "PYTHONPATH": path}

    def _leap(self, variables: Mapping[str, str], *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "leap_cli", *arguments],
            env=dict(variables),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _submit(self, variables: Mapping[str, str], *arguments: str) -> str:
        return self._leap(variables, *arguments, "--background").strip()


def _answers(path: Path) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(r["custom_id"], r["response"]["body"]["choices"][0]["message"]["content"]) for r in records]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        torture = Torture(Path(directory), given.rounds, given.lines, given.seed)
        started = time.monotonic()
        try:
            torture.run()
        finally:
            print("\n".join(torture.report))
        print(f"{given.rounds} rounds, {given.lines} lines: all there, once, equal; {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
