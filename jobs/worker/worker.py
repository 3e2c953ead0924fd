"""The worker: ``python -m jobs.worker``. One for each data directory, alone by a lock that frees itself.

It takes what an earlier worker left, then listens to the queues. Downloads run in its threads, models in processes of
their own. It ends when there has been nothing to do for a while; the next one who submits a job starts another.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from huey.consumer import Consumer

from leap_core import __version__
from leap_core.errors import LeapUnavailableError
from leap_core.storage.locks import Busy, locked

from ..configuration import JobsConfiguration
from ..queue import Queues, message_id
from ..table.job import BATCH, DOWNLOAD, GENERATE, Job, State
from ..table.table import Claim, Ending, Fenced, Table
from .attempt import Attempts
from .log import log
from .model_processes import Processes
from .outcomes import LONGEST_BACK_OFF_SECONDS, MOST_INTERRUPTIONS, died, interrupted, run_attempt
from .tasks import download

LOOK_SECONDS = 0.25
SWEEP_SECONDS = 1.0
LOCK_SECONDS = 1.0
"""How long to try for the lock: others hold it for moments, to see whether a worker runs."""
STOP_SECONDS = 5.0


class Worker:
    """``configuration`` says where and how many at once. ``stop`` ends it; what runs then is queued again."""

    def __init__(self, configuration: JobsConfiguration) -> None:
        self.configuration = configuration
        self.stop = threading.Event()
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._met_another = False

    def run(self) -> bool:
        """Work until there has been nothing to do for a while, or ``stop``. False when another worker runs already, or
        ended while this one waited for it and left nothing to do."""
        while True:
            try:
                with locked(self.configuration.worker_lock, while_waiting=self._patience()):
                    if (
                        self._missed_another_worker()
                        and self.configuration.idle_seconds < math.inf
                        and not self._has_unfinished_jobs()
                    ):
                        return False
                    self._write_state()
                    self._work()
            except Busy:
                return False
            if self.stop.is_set() or not self._has_unfinished_jobs():
                return True

    def _patience(self) -> Callable[[], None]:
        end = time.monotonic() + LOCK_SECONDS

        def look() -> None:
            self._met_another = self._met_another or self.configuration.worker_state.exists()
            if time.monotonic() > end:
                raise Busy(self.configuration.worker_lock)

        return look

    def _missed_another_worker(self) -> bool:
        """Whether a worker that held the lock has ended since; one that was killed leaves its state behind."""
        return self._met_another and not self.configuration.worker_state.exists()

    def _has_unfinished_jobs(self) -> bool:
        """Whether a job waits, such as one that was submitted by somebody who saw a worker still hold the lock."""
        if not self.configuration.table.exists():
            return False
        with Table(self.configuration.table) as table:
            return table.unfinished() > 0

    def _write_state(self) -> None:
        state = {"pid": os.getpid(), "started": time.time(), "version": __version__}
        fresh = self.configuration.worker_state.with_suffix(".new")
        fresh.write_text(json.dumps(state), encoding="utf-8")
        os.replace(fresh, self.configuration.worker_state)

    def _work(self) -> None:
        table, output = Table(self.configuration.table), Table(self.configuration.table, durable=False)
        shift = _Shift(self.configuration, self._owner, table, output)
        try:
            shift.begin()
            self._watch(shift)
        finally:
            shift.end()
            for each in (table, output):
                each.close()
            self.configuration.worker_state.unlink(missing_ok=True)

    def _watch(self, shift: _Shift) -> None:
        identity = os.stat(self.configuration.table).st_ino
        idle_since = time.monotonic()
        swept = 0.0
        while not self.stop.wait(LOOK_SECONDS):
            try:
                if os.stat(self.configuration.table).st_ino != identity:
                    return
            except FileNotFoundError:  # the data directory was removed
                return
            now = time.monotonic()
            if now - swept < SWEEP_SECONDS:
                continue
            swept = now
            try:
                if shift.sweep():
                    idle_since = now
            except Exception as error:  # such as a full disk: it may get better
                log(f"sweeping: {type(error).__name__}: {error}")
                idle_since = now
            if now - idle_since >= self.configuration.idle_seconds:
                return


class _Shift:
    """What a worker does between taking the lock and giving it back."""

    def __init__(self, configuration: JobsConfiguration, owner: str, table: Table, output: Table) -> None:
        self._configuration, self._owner, self._table = configuration, owner, table
        self._processes = Processes(owner, configuration.directories.data)
        self._attempts = Attempts(output, owner)
        self._busy: Counter[tuple[str, int]] = Counter()  # counted, because a message may come twice
        self._guard = threading.Lock()
        self._ending = threading.Event()
        self._sent: set[str] = set()
        run = {DOWNLOAD: self._download, GENERATE: self._in_process, BATCH: self._in_process}
        self._queues = Queues(configuration.queue, configuration.queue_url, run)
        self._consumers: list[Consumer] = []

    def begin(self) -> None:
        """Recover what a dead worker left, and listen."""
        lost = self._table.recover(MOST_INTERRUPTIONS)
        if lost:
            log(f"queued again after the end of a worker: {', '.join(lost)}")
        self._send_missing()
        self._consumers = self._queues.consumers(self._configuration.concurrency)
        for consumer in self._consumers:
            consumer.start()

    def end(self) -> None:
        """Stop what runs, so that it is queued again."""
        self._ending.set()
        for consumer in self._consumers:
            consumer.stop()
        self._attempts.end_all()
        self._processes.kill()
        deadline = time.monotonic() + STOP_SECONDS
        while self._busy_now() and time.monotonic() < deadline:
            time.sleep(0.01)
        for consumer in self._consumers:
            for _, thread in consumer.worker_threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            consumer.scheduler.join(max(0.0, deadline - time.monotonic()))
        self._queues.close()

    def sweep(self) -> bool:
        """Mend what got lost. True when there is work, or will be."""
        self._processes.close_idle()
        self._send_missing()
        for id, attempt in self._table.running_of(self._owner) - self._busy_now():
            job = self._table.get(id)  # its end could not be written down, on a full disk for example
            if job is not None and (id, attempt) not in self._busy_now():
                interrupted(self._table, job, Claim(id, attempt, self._owner), "it ended unseen")
        return self._table.unfinished() > 0

    def _send_missing(self) -> None:
        """Send the messages of due jobs that have none: their submitter was killed, their time has just come, or what
        took the message ended before it could begin."""
        due = {message_id(id, attempt): (id, attempt, kind, priority) for id, attempt, kind, priority in self._due()}
        empty = self._queues.empty()
        self._sent = {message for message in self._sent if message in due and due[message][2] not in empty}
        missing = due.keys() - self._sent
        if missing:
            pending = self._queues.pending()
            self._queues.send(due[message] for message in due if message in missing - pending)
            self._sent |= missing

    def _due(self) -> list[tuple[str, int, str, int]]:
        return list(self._table.due(time.time(), LONGEST_BACK_OFF_SECONDS))

    def _download(self, id: str, attempt: int) -> None:
        self._take(id, attempt, self._run_download)

    def _in_process(self, id: str, attempt: int) -> None:
        self._take(id, attempt, self._run_in_process)

    def _take(self, id: str, attempt: int, work: Callable[[Job], None]) -> None:
        if self._ending.is_set():
            return
        with self._guard:
            self._busy[id, attempt] += 1
        try:
            job = self._table.claim(id, attempt, self._owner)
            if job is not None:
                work(job)
        finally:
            with self._guard:
                self._busy[id, attempt] -= 1
                self._busy += Counter()  # drops what is at zero

    def _run_download(self, job: Job) -> None:
        attempt = self._attempts.begin(job)
        try:
            run_attempt(attempt, self._table, download)
        finally:
            self._attempts.over(attempt)

    def _run_in_process(self, job: Job) -> None:
        claim = Claim(job.id, job.attempt, self._owner)
        code = self._processes.run(job, lambda: self._is_cancelled(job))
        if code is None:
            return
        if self._ending.is_set():
            interrupted(self._table, job, claim, "the worker was stopped")
        elif self._is_cancelled(job):
            with suppress(Fenced):
                self._table.finish(claim, Ending(State.CANCELLED))
        else:
            died(self._table, job, claim, code)

    def _is_cancelled(self, job: Job) -> bool:
        current = self._table.get(job.id)
        return current is not None and current.cancel_requested

    def _busy_now(self) -> set[tuple[str, int]]:
        with self._guard:
            return {key for key, count in self._busy.items() if count}


def main() -> None:
    """Run a worker for the data directory that the environment leads to, until it ends."""
    worker = Worker(JobsConfiguration.from_environment())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop.set())
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    worker.run()


def run_in_foreground(configuration: JobsConfiguration) -> None:
    """For ``leap jobs worker --foreground``: work until a signal comes. Raises LeapUnavailableError when another worker
    runs."""
    worker = Worker(replace(configuration, idle_seconds=math.inf))
    before = {number: signal.signal(number, lambda *_: worker.stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if not worker.run():
            raise LeapUnavailableError("a worker runs already", hint="leap jobs worker --stop ends it")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
