"""The worker's side of the processes that run llama.cpp: one for each model in use, one for each batch."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from leap_core.errors import LeapError
from leap_core.system.addresses import without_secrets_of
from leap_core.system.dataclass import dataclass
from leap_core.system.processes import child_environment, module_command

from ..configuration import JobsConfiguration
from ..table.job import BATCH, MALFORMED, Job
from ..table.requests import JobRequest
from ..worker_log import log, log_traceback

KEEP_SECONDS = 60.0
"""How long a process stays whose model is not asked for."""
ONE_MODEL = ("model", "embeds", "loading", "variables", "host")
"""Parameters of a job: those in which they are equal share a process, as long as the file is the same."""
STOP_SECONDS = 5.0
"""How long a process may take to stop a cancelled job."""
SILENT_SECONDS = 30.0
"""A process gives a sign of life each second. One that was silent for so long hangs, and is killed."""
END_SECONDS = 5.0
"""How long a process that was let go may take to end."""


AnswerCall = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a call; raises nothing."""


@dataclass(frozen=True)
class ProcessEnd:
    """Why an attempt got no answer: its process ended with ``code``, because it was silent for long (``hung``) or by
    itself; or it continues with its other attempts, and did not stop this one in time (``abandoned``)."""

    code: int = 0
    hung: bool = False
    abandoned: bool = False


class ModelProcess:
    """A running ``jobs.worker.model_process``, in this directory. Its attempts end with the process.
    ``answer_call`` does what it asks for of a table on a server; without it the process opens the table itself."""

    def __init__(self, owner: str, directory: Path, answer_call: AnswerCall | None = None) -> None:
        self._answer_call = answer_call
        self._writing = threading.Lock()
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
        self.hung = False
        self.has_abandoned = False
        self.last_used = self.last_sign = time.monotonic()
        self._reader = threading.Thread(target=self._read, name="leap-process", daemon=True)
        self._reader.start()

    def run(self, job: Job, is_hopeless: Callable[[], bool]) -> ProcessEnd | None:
        """Have it work on an attempt: None when it said that the attempt has ended. ``is_hopeless`` is asked each
        second whether to wait no longer."""
        id, attempt = job.id, job.attempt
        model, remote = job.parameters.get("model"), self._answer_call is not None
        request = {"id": id, "attempt": attempt, "model": model, "remote": remote}
        done = threading.Event()
        with self._guard:
            if self._ended:
                return ProcessEnd(self.code, self.hung)
            self._waiting[id, attempt] = done
        self.send(request)
        while not done.wait(1.0) and not self._ended:
            if is_hopeless():
                if self.users <= 1:
                    self.kill()
                    continue
                self.has_abandoned = True  # its neighbours go on
                with self._guard:
                    self._waiting.pop((id, attempt), None)
                return ProcessEnd(abandoned=True)
        with self._guard:
            answered = self._waiting.pop((id, attempt), None) is not None
        return None if answered else ProcessEnd(self.code, self.hung)

    def send(self, message: Mapping[str, object]) -> None:
        """Write a line to its standard input."""
        line = json.dumps(message).encode() + b"\n"
        with suppress(OSError, ValueError), self._writing:  # a broken pipe: the reader sees the end as well
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def let_go(self) -> None:
        """Close its standard input: it ends by itself."""
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def close(self, seconds: float = END_SECONDS) -> None:
        """Let it go, and kill it when it has not ended after so long."""
        self.let_go()
        self._reader.join(seconds)
        if not self._ended:
            self.kill()
            self._reader.join(seconds)

    @property
    def is_alive(self) -> bool:
        return not self._ended

    def _reply(self, call: Mapping[str, Any]) -> None:
        assert self._answer_call is not None
        self.send(self._answer_call(call))

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):
            for line in self._process.stdout:
                self.last_sign = time.monotonic()
                answer = json.loads(line)
                if "call" in answer:
                    threading.Thread(target=self._reply, args=(answer,), name="leap-calls", daemon=True).start()
                elif "id" in answer:
                    with self._guard:
                        event = self._waiting.get((answer["id"], answer["attempt"]))
                    if event is not None:
                        event.set()
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
    """All of them. Attempts of one model share a process; those of a batch's file have their own."""

    def __init__(self, owner: str, directory: Path, answer_call: AnswerCall | None = None) -> None:
        self._owner, self._directory, self._answer_call = owner, directory, answer_call
        self._guard = threading.Lock()
        self._shared: dict[str, ModelProcess] = {}
        self._own: set[ModelProcess] = set()
        self._leaving: dict[ModelProcess, float] = {}
        self._looked = time.monotonic()

    def run(self, job: Job, is_cancelled: Callable[[], bool]) -> ProcessEnd | None:
        """Work on the attempt until it has ended; otherwise why it did not."""
        key = None if job.kind == BATCH else self._key(job)
        process = self._take(key)
        cancelled_at: float | None = None

        def is_hopeless() -> bool:
            nonlocal cancelled_at
            if cancelled_at is None and is_cancelled():
                cancelled_at = time.monotonic()
            return cancelled_at is not None and time.monotonic() - cancelled_at > STOP_SECONDS

        try:
            return process.run(job, is_hopeless)
        finally:
            self._give_back(process, key)

    def look_after(self) -> None:
        """Let go of models that no job has asked for lately, and kill processes that hang. Called each second or so."""
        now = time.monotonic()
        with self._guard:
            if now - self._looked > SILENT_SECONDS / 3:  # this process itself was stopped: their signs are unread
                for process in (*self._shared.values(), *self._own):
                    process.last_sign = now
            self._looked = now
            for process in (*self._shared.values(), *self._own):
                if process.is_alive and now - process.last_sign > SILENT_SECONDS:
                    process.hung = True
                    process.kill()
            for key, process in list(self._shared.items()):
                if not process.is_alive or (not process.users and now - process.last_used > KEEP_SECONDS):
                    self._dismiss(self._shared.pop(key))
            for process, since in list(self._leaving.items()):
                if not process.is_alive:
                    del self._leaving[process]
                elif now - since > END_SECONDS:
                    process.kill()

    def announce(self, message: str) -> None:
        """Let all of them hear what the server has announced."""
        with self._guard:
            processes = [*self._shared.values(), *self._own]
        for process in processes:
            process.send({"notice": message})

    def kill(self) -> None:
        """End all of them, and what they are doing."""
        with self._guard:
            processes = [*self._shared.values(), *self._own, *self._leaving]
            self._shared = {}
        for process in processes:
            process.kill()
        for process in processes:
            process.close()

    def _key(self, job: Job) -> str:
        same = [job.parameters.get(name) for name in ONE_MODEL]
        return json.dumps([job.kind, _file_identity(job.parameters), *same], sort_keys=True)

    def _take(self, key: str | None) -> ModelProcess:
        with self._guard:
            process = None if key is None else self._shared.get(key)
            if process is not None and (not process.is_alive or process.has_abandoned):
                process = None
            if process is None:
                for other, idle in list(self._shared.items()):
                    if other == key or not idle.users:  # a model that is not in use makes room
                        self._dismiss(self._shared.pop(other))
                process = ModelProcess(self._owner, self._directory, self._answer_call)
            if key is None:
                self._own.add(process)
            else:
                self._shared[key] = process
            process.users += 1
            return process

    def _give_back(self, process: ModelProcess, key: str | None) -> None:
        with self._guard:
            process.users -= 1
            process.last_used = time.monotonic()
            replaced = key is not None and self._shared.get(key) is not process
            if process.users or not (key is None or process.has_abandoned or replaced):
                return
            self._own.discard(process)
            if key is not None and not replaced:
                del self._shared[key]
            self._dismiss(process)

    def _dismiss(self, process: ModelProcess) -> None:
        """Have it end, at once when one of its attempts does not stop."""
        if process.users:  # the last of its attempts lets it go
            self._own.add(process)
            return
        if process.has_abandoned:
            process.kill()
        process.let_go()
        self._leaving[process] = time.monotonic()


