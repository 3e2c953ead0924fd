"""Starting, finding and stopping the worker of one data directory, by its lock and its state file.

A worker writes its state file again each second. One that holds the lock and has not done so for long hangs: it is
killed, and the next one takes its jobs over.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from leap_core.errors import LeapUnavailableError
from leap_core.schemas.json_values import JsonObject
from leap_core.system.directories import private_directory
from leap_core.system.locks import is_locked
from leap_core.system.processes import kill_group, open_log, start_detached, start_time

from .configuration import JobsConfiguration


def is_running(configuration: JobsConfiguration) -> bool:
    """Whether a worker holds the lock of this data directory."""
    return is_locked(configuration.worker_lock, shared=True)


FOR_JOBS = "for-jobs"
"""Second argument of a worker that ends at once where no job is left: another one was up before it."""


def start_worker(
    configuration: JobsConfiguration, variables: Mapping[str, str] | None = None, *, for_jobs: bool = False
) -> None:
    """Start a worker with the environment ``variables``. When one runs already, the new one ends by itself.
    ``for_jobs``: also when it comes up and no job is left."""
    arguments = (configuration.name, *((FOR_JOBS,) if for_jobs else ()))
    with open_log(configuration.worker_log) as log:
        directory = private_directory(configuration.directories.data)
        start_detached("jobs.worker", *arguments, log=log, directory=directory, variables=variables)


LOOK_AGAIN_SECONDS = 1.0
"""The keeper looks this often whether a worker runs."""
START_SECONDS = 20.0
"""How long a worker may take to come up before starting it counts as failed."""
STOP_SECONDS = 10.0
"""How long a worker may take to end before it is killed."""
KILL_SECONDS = 5.0
HANG_SECONDS = 60.0
"""How long a worker may show no sign of life; longer than it may have to wait for a busy database."""
POLL_SECONDS = 0.02


class WorkerKeeper:
    """Looks after the worker of one data directory; ``variables`` are the environment that a new one gets."""

    def __init__(self, configuration: JobsConfiguration, variables: Mapping[str, str]) -> None:
        self._configuration, self._variables = configuration, variables
        self._last_look = float("-inf")
        self._absent_since: float | None = None
        self._sign: float | None = None
        self._sign_since = float("-inf")

    def describe(self) -> JsonObject:
        """Whether a worker runs; its pid and start, None while it comes up; and the path of its log."""
        running = is_running(self._configuration)
        return self._described(running, self._state_of_living() if running else {})

    def _described(self, running: bool, state: JsonObject) -> JsonObject:
        log = str(self._configuration.worker_log)
        return {"running": running, "pid": state.get("pid"), "started": state.get("started"), "log": log}

    def start(self) -> JsonObject:
        """Start a worker where none runs, or one hangs, and wait until it is up. Raises LeapUnavailableError."""
        if is_running(self._configuration) and self._silent_seconds() > HANG_SECONDS:
            time.sleep(LOOK_AGAIN_SECONDS * 2)  # this machine may have slept: a worker that lives says so soon
            if self._silent_seconds() > HANG_SECONDS:
                self._kill()
        deadline = time.monotonic() + START_SECONDS
        if not is_running(self._configuration):
            start_worker(self._configuration, self._variables)
        while True:
            running = is_running(self._configuration)
            state = self._state_of_living()
            if running and state.get("pid"):
                return self._described(running, state)
            if time.monotonic() > deadline:
                raise self._not_started_error()
            time.sleep(POLL_SECONDS)

    def stop(self) -> bool:
        """End the worker and wait until it has ended; one that does not end in time is killed. False when none runs.
        Raises LeapUnavailableError."""
        if not is_running(self._configuration):
            return False
        deadline = time.monotonic() + STOP_SECONDS
        while is_running(self._configuration):
            if time.monotonic() > deadline:
                self._kill()
                break
            with suppress(ProcessLookupError, PermissionError):  # Windows says so of one that is ending
                if pid := self._state_of_living().get("pid"):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(POLL_SECONDS)
        return True

    def ensure_running(self) -> None:
        """Start a worker where none runs; cheap when called often. A worker that shows no sign of life while this is
        called again and again is killed and replaced. Raises LeapUnavailableError when none comes up."""
        now = time.monotonic()
        if now - self._last_look < LOOK_AGAIN_SECONDS:
            return
        self._last_look = now
        if is_running(self._configuration):
            self._absent_since = None
            sign = self._last_sign()
            if sign is None or sign != self._sign:
                self._sign, self._sign_since = sign, now
            elif now - self._sign_since > HANG_SECONDS:
                self._sign = None
                if self._state_of_living():  # else the next worker comes up, and has not written it
                    self._kill()
            return
        if self._absent_since is None:
            self._absent_since = now
        elif now - self._absent_since > START_SECONDS:
            raise self._not_started_error()
        start_worker(self._configuration, self._variables, for_jobs=True)

    def _state(self) -> JsonObject:
        with suppress(OSError, ValueError):
            state = json.loads(self._configuration.worker_state.read_text(encoding="utf-8"))
            return state if isinstance(state, dict) else {}
        return {}

    def _last_sign(self) -> float | None:
        """When the worker wrote its state."""
        with suppress(OSError):
            return self._configuration.worker_state.stat().st_mtime
        return None

    def _state_of_living(self) -> JsonObject:
        """The state that a worker wrote which still lives; empty for that of one that was killed."""
        state = self._state()
        pid, identity = state.get("pid"), state.get("process")
        return state if isinstance(pid, int) and start_time(pid) == identity else {}

    def _silent_seconds(self) -> float:
        sign = self._last_sign()
        return 0.0 if sign is None else time.time() - sign

    def _kill(self) -> None:
        """Kill the worker, and the processes that it has started. Raises LeapUnavailableError when it stays."""
        if pid := self._state_of_living().get("pid"):
            kill_group(pid)
        deadline = time.monotonic() + KILL_SECONDS
        while is_running(self._configuration):
            if time.monotonic() > deadline:
                raise LeapUnavailableError(
                    "the worker does not end", hint=f"its log is {self._configuration.worker_log}"
                )
            time.sleep(POLL_SECONDS)

    def _not_started_error(self) -> LeapUnavailableError:
        return LeapUnavailableError("the worker does not start", hint=f"its log is {self._configuration.worker_log}")
