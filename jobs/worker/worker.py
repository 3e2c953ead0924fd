"""The worker: ``python -m jobs.worker``. One for each data directory, alone by a lock that frees itself.

It takes what an earlier worker left, then listens to the queues. Downloads run in its threads, models in processes of
their own. It ends when there has been nothing to do for a while; the next submission starts another.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from leap_core import __version__
from leap_core.errors import LeapError, LeapUnavailableError
from leap_core.system.files import replacing
from leap_core.system.locks import Busy, locked
from leap_core.system.processes import start_time

from ..configuration import DEFAULT_NAME, JobsConfiguration
from ..table.table import Table
from ..worker_log import log
from ..worker_process import FOR_JOBS
from .worker_loop import WorkerLoop

LOOK_SECONDS, SHARED_LOOK_SECONDS = 0.5, 1.0
LOCK_SECONDS = 1.0
"""How long to try for the lock: a process that looks whether a worker runs holds it for a moment."""


class Worker:
    """``configuration`` says where and how many at once. ``stop`` ends it; what runs then is queued again. After
    ``seconds`` it begins nothing more, and ends with what it has. ``for_jobs``: it ends at once where none is left."""

    def __init__(self, configuration: JobsConfiguration, seconds: float = math.inf, *, for_jobs: bool = False) -> None:
        self.configuration = configuration
        self._for_jobs = for_jobs
        self._due = time.monotonic() + seconds
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
                        (self._for_jobs or self._missed_another_worker())
                        and self.configuration.idle_seconds < math.inf
                        and not self._has_unfinished_jobs()
                    ):
                        return False
                    if self._work():
                        return True
            except Busy:
                return False
            if self.stop.is_set() or self.configuration.is_shared or not self._has_unfinished_jobs():
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
        """Whether a job waits, such as one whose submitter saw a worker still hold the lock."""
        if self.configuration.is_shared or not self.configuration.table.exists():
            return False
        with Table(self.configuration.table) as table:
            return table.unfinished() > 0

    def _write_state(self) -> None:
        pid = os.getpid()
        state: dict[str, object] = {
            "pid": pid,
            "started": time.time(),
            "version": __version__,
            "process": start_time(pid),
        }
        with replacing(self.configuration.worker_state, mode=0o600, durable=False) as file:
            file.write(json.dumps(state).encode())

    def _work(self) -> bool:
        """Whether the worker was drained."""
        shift = WorkerLoop(self.configuration, self._owner)
        try:
            self._write_state()  # the files are open: what is removed from now on is noticed
            shift.begin()
            self._watch(shift)
        finally:
            shift.end()
            self.configuration.worker_state.unlink(missing_ok=True)
        return shift.draining

    def _watch(self, shift: WorkerLoop) -> None:
        table = None if self.configuration.is_shared else self.configuration.table
        identity = None if table is None else os.stat(table).st_ino
        idle_since = time.monotonic()
        swept = float("-inf")
        look_seconds = LOOK_SECONDS if table is not None else SHARED_LOOK_SECONDS
        while not self.stop.wait(min(look_seconds, shift.sweep_seconds)):
            try:
                if table is not None and os.stat(table).st_ino != identity:
                    return
                os.utime(self.configuration.worker_state)
            except FileNotFoundError:  # the data directory was removed
                if table is None or not table.exists():
                    return
            except OSError as error:
                log(f"{self.configuration.worker_state}: {error.strerror}")
            shift.look_after_processes()
            now = time.monotonic()
            if now >= self._due:
                shift.drain()
            if now - swept < shift.sweep_seconds:
                continue
            swept = now
            busy = True
            try:
                busy = shift.sweep()
            except Exception as error:  # such as a full disk, or a server that is away: it may get better
                log(f"sweeping: {type(error).__name__}: {error}")
            if busy:
                idle_since = now
            elif shift.draining or now - idle_since >= self.configuration.idle_seconds:
                return


def main(arguments: list[str] | None = None) -> None:
    """Run a worker for the data directory that the environment leads to, until it ends. The first argument, if there is
    one, is its name; see ``FOR_JOBS`` for the second."""
    names = sys.argv[1:] if arguments is None else arguments
    try:
        configuration = JobsConfiguration.from_environment(name=names[0] if names else DEFAULT_NAME)
        worker = Worker(configuration, for_jobs=FOR_JOBS in names[1:])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop.set())
        if sys.platform != "win32":
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        worker.run()
    except LeapError as error:
        log(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
        sys.exit(1)


def run_in_foreground(
    configuration: JobsConfiguration, *, until_empty: bool = False, seconds: float = math.inf
) -> None:
    """For ``leap jobs worker --foreground``: work until a signal comes, or the terminal is closed; ``until_empty``:
    until there is nothing that this worker could begin. After ``seconds`` it begins nothing more. Raises
    LeapUnavailableError when another worker runs."""
    worker = Worker(replace(configuration, idle_minutes=0.0 if until_empty else math.inf), seconds)
    before = {number: signal.signal(number, lambda *_: worker.stop.set()) for number in _ending_signals()}
    try:
        if not worker.run():
            raise LeapUnavailableError("a worker runs already", hint="leap jobs worker --shutdown ends it")
    finally:
        for number, handler in before.items():
            with suppress(ValueError, TypeError):
                signal.signal(number, handler)


def _ending_signals() -> list[signal.Signals]:
    """The signals that end a worker in a terminal; not the hangup of one that was started with ``nohup``."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers
