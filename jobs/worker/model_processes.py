"""The worker's side of the processes that run llama.cpp: one for each model in use, one for each batch."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from leap_core.background.child_environment import child_environment
from leap_core.background.detached import module_command

from ..table.job import BATCH, Job

KEEP_SECONDS = 60.0
"""How long a process whose model nobody asks for stays."""
ONE_MODEL = ("model", "loading", "variables", "host")
"""Parameters of a generation: those in which they are equal share a process."""
HANGS_SECONDS = 5.0
"""How long a process may take to stop a cancelled job before it is killed."""


class ModelProcess:
    """A running ``jobs.worker.model_process``, in this directory. Its attempts end with the process."""

    def __init__(self, owner: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            module_command("jobs.worker.model_process", owner),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=directory,
            env=child_environment(),
        )
        self._waiting: dict[tuple[str, int], threading.Event] = {}
        self._guard = threading.Lock()
        self._ended = False
        self.code = 0
        self.users = 0
        self.last_used = time.monotonic()
        self._reader = threading.Thread(target=self._read, name="leap-process", daemon=True)
        self._reader.start()

    def run(self, id: str, attempt: int, is_hopeless: Callable[[], bool]) -> bool:
        """Have it work on an attempt; False when it died meanwhile (``code`` says how). ``is_hopeless`` is asked now
        and then whether to kill it."""
        done = threading.Event()
        with self._guard:
            if self._ended:
                return False
            self._waiting[id, attempt] = done
        with suppress(OSError):  # a broken pipe: the reader sees the end as well
            assert self._process.stdin is not None
            with self._guard:
                self._process.stdin.write(json.dumps({"id": id, "attempt": attempt}).encode() + b"\n")
                self._process.stdin.flush()
        while not done.wait(1.0):
            if is_hopeless():
                self.kill()
        return self._waiting.pop((id, attempt), None) is not None

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def close(self) -> None:
        """Let it go: it ends by itself."""
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._reader.join()

    @property
    def is_alive(self) -> bool:
        return not self._ended

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):
            for line in self._process.stdout:
                said = json.loads(line)
                self._waiting[said["id"], said["attempt"]].set()
        self._process.stdout.close()
        code = self._process.wait()
        with self._guard:
            self._ended, self.code = True, code
            lost = {key: event for key, event in self._waiting.items() if not event.is_set()}
            for key, event in lost.items():
                del self._waiting[key]
                event.set()
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()


class Processes:
    """All of them. Attempts of one model share a process; those of batches have their own."""

    def __init__(self, owner: str, directory: Path) -> None:
        self._owner, self._directory = owner, directory
        self._guard = threading.Lock()
        self._shared: dict[str, ModelProcess] = {}
        self._own: set[ModelProcess] = set()

    def run(self, job: Job, is_cancelled: Callable[[], bool]) -> int | None:
        """Work on the attempt until it has ended: None, or the code of the process if that ended first."""
        process = self._take(job)
        asked: float | None = None

        def is_hopeless() -> bool:
            nonlocal asked
            if asked is None and is_cancelled():
                asked = time.monotonic()
            return asked is not None and time.monotonic() - asked > HANGS_SECONDS

        try:
            return None if process.run(job.id, job.attempt, is_hopeless) else process.code
        finally:
            self._give_back(process, job)

    def close_idle(self) -> None:
        """Let go of models that nobody has asked for lately."""
        now = time.monotonic()
        with self._guard:
            idle = [
                key
                for key, process in self._shared.items()
                if not process.is_alive or (not process.users and now - process.last_used > KEEP_SECONDS)
            ]
            gone = [self._shared.pop(key) for key in idle]
        for process in gone:
            process.close()

    def kill(self) -> None:
        """End all of them, and what they are doing."""
        with self._guard:
            gone = [*self._shared.values(), *self._own]
            self._shared = {}
        for process in gone:
            process.kill()
        for process in gone:
            process.close()

    def _take(self, job: Job) -> ModelProcess:
        if job.kind == BATCH:
            process = ModelProcess(self._owner, self._directory)
            with self._guard:
                self._own.add(process)
            return process
        key = json.dumps([job.parameters.get(name) for name in ONE_MODEL], sort_keys=True)
        with self._guard:
            found = self._shared.get(key)
            if found is not None and not found.is_alive:
                found = None
            surplus = [] if found else [k for k, other in self._shared.items() if k != key and not other.users]
            gone = [self._shared.pop(k) for k in surplus]
            process = found or ModelProcess(self._owner, self._directory)
            self._shared[key] = process
            process.users += 1
        for other in gone:
            other.close()
        return process

    def _give_back(self, process: ModelProcess, job: Job) -> None:
        if job.kind == BATCH:
            process.close()
            with self._guard:
                self._own.discard(process)
            return
        with self._guard:
            process.users -= 1
            process.last_used = time.monotonic()
