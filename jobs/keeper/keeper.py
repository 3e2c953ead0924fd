"""Seeing to it that a worker runs, telling which, and ending it: from outside, by its lock and its state file."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from leap_core.errors import LeapUnavailableError

from ..configuration import Places
from ..table.job import JsonObject
from .starting import is_running, start_worker

HEAL_SECONDS = 1.0
"""Between two looks whether a worker runs."""
START_SECONDS = 20.0
"""How long a worker may take to come up before nobody believes in it any more."""
STOP_SECONDS = 15.0
LOOK_SECONDS = 0.02


class WorkerKeeper:
    """Looks after the worker of these places; ``variables`` are the environment that a new one gets."""

    def __init__(self, places: Places, variables: Mapping[str, str]) -> None:
        self._places, self._variables = places, variables
        self._looked = float("-inf")
        self._lacking_since: float | None = None

    def describe(self) -> JsonObject:
        """Whether a worker runs, and which."""
        running = is_running(self._places)
        state: JsonObject = {}
        with suppress(OSError, ValueError):
            state = json.loads(self._places.worker_state.read_text(encoding="utf-8")) if running else {}
        started = state.get("started")
        return {"running": running, "pid": state.get("pid"), "started": started, "log": str(self._places.worker_log)}

    def start(self) -> JsonObject:
        """See to it that a worker runs, and wait until it does. Raises LeapUnavailableError."""
        deadline = time.monotonic() + START_SECONDS
        if not is_running(self._places):
            start_worker(self._places, self._variables)
        while not (found := self.describe())["pid"]:
            if time.monotonic() > deadline:
                raise self._none()
            time.sleep(LOOK_SECONDS)
        return found

    def stop(self) -> bool:
        """End the worker and wait until it has ended. False when none runs. Raises LeapUnavailableError."""
        found = self.describe()
        if not found["running"]:
            return False
        deadline = time.monotonic() + STOP_SECONDS
        while is_running(self._places):
            if found["pid"]:
                with suppress(ProcessLookupError):
                    os.kill(found["pid"], signal.SIGTERM)
            if time.monotonic() > deadline:
                raise LeapUnavailableError("the worker does not end", hint=f"see {self._places.worker_log}")
            time.sleep(LOOK_SECONDS)
            found = self.describe()
        return True

    def see_to_it(self) -> None:
        """Start a worker where none runs; cheap when called often. Raises LeapUnavailableError when none comes up."""
        now = time.monotonic()
        if now - self._looked < HEAL_SECONDS:
            return
        self._looked = now
        if is_running(self._places):
            self._lacking_since = None
            return
        if self._lacking_since is None:
            self._lacking_since = now
        elif now - self._lacking_since > START_SECONDS:
            raise self._none()
        start_worker(self._places, self._variables)

    def _none(self) -> LeapUnavailableError:
        return LeapUnavailableError("the worker does not start", hint=f"see {self._places.worker_log}")