def _file_identity(parameters: dict[str, object]) -> object:
    """What distinguishes the model's file from another one of the same name; None where it is not there."""
    from leap_core.models.resolving import resolve_local

    try:
        variables = JobRequest.of(parameters).environment()
        status = resolve_local(str(parameters.get("model")), variables=variables).path.stat()
    except (LeapError, OSError, *MALFORMED):  # the attempt says so
        return None
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]


AGAIN_SECONDS = 600.0
"""How long a model is left alone that could not be fetched."""


class ModelFetching:
    """Fetches one model at a time, in a thread. ``fetched`` is called there after each."""

    def __init__(self, fetched: Callable[[], object]) -> None:
        self._fetched = fetched
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._not_before: dict[str, float] = {}

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, lacking: Sequence[tuple[str, str]]) -> None:
        """Fetch the first of these models, (SHA-256, origin), unless one is being fetched."""
        now = time.monotonic()
        due = [each for each in lacking if self._not_before.get(each[0], now) <= now]
        if due and not self.is_busy and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, args=due[0], name="leap-fetch-model", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Give up; what has arrived stays, and a later download resumes there."""
        self._stop.set()

    def _run(self, digest: str, origin: str) -> None:
        from leap_core.models.download.downloading import fetch_by_digest
        from leap_core.models.http import DownloadStopped

        self._not_before[digest] = time.monotonic() + AGAIN_SECONDS
        try:
            fetch_by_digest(digest, origin, os.environ, stop=self._stop, on_begin=_log_beginning)
            del self._not_before[digest]
        except DownloadStopped:
            return
        except (LeapError, ValueError, OSError) as error:
            reason = without_secrets_of(origin, str(error))
            log(f"the model {digest[:12]}, which jobs wait for, is not fetched: {reason}")
        except Exception:
            log_traceback()
        self._fetched()


def _log_beginning(name: str) -> None:
    log(f"fetching {name}, which jobs wait for")


class ModelsAtHand:
    """``names``: the models by SHA-256, as references of this machine. ``origins``: where they came from."""

    def __init__(self, configuration: JobsConfiguration) -> None:
        from leap_core.models.digests import ModelDigests  # here, because few workers share a server

        self._digests = ModelDigests(configuration.directories)
        self.names: dict[str, str] = {}
        self.origins: dict[str, str] = {}

    @property
    def digests(self) -> frozenset[str]:
        return frozenset(self.names)

    def look(self) -> bool:
        """Look again what is installed. True when something has changed."""
        names, origins = self._digests.installed(), self._digests.origins()
        changed = (names, origins) != (self.names, self.origins)
        self.names, self.origins = names, origins
        return changed

    def reference_of(self, digest: str) -> str | None:
        """What the model of this SHA-256 is called here."""
        return self.names.get(digest)
