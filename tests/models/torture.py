"""Mutated model files without end: leap, a host that keeps another model warm, and a worker live through all of them.

    python -m tests.models.torture --count 5000 --seed 21

Each mutant goes to one of three: a Python process that loads it (as ``leap generate`` does), a host, a job of a worker.
The host's /health is asked all the while. The suite runs a short form of this (``test_torture.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from jobs.client import JobsClient
from jobs.table.job import State
from leap_core.conversation.options import GenerationOptions
from leap_core.errors import LeapError
from leap_core.inference.gguf.header import read_gguf_header
from leap_core.inference.trial.trial_child import Subject, Verdicts
from leap_core.inference.trial.verdicts import DIRECTORY, place_key
from leap_core.protocols.host.lookup import keep_warm, runner_of
from leap_core.protocols.host.model_host import ModelHost

from .gguf_mutants import Mutants

ROOT = Path(__file__).resolve().parent.parent.parent
BRIEF = GenerationOptions(max_tokens=3, temperature=0.0, rng_seed=1)
LEAP, HOST, WORKER = "leap", "host", "worker"
SHARES = (LEAP,) * 7 + (HOST,) * 2 + (WORKER,)
HEALTH_PAUSE = 0.05


@dataclass
class Torture:
    """One run below ``home``."""

    home: Path
    count: int
    seed: int
    first: int = 0
    shares: tuple[str, ...] = SHARES
    outcomes: Counter[str] = field(default_factory=Counter)
    deaths: list[str] = field(default_factory=list)
    slowest_health: float = 0.0

    def run(self) -> dict[str, Any]:
        """What happened, as one record. ``deaths`` names every mutant after which a victim was another process."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.variables = {**os.environ, "LEAP_HOME": str(self.home / "leap-home"), "PYTHONPATH": str(ROOT)}
        self.variables.pop("LEAP_TRY_MODELS", None)
        self.verdicts = Verdicts(self.home / "leap-home" / "cache" / DIRECTORY)
        self.mutants = Mutants(self.seed, self.home)
        numbers: dict[str, list[int]] = {victim: [] for victim in (LEAP, HOST, WORKER)}
        for number in range(self.first, self.first + self.count):
            numbers[random.Random(f"share {self.seed} {number}").choice(self.shares)].append(number)
        begun = time.monotonic()
        self.over = threading.Event()
        victims = {LEAP: self._leap, HOST: self._host, WORKER: self._worker}
        threads = [threading.Thread(target=victims[name], args=(numbers[name],)) for name in victims if numbers[name]]
        self.warm, _ = keep_warm("builtin", variables=self.variables, keep_alive=0)
        health = threading.Thread(target=self._watch_health)
        health.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.over.set()
        health.join()
        self._host_still_answers()
        self.warm.unload(None)
        return {
            "mutants": self.count,
            "seed": self.seed,
            "first": self.first,
            "by_victim": {name: len(each) for name, each in numbers.items()},
            "outcomes": dict(sorted(self.outcomes.items())),
            "deaths": self.deaths,
            "slowest_health_seconds": round(self.slowest_health, 3),
            "minutes": round((time.monotonic() - begun) / 60, 1),
        }

    def _write(self, victim: str, number: int) -> tuple[str, Path]:
        label, data = self.mutants.make(number)
        path = self.home / f"{victim}-{number}.gguf"
        path.write_bytes(data)
        return f"{number} ({label})", path

    def _count(self, victim: str, path: Path, error: str | None) -> None:
        """By what refused the file: the header, the trial (and how it ended), llama.cpp, or none of them."""
        try:
            read_gguf_header(path)
            verdict = self.verdicts.get(place_key(Subject(path)))
            kind = f"trial: {verdict.outcome}" if verdict else "trial: refused by llama.cpp"
        except LeapError:
            kind = "header refused"
        self.outcomes[f"{kind}, {'answered' if error is None else error}"] += 1
        path.unlink()

    # -- the three victims

    def _leap(self, numbers: list[int]) -> None:
        process = self._loader()
        for number in numbers:
            name, path = self._write(LEAP, number)
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{path}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                self.deaths.append(f"leap {name}: code {process.wait()}")
                process = self._loader()
                path.rename(self.home / f"killer-{path.name}")
                continue
            self._count(LEAP, path, json.loads(answer)["error"])
        process.communicate()

    def _loader(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "from tests.models.torture import load_all; load_all()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=self.variables,
        )

    def _host(self, numbers: list[int]) -> None:
        for number in numbers:
            name, path = self._write(HOST, number)
            error = None
            try:
                description = self.warm.load(str(path), keep_alive=0)
                runner = runner_of(self.warm, description)
                try:
                    "".join(str(part) for part in runner.start_text("Hello", BRIEF))
                finally:
                    self.warm.unload(str(path))
            except LeapError as caught:
                error = type(caught).__name__
            running = ModelHost.running(self.variables)
            if running is None or running.state.pid != self.warm.state.pid:
                self.deaths.append(f"host {name}")
                path.rename(self.home / f"killer-{path.name}")
                self.warm, _ = keep_warm("builtin", variables=self.variables, keep_alive=0)
                continue
            self._count(HOST, path, error)

    def _worker(self, numbers: list[int]) -> None:
        with JobsClient(self.variables) as jobs:
            pid = jobs.start_worker()["pid"]
            for number in numbers:
                name, path = self._write(WORKER, number)
                error = None
                try:
                    job = jobs.wait(jobs.generate("Hello", model=str(path), options=BRIEF, host=False), 300)
                    error = None if job.state is State.SUCCEEDED else "job failed"
                except LeapError as caught:
                    error = type(caught).__name__
                worker = jobs.worker()
                if worker.get("pid") != pid:
                    self.deaths.append(f"worker {name}: {worker}")
                    pid = jobs.start_worker()["pid"]
                self._count(WORKER, path, error)
            jobs.stop_worker()

    # -- the host's health

    def _watch_health(self) -> None:
        with httpx.Client(trust_env=False) as client:
            while not self.over.wait(HEALTH_PAUSE):
                begun = time.monotonic()
                with suppress(httpx.HTTPError):
                    client.get(f"{self._url()}/health", timeout=30).raise_for_status()
                self.slowest_health = max(self.slowest_health, time.monotonic() - begun)

    def _url(self) -> str:
        return f"http://127.0.0.1:{self.warm.state.port}"

    def _host_still_answers(self) -> None:
        runner = runner_of(self.warm, self.warm.load("builtin", keep_alive=0))
        assert list(runner.start_text("Hello", BRIEF)), "the warm model does not answer any more"


def load_all() -> None:
    """The first victim: load each file that is named on standard input, and say what came of it."""
    from leap_core import Leap

    for line in sys.stdin:
        error = None
        try:
            with Leap.load(line.strip()) as runner:
                list(runner.start_text("Hello", BRIEF))
        except LeapError as caught:
            error = type(caught).__name__
        except Exception as caught:
            error = f"BUG {type(caught).__name__}: {caught}"[:200]
        print(json.dumps({"error": error}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--home", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = arguments.home or Path(directory)
        report = Torture(home, arguments.count, arguments.seed, arguments.first).run()
    print(json.dumps(report, indent=1))
    sys.exit(1 if report["deaths"] or any("BUG" in outcome for outcome in report["outcomes"]) else 0)


if __name__ == "__main__":
    main()
