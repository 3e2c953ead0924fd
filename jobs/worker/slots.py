"""The places in which jobs run at once: so many for each kind. A free place claims the next job from the table."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from ..table.job import Job
from .worker_log import log

AFTER_FAILURE_SECONDS = 1.0


class Slots:
    """``capacity`` says how many jobs of each kind run at once. ``claim`` begins the next job of a kind, or returns
    None; ``work`` runs it. ``repeat`` gets an attempt that runs here already: a server that crashed has
    lost its claim. All are called in threads of this object."""

    def __init__(
        self,
        capacity: Mapping[str, int],
        claim: Callable[[str], Job | None],
        work: Callable[[Job], object],
        repeat: Callable[[Job], object],
    ) -> None:
        self._capacity, self._claim, self._work, self._repeat = dict(capacity), claim, work, repeat
        self._guard = threading.Lock()
        self._used: Counter[str] = Counter()
        self._again: set[str] = set()
        self._busy: dict[tuple[str, int], threading.Thread] = {}
        self._closed = False

    def wake(self, kind: str) -> None:
        """There may be a job of this kind."""
        with self._guard:
            if self._closed or kind not in self._capacity:
                return
            if self._used[kind] >= self._capacity[kind]:
                self._again.add(kind)
                return
            self._used[kind] += 1
        threading.Thread(target=self._serve, args=(kind,), name=f"leap-{kind}", daemon=True).start()

    def has_room(self, kind: str) -> bool:
        """Whether another job of this kind could begin now."""
        with self._guard:
            return not self._closed and self._used[kind] < self._capacity.get(kind, 0)

    def busy(self) -> set[tuple[str, int]]:
        """(id, attempt) of what runs."""
        with self._guard:
            return set(self._busy)

    @property
    def is_idle(self) -> bool:
        with self._guard:
            return not +self._used

    def close(self) -> None:
        """Begin nothing any more."""
        with self._guard:
            self._closed = True

    def join(self, deadline: float) -> None:
        """Wait until nothing runs, at most until ``deadline`` by the monotonic clock."""
        while not self.is_idle and time.monotonic() < deadline:
            time.sleep(0.01)

    def _serve(self, kind: str) -> None:
        while True:
            try:
                job = self._claim(kind)
                if job is not None:
                    self._run(kind, job)
            except Exception as error:  # such as a full disk: the sweep looks again
                log(f"beginning a {kind} job: {type(error).__name__}: {error}")
                time.sleep(AFTER_FAILURE_SECONDS)
                job = None
            with self._guard:
                if (job is None and kind not in self._again) or self._closed:
                    self._used[kind] -= 1
                    return
                self._again.discard(kind)

    def _run(self, kind: str, job: Job) -> None:
        key = (job.id, job.attempt)
        with self._guard:
            runs = key in self._busy
            if not runs:
                self._busy[key] = threading.current_thread()
        if runs:
            self._repeat(job)
            return
        self.wake(kind)  # where one job waits, more may
        try:
            self._work(job)
        finally:
            with self._guard:
                del self._busy[key]
