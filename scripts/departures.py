"""Clients that leave while their prompts are read, beside clients that are answered: every answer must be the one that
a model which was just loaded gives, and come in time.

    python scripts/departures.py            # five kinds of memory, 4 and 8 slots, in a program and over `leap serve`
    python scripts/departures.py --kinds hybrid --slots 4 --through program --departures 50 --pause 0.005

Each row: answers that were compared, those that differ, the largest difference of a logprob, the slowest answer. In a
program the prompts are also kept on disk, and asked once more after the model was loaded again. Exits with 1 when an
answer differs, is late by more than ``--late`` seconds, or does not come at all. Each token of an answer may wait half
a second for a chunk of a prompt, so on a busy machine 24 tokens are later than that.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from leap_core import ChatMessage, GenerationOptions, Leap, ModelLoadingOptions, ModelRunner
from leap_core.conversation.options import CacheOptions
from leap_core.conversation.responses import Complete
from leap_core.inference.engine.request import Request
from tests.support.random_models import (
    MEMORY_KINDS,
    write_random_model,
)

CLIENTS = 3
LEAST_ANSWERS = 40
TOKENS = 24
HANG_SECONDS = 60.0
Answer = list[float]
"""The logprobs of an answer's tokens, which a wrong state changes before it changes the text."""
Ask = Callable[[str, int], Answer]
Leave = Callable[[str, float], None]


def text(length: int, seed: int) -> str:
    """Random words, half of them after one beginning of 120 characters."""
    begun = text(120, 1_000_001) if length > 120 and seed % 2 else ""
    rng = random.Random(seed)
    letters = (rng.choice("abcdefghijklmnopqrstuvwxyz    ") for _ in range(length - len(begun)))
    return begun + "".join(letters)


QUESTIONS = [(text(length, seed), seed) for seed, length in enumerate((4, 8, 12, 20, 30, 60, 130, 260, 700, 131))]


def options(seed: int) -> GenerationOptions:
    return GenerationOptions(temperature=1.0, rng_seed=seed, max_tokens=TOKENS, logprobs=True)


def ask(runner: ModelRunner, question: str, seed: int) -> Answer:
    """The answer of a runner."""
    for response in runner.start([ChatMessage("user", question)], options=options(seed)):
        if isinstance(response, Complete):
            return [score.logprob for score in response.logprobs]
    raise AssertionError("the answer has no end")


def fresh(path: Path) -> list[Answer]:
    """Each question's answer from a model of its own."""
    answers = []
    for question, seed in QUESTIONS:
        with Leap.load(path, ModelLoadingOptions(slots=1, cpu_threads=1)) as runner:
            answers.append(ask(runner, question, seed))
    return answers


@contextmanager
def program(path: Path, slots: int, cache: Path) -> Iterator[tuple[Ask, Leave]]:
    """The model loaded into this process."""
    settings = ModelLoadingOptions(slots=slots, cpu_threads=1, cache_options=CacheOptions.on_disk(cache))
    with Leap.load(path, settings) as runner:

        def leave(prompt: str, seconds: float) -> None:
            generation = runner.start([ChatMessage("user", prompt)], options=options(0))
            time.sleep(seconds)
            generation.stop()
            generation.close()

        yield lambda question, seed: ask(runner, question, seed), leave


