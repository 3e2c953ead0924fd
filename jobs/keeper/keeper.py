"""Starts, finds and stops the worker of one data directory, by its lock and its state file."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from leap_core.errors import LeapUnavailableError

from ..configuration import JobsConfiguration
from ..table.job import JsonObject
from .starting import is_running, start_worker

LOOK_AGAIN_SECONDS = 1.0
"""Between two looks whether a worker runs."""
START_SECONDS = 20.0
"""How long a worker may take to come up before starting it counts as failed."""
STOP_SECONDS = 15.0
POLL_SECONDS = 0.02


class WorkerKeeper:
    """Looks after the worker of one data directory; ``variables`` are the environment that a new one gets."""

    def __init__(self, configuration: JobsConfiguration, variables: Mapping[str, str]) -> None:
        self._configuration, self._variables = configuration, variables
        self._last_look = float("-inf")
        self._absent_since: float | None = None

    def describe(self) -> JsonObject:
        """Whether a worker runs; its pid and start, None while it comes up; and the path of its log."""
        running = is_running(self._configuration)
        state: JsonObject = {}
        with suppress(OSError, ValueError):
            state = json.loads(self._configuration.worker_state.read_text(encoding="utf-8")) if running else {}
        log = str(self._configuration.worker_log)
        return {"running": running, "pid": state.get("pid"), "started": state.get("started"), "log": log}

    def start(self) -> JsonObject:
        """Start a worker where none runs, and wait until it is up. Raises LeapUnavailableError."""
        deadline = time.monotonic() + START_SECONDS
        if not is_running(self._configuration):
            start_worker(self._configuration, self._variables)
        while not (worker := self.describe())["pid"]:
            if time.monotonic() > deadline:
                raise self._not_started_error()
            time.sleep(POLL_SECONDS)
        return worker

    def stop(self) -> bool:
        """End the worker and wait until it has ended. False when none runs. Raises LeapUnavailableError."""
        worker = self.describe()
        if not worker["running"]:
            return False
        deadline = time.monotonic() + STOP_SECONDS
        while is_running(self._configuration):
            if worker["pid"]:
                with suppress(ProcessLookupError):
                    os.kill(worker["pid"], signal.SIGTERM)
            if time.monotonic() > deadline:
                raise LeapUnavailableError(
                    "the worker does not end", hint=f"its log is {self._configuration.worker_log}"
                )
            time.sleep(POLL_SECONDS)
            worker = self.describe()
        return True

    def ensure_running(self) -> None:
        """Start a worker where none runs; cheap when called often. Raises LeapUnavailableError when none comes up."""
        now = time.monotonic()
        if now - self._last_look < LOOK_AGAIN_SECONDS:
            return
        self._last_look = now
        if is_running(self._configuration):
            self._absent_since = None
            return
        if self._absent_since is None:
            self._absent_since = now
        elif now - self._absent_since > START_SECONDS:
            raise self._not_started_error()
        start_worker(self._configuration, self._variables)

    def _not_started_error(self) -> LeapUnavailableError:
        return LeapUnavailableError("the worker does not start", hint=f"its log is {self._configuration.worker_log}")
