"""One attempt of a job, as the code that works on it sees it: a place for output, and a flag that says stop.

An attempt learns within a few hundredths of a second that its job is to be cancelled, and that it is no longer the
one that may write. Its heart beats while it has nothing to say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..table.job import Job
from ..table.table import Claim, Fenced, Table
from .log import log

LOOK_SECONDS = 0.025
BEAT_SECONDS = 1.0
HOLD_SECONDS = 0.02
"""How long a piece of output may wait for the next one: a transaction for each token of a quick model would keep others
from writing."""


class Attempt:
    """What a task is given. ``stop`` is set when it has to end; then ``cancelled`` or ``lost`` says why."""

    def __init__(self, job: Job, owner: str, table: Table) -> None:
        self.job = job
        self.claim = Claim(job.id, job.attempt, owner)
        self.stop = threading.Event()
        self.cancelled = False
        self.lost = False
        self._table = table
        self._number = 0
        self._held: list[Mapping[str, Any]] = []
        self._held_progress: Mapping[str, Any] | None = None
        self._written = float("-inf")
        self._guard = threading.Lock()
        self._on_stop: Callable[[], object] | None = None

    def emit(self, event: Mapping[str, Any], progress: Mapping[str, Any] | None = None) -> None:
        """Append to the job's output, and perhaps say how far it is; on the disk a moment later. Raises Fenced."""
        self._hold([event], progress)

    def note(self, message: str) -> None:
        """A line for people in the job's output."""
        self.emit({"type": "notice", "message": message})

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Say how far the job is; ``done`` of ``total`` is what is shown as a part of the whole. Raises Fenced."""
        self._hold([], progress)

    def flush(self) -> None:
        """Write down what is held back. Raises Fenced."""
        if self._held or self._held_progress is not None:
            self._write()

    def beat(self) -> None:
        """Say that somebody is still at work."""
        with suppress(Fenced):
            self._write()

    def when_stopped(self, action: Callable[[], object]) -> None:
        """Call this once the attempt has to end; at once if it has to already."""
        with self._guard:
            self._on_stop = action
            due = self.stop.is_set()
        if due:
            action()

    def end(self, *, cancelled: bool = False, lost: bool = False) -> None:
        """Tell whoever works on this to stop. Harmless when repeated."""
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
            due = time.monotonic() - self._written >= HOLD_SECONDS
        if due:
            self._write()

    def _write(self) -> None:
        try:
            with self._guard:
                cancel = self._table.write(self.claim, self._number, self._held, self._held_progress)
                self._number += len(self._held)
                self._held, self._held_progress = [], None
                self._written = time.monotonic()
        except Fenced:
            self.end(lost=True)
            raise
        if cancel and not self.stop.is_set():
            self.end(cancelled=True)


class Attempts:
    """The attempts of this process, and the thread that watches over them."""

    def __init__(self, table: Table, owner: str) -> None:
        self.owner = owner
        self._table = table
        self._active: dict[tuple[str, int], Attempt] = {}
        self._guard = threading.Lock()
        self._some = threading.Event()
        threading.Thread(target=self._watch, name="leap-jobs-watch", daemon=True).start()

    def begin(self, job: Job) -> Attempt:
        attempt = Attempt(job, self.owner, self._table)
        with self._guard:
            self._active[job.id, job.attempt] = attempt
        self._some.set()
        return attempt

    def over(self, attempt: Attempt) -> None:
        with self._guard:
            self._active.pop((attempt.job.id, attempt.job.attempt), None)

    def active(self) -> set[tuple[str, int]]:
        """(id, attempt) of all that run."""
        with self._guard:
            return set(self._active)

    def end_all(self) -> None:
        """The process is to end: stop everything, neither cancelled nor lost."""
        for attempt in self._all():
            attempt.end()

    def _all(self) -> list[Attempt]:
        with self._guard:
            return list(self._active.values())

    def _watch(self) -> None:
        beaten = time.monotonic()
        while True:
            self._some.wait()
            time.sleep(LOOK_SECONDS)
            running = self._all()
            if not running:
                self._some.clear()
                if self.active():
                    self._some.set()
                continue
            try:
                for attempt in running:
                    with suppress(Fenced):
                        attempt.flush()
                unwanted = self._table.wanted_to_stop(self.owner)
                for attempt in running:
                    if (attempt.job.id, attempt.job.attempt) in unwanted and not attempt.stop.is_set():
                        attempt.end(cancelled=True)
                if time.monotonic() - beaten >= BEAT_SECONDS:
                    beaten = time.monotonic()
                    for attempt in running:
                        attempt.beat()
            except Exception as error:  # a busy or full disk: look again
                log(f"watching jobs: {error}")
                time.sleep(0.5)