@contextmanager
def served(path: Path, slots: int, _: Path) -> Iterator[tuple[Ask, Leave]]:
    """The model behind ``leap serve``."""
    command = [sys.executable, "-m", "leap_cli", "serve", str(path), "--port", "0", "--slots", str(slots)]
    with tempfile.TemporaryDirectory(prefix="leap-departures-") as home:
        environment = {**os.environ, "LEAP_HOME": home}
        process = subprocess.Popen(
            [*command, "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().decode().strip().rpartition(":")[2].partition("/")[0])

            while True:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
                time.sleep(0.05)

            def begin(prompt: str, seed: int) -> http.client.HTTPConnection:
                body = {"messages": [{"role": "user", "content": prompt}], "stream": True}
                body |= {"temperature": 1.0, "seed": seed, "max_tokens": TOKENS, "logprobs": True}
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
                connection.request(
                    "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
                )
                return connection

            def served_answer(question: str, seed: int) -> Answer:
                connection = begin(question, seed)
                scores: Answer = []
                for line in connection.getresponse():
                    if line.startswith(b"data: {"):
                        for choice in json.loads(line[6:])["choices"]:
                            content = (choice.get("logprobs") or {}).get("content") or ()
                            scores += [score["logprob"] for score in content]
                connection.close()
                if not scores:
                    raise RuntimeError("the server gave no answer")
                return scores

            def leave(prompt: str, seconds: float) -> None:
                connection = begin(prompt, 0)
                time.sleep(seconds)
                connection.close()

            yield served_answer, leave
        finally:
            process.kill()
            process.communicate()


class Run:
    """One row of the table."""

    def __init__(self, expected: Sequence[Answer]) -> None:
        self._expected = expected
        self.compared = self.different = 0
        self.largest = self.slowest = 0.0
        self.failure = ""
        self.is_hung = False

    def compare(self, ask_one: Ask, n: int) -> None:
        """Ask a question and compare its answer."""
        question, seed = QUESTIONS[n]
        begun = time.monotonic()
        found = ask_one(question, seed)
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.compared += 1
        expected = self._expected[n]
        if found != expected:
            self.different += 1
            pairs = zip(found, expected, strict=False)
            self.largest = max(self.largest, max((abs(one - other) for one, other in pairs), default=0.0))

    def depart(self, leave: Leave, departures: int, seed: int) -> None:
        """Begin long prompts and leave, until there were so many departures and enough answers."""
        rng = random.Random(seed)
        for n in count():
            if n >= departures and self.compared >= min(LEAST_ANSWERS, departures):
                return
            seconds = rng.uniform(0, 0.2 if n % 2 else 0.03)
            leave(text(rng.randrange(300, 2500), 10_000 + n), seconds)

    def all(self, ask_one: Ask, leave: Leave, departures: int) -> None:
        """Answer in several threads while another one leaves."""
        ended = threading.Event()

        def answer(client: int) -> None:
            rng = random.Random(client)
            try:
                while not ended.is_set():
                    self.compare(ask_one, rng.randrange(len(QUESTIONS)))
            except Exception as error:
                self.failure = self.failure or f"{type(error).__name__}: {error}"

        clients = [threading.Thread(target=answer, args=(n,), daemon=True) for n in range(CLIENTS)]
        leaving = threading.Thread(target=self.depart, args=(leave, departures, departures), daemon=True)
        for thread in (*clients, leaving):
            thread.start()
        compared, moved = 0, time.monotonic()
        while leaving.is_alive():
            leaving.join(1.0)
            if self.compared > compared:
                compared, moved = self.compared, time.monotonic()
            if time.monotonic() - moved > HANG_SECONDS:
                self.failure, self.is_hung = f"no answer for {HANG_SECONDS:.0f} s", True
                return
        ended.set()
        for thread in clients:
            thread.join(HANG_SECONDS)
            if thread.is_alive():
                self.failure, self.is_hung = f"a client has no answer for {HANG_SECONDS:.0f} s", True


def row(path: Path, expected: list[Answer], slots: int, through: str, departures: int, late: float) -> Run:
    """Run one combination."""
    run = Run(expected)
    usual = Run(expected)
    way = program if through == "program" else served
    with tempfile.TemporaryDirectory(prefix="leap-departures-") as cache:
        with way(path, slots, Path(cache)) as (ask_one, leave):
            for n in range(len(QUESTIONS)):
                usual.compare(ask_one, n)
            run.all(ask_one, leave, departures)
            if run.is_hung and through == "program":
                return run  # what hangs cannot be unloaded
        if through == "program":
            with way(path, slots, Path(cache)) as (ask_one, _):
                for n in range(len(QUESTIONS)):
                    run.compare(ask_one, n)
    if not run.failure and run.slowest > usual.slowest + late:
        run.failure = f"an answer took {run.slowest:.1f} s"
    return run


def slow_cancel(pause: float) -> None:
    """Let a moment pass between the two statements of ``Request.cancel``, in which a step may begin."""

    def cancel(self: Request) -> None:
        self.cancelled = True
        time.sleep(pause)
        self.wake(self)

    Request.cancel = cancel  # type: ignore[method-assign]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=MEMORY_KINDS, default=list(MEMORY_KINDS))
    parser.add_argument("--slots", nargs="+", type=int, default=[4, 8])
    parser.add_argument("--through", nargs="+", choices=("program", "http"), default=["program", "http"])
    parser.add_argument("--departures", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds within each cancel, in a program")
    parser.add_argument("--late", type=float, default=5.0, help="seconds")
    given = parser.parse_args()
    if given.pause:
        slow_cancel(given.pause)
    print(f"{'kind':18}{'slots':>6} {'through':8}{'answers':>9}{'differ':>8}{'by':>9}{'slowest':>9}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="leap-departures-") as directory:
        for kind in given.kinds:
            path = write_random_model(Path(directory) / f"{kind}.gguf", MEMORY_KINDS[kind], "q8_0")
            expected = fresh(path)
            for through in given.through:
                for slots in given.slots:
                    run = row(path, expected, slots, through, given.departures, given.late)
                    counts = f"{run.compared:9}{run.different:8}{run.largest:9.4f}{run.slowest:8.2f}s"
                    print(f"{kind:18}{slots:6} {through:8}{counts}  {run.failure}".rstrip(), flush=True)
                    failed = failed or bool(run.different or run.failure)
                    if run.is_hung and through == "program":
                        sys.stdout.flush()
                        os._exit(1)  # its threads wait for ever
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
