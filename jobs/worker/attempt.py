"""One attempt of a job, as the code that works on it sees it: a place for output, and a flag that says stop.

An attempt learns soon that its job is to be cancelled, and that it may no longer write. It renews its lease while it
has nothing to put out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from leap_core.schemas.json_values import JsonObject

from ..table.job import Claim, ClaimLostError, Job
from ..table.requests import request_of
from ..table.table import Table
from ..worker_log import log

BEAT_SECONDS = 1.0
"""A lease in a file is renewed this often; on a server every fifth of the lease."""
CANCEL_SECONDS = 1.0
"""The worker looks this often for cancelled jobs on a server that has reported none."""


class Attempt:
    """What a task is given. ``stop`` is set when it has to end; then ``cancelled`` or ``lost`` says why. ``result``:
    what it has made by then, which the job keeps when the rest fails."""

    def __init__(self, job: Job, owner: str, table: Table, lease_seconds: float = 60.0) -> None:
        self.job = job
        self._lease_seconds = lease_seconds
        self.claim = Claim(job.id, job.attempt, owner)
        self.stop = threading.Event()
        self.cancelled = False
        self.lost = False
        self.result: JsonObject | None = None
        self._table = table
        self._number = 0
        self._held: list[Mapping[str, Any]] = []
        self._held_progress: Mapping[str, Any] | None = None
        self._written = float("-inf")
        self._guard = threading.Lock()
        self._on_stop: Callable[[], object] | None = None

    @property
    def asked(self) -> Any:
        """What the job is asked for, see ``request_of``."""
        return request_of(self.job)

    def emit(self, event: Mapping[str, Any], progress: Mapping[str, Any] | None = None) -> None:
        """Append to the job's output, and perhaps say how far it is; on the disk a moment later. Raises
        ClaimLostError."""
        self._hold([event], progress)

    def note(self, message: str) -> None:
        """A line for people in the job's output."""
        self.emit({"type": "notice", "message": message})

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Say how far the job is; ``done`` of ``total`` is what is shown as a part of the whole. Raises
        ClaimLostError."""
        self._hold([], progress)

    def flush(self) -> None:
        """Write down what is held back. Raises ClaimLostError."""
        if self._held or self._held_progress is not None:
            self._write()

    def beat(self) -> None:
        """Renew the lease."""
        with suppress(ClaimLostError):
            self._write()

    def when_stopped(self, action: Callable[[], object]) -> None:
        """Call this once the attempt has to end; at once if it has to already."""
        with self._guard:
            self._on_stop = action
            due = self.stop.is_set()
        if due:
            action()

    def end(self, *, cancelled: bool = False, lost: bool = False) -> None:
        """Have the code that works on this stop. Harmless when repeated."""
        with self._guard:
            self.cancelled |= cancelled
            self.lost |= lost
            first = not self.stop.is_set()
            self.stop.set()
            action = self._on_stop
        if first and action is not None:
            action()

    def _hold(self, events: list[Mapping[str, Any]], progress: Mapping[str, Any] | None) -> None:
        with self._guard:
            self._held += events
            self._held_progress = progress or self._held_progress
            due = time.monotonic() - self._written >= self._table.database.hold_seconds
        if due:
            self._write()

    def _write(self) -> None:
        try:
            with self._guard:
                cancel = self._table.write(
                    self.claim, self._number, self._held, self._held_progress, lease_seconds=self._lease_seconds
                )
                self._number += len(self._held)
                self._held, self._held_progress = [], None
                self._written = time.monotonic()
        except ClaimLostError:
            self.end(lost=True)
            raise
        if cancel and not self.stop.is_set():
            self.end(cancelled=True)


class Attempts:
    """The attempts of this process, and the thread that watches over them."""

    def __init__(self, table: Table, owner: str, lease_seconds: float = 60.0) -> None:
        self.owner = owner
        self._table, self._lease_seconds = table, lease_seconds
        self._active: dict[tuple[str, int], Attempt] = {}
        self._guard = threading.Lock()
        self._some = threading.Event()
        shared = table.database.is_shared
        self._beat_seconds = lease_seconds / 5 if shared else BEAT_SECONDS
        self._cancel_seconds = CANCEL_SECONDS if shared else 0.0
        threading.Thread(target=self._watch, name="leap-jobs-watch", daemon=True).start()

    def begin(self, job: Job) -> Attempt:
        """Watch over a new attempt of this job."""
        attempt = Attempt(job, self.owner, self._table, self._lease_seconds)
        with self._guard:
            self._active[job.id, job.attempt] = attempt
        self._some.set()
        return attempt

    def over(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        with self._guard:
            self._active.pop((attempt.job.id, attempt.job.attempt), None)

    def end_all(self) -> None:
        """The process is to end: stop everything, neither cancelled nor lost."""
        for attempt in self._all():
            attempt.end()

    def _all(self) -> list[Attempt]:
        with self._guard:
            return list(self._active.values())

    def _watch(self) -> None:
        beaten = looked = time.monotonic()
        changes = None
        while True:
            self._some.wait()
            try:
                changes = changes or self._table.database.listen()
                messages = changes.wait(self._table.database.hold_seconds)
            except Exception as error:  # a server that is away
                log(f"watching jobs: {error}")
                time.sleep(0.5)
                continue
            running = self._all()
            if not running:
                with self._guard:
                    if not self._active:
                        self._some.clear()
                continue
            try:
                for attempt in running:
                    with suppress(ClaimLostError):
                        attempt.flush()
                now = time.monotonic()
                if "cancel" in messages or now - looked >= self._cancel_seconds:
                    looked = now
                    self._end_cancelled(running)
                if now - beaten >= self._beat_seconds:
                    beaten = now
                    for attempt in running:
                        attempt.beat()
            except Exception as error:  # a busy or full disk, a server that is away: look again
                log(f"watching jobs: {error}")
                time.sleep(0.5)

    def _end_cancelled(self, running: list[Attempt]) -> None:
        unwanted = self._table.wanted_to_stop(self.owner)
        for attempt in running:
            if (attempt.job.id, attempt.job.attempt) in unwanted and not attempt.stop.is_set():
                attempt.end(cancelled=True)
