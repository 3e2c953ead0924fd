"""What a worker does between taking its lock and giving it back: it recovers, listens, claims and runs."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module

from leap_core import __version__

from ..configuration import JobsConfiguration
from ..queue import Bell, WakeUpQueue, ring
from ..scheduling.folders import Folders
from ..scheduling.schedules import fire
from ..table.claims import WorkerReport, WorkerRows
from ..table.job import (
    BATCH,
    COMMAND,
    DOWNLOAD,
    FUNCTION,
    SHARD,
    WEBHOOK,
    Claim,
    ClaimLostError,
    Ending,
    Job,
    State,
    WorkerIdentity,
)
from ..table.store_protocol import MISSED
from ..table.table import Table
from ..worker_log import bound_log, log
from .attempt import Attempt, Attempts
from .model_pool import ModelFetching, ModelsAtHand, Processes
from .outcomes import MOST_INTERRUPTIONS, died, interrupted, run_attempt
from .remote_table import TableServer

AFTER_FAILURE_SECONDS = 1.0
MESSAGES_AT_ONCE = 16
"""Messages about jobs that are sent at once, beside all other work: most of that time is waiting for receivers."""


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


LOOK_SECONDS = 0.5
"""Between two looks whether another process has written to the queue's file, when the bell does not ring. A look reads
one number from shared memory."""
FILE_SECONDS = 1.0
"""The worker looks this often whether the file is still the same."""
PAUSE_SECONDS = 2.0
"""After a failure."""


def listen(queue: WakeUpQueue, stop: threading.Event) -> None:
    """Take messages until ``stop`` is set."""
    while not stop.is_set():
        try:
            _follow(queue, stop)
        except (sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                log(f"the queue {queue.file} is damaged ({error}): it is made anew")
            else:
                log(f"the queue {queue.file}: {error}")
                stop.wait(PAUSE_SECONDS)
            if not stop.is_set() and not isinstance(error, sqlite3.OperationalError):
                _renew(queue)


def _renew(queue: WakeUpQueue) -> None:
    try:
        queue.renew()
    except Exception as error:  # such as a full disk
        log(f"the queue cannot be made anew: {error}")
        time.sleep(PAUSE_SECONDS)


def _follow(queue: WakeUpQueue, stop: threading.Event) -> None:
    """Take messages as they come. Raises FileNotFoundError when the file is gone or another one."""
    identity = os.stat(queue.file).st_ino
    looked = time.monotonic()
    with closing(Bell(queue.bell_path)) as bell, closing(sqlite3.connect(queue.file, isolation_level=None)) as file:
        seen = -1
        while not stop.is_set():
            version = file.execute("PRAGMA data_version").fetchone()[0]
            if version != seen:
                seen = version
                queue.drain()
            bell.wait(LOOK_SECONDS)
            if time.monotonic() - looked > FILE_SECONDS:
                looked = time.monotonic()
                if os.stat(queue.file).st_ino != identity:
                    raise FileNotFoundError(queue.file)


STOP_SECONDS = 5.0
LOCAL_SWEEP_SECONDS = 1.0
"""The table is read this often for what no message announced."""
SHARED_SWEEP_SECONDS = 5.0, 10.0
"""The same on a server: a sixth of the lease, within these bounds."""
HEAR_SECONDS = 10.0
"""How long one wait for what a server announces lasts; a message ends it at once."""
SHORTEST_SWEEP_SECONDS = 0.05
BEAT_SWEEPS = 5
"""Sweeps of a file between two signs of life."""
RARELY = 6
"""Sweeps between two looks that are seldom needed."""
FORGET_OUTPUT_SECONDS = 3600.0
"""Output that was kept long enough is looked for this often."""
FORGET_SECONDS = 86_400.0
"""A worker that was not seen for a day is no longer listed."""


TASKS = {
    DOWNLOAD: "tasks:download",
    FUNCTION: "functions:call",
    COMMAND: "command_jobs:follow",
    WEBHOOK: "webhooks:deliver",
}
"""What the worker does itself, by kind of job; the others run in a process that has their model."""


class WorkerLoop:
    """One stretch of work of the worker ``owner``. Raises LeapError where table or queue cannot be opened."""

    def __init__(self, configuration: JobsConfiguration, owner: str) -> None:
        self._configuration, self._owner, self._id = configuration, owner, configuration.worker_id
        self._table = Table(configuration.table_place)
        self._output = self._table.undurable()
        self._workers = WorkerRows(self._output.database)
        self._shared = configuration.is_shared
        self._at_hand = ModelsAtHand(configuration) if self._shared else None
        self._fetching = ModelFetching(self._see_models) if configuration.fetch_models else None
        answer_call = TableServer(self._table, self._output).reply if self._shared else None
        self._processes = Processes(owner, configuration.directories.data, answer_call)
        self._attempts = Attempts(self._output, owner, configuration.lease_seconds)
        self._slots = Slots(
            {**configuration.concurrency, WEBHOOK: MESSAGES_AT_ONCE}, self._claim, self._work, self._repeat
        )
        self._folders = None if self._shared else Folders(self._table)
        self._queue: WakeUpQueue | None = None
        if not self._shared:
            self._queue = WakeUpQueue(configuration.queue, self._slots.wake)
        self._ending = threading.Event()
        self._listener: threading.Thread | None = None
        self._sweeps = 0
        self._version: int | None = None
        self._next_due = float("-inf")
        self._has_work = True
        self._forget_due = float("-inf")
        self.draining = False
        least, most = SHARED_SWEEP_SECONDS
        shared_seconds = min(most, max(least, configuration.lease_seconds / 6))
        self._longest_sweep = self.sweep_seconds = shared_seconds if self._shared else LOCAL_SWEEP_SECONDS

    @property
    def _identity(self) -> WorkerIdentity:
        models = self._at_hand.digests if self._at_hand else None
        return WorkerIdentity(
            id=self._id,
            owner=self._owner,
            machine=self._configuration.machine,
            models=models,
            lease_seconds=self._configuration.lease_seconds,
        )

    def begin(self) -> None:
        """Recover what a dead worker left, and listen."""
        if not self._shared:
            from .command_jobs import end_left_commands

            end_left_commands(self._configuration)
        lost = self._table.recover(MOST_INTERRUPTIONS, self._id)
        if lost:
            log(f"queued again after the end of a worker: {', '.join(lost)}")
        if self._at_hand is not None:
            self._at_hand.look()
        self._enter()
        if self._queue is None:
            self._listener = threading.Thread(target=self._hear, name="leap-jobs-hear", daemon=True)
        else:
            arguments = (self._queue, self._ending)
            self._listener = threading.Thread(target=listen, args=arguments, name="leap-queue", daemon=True)
        self._listener.start()
        for kind in (*self._configuration.concurrency, WEBHOOK):
            self._slots.wake(kind)

    def end(self) -> None:
        """Stop what runs, so that it is queued again."""
        self._ending.set()
        if self._fetching is not None:
            self._fetching.end()
        if self._queue is not None:
            ring(self._queue.bell_path)
        self._slots.close()
        self._attempts.end_all()
        self._processes.kill()
        deadline = time.monotonic() + STOP_SECONDS
        self._slots.join(deadline)
        if self._queue is not None and self._listener is not None:
            self._listener.join(max(0.0, deadline - time.monotonic()))
        with suppress(Exception):
            self._workers.leave(self._id)
        if self._queue is not None:
            self._queue.close()
        self._table.close()
        self._output.close()

    def look_after_processes(self) -> None:
        """Let go of models that no job asks for, and kill processes that hang. Called each second or so."""
        self._processes.look_after()

    def sweep(self) -> bool:
        """Do what no message announced, and mend what got lost. True when there is work, or will be."""
        self._sweeps += 1
        rarely = self._sweeps % RARELY == 1
        self._forget_output()
        bound_log(self._configuration.worker_log)
        if (self._shared or self._sweeps % BEAT_SWEEPS == 1) and self._workers.beat(self._id):
            self.drain()
        if self.draining:
            return not self._slots.is_idle
        if self._shared:
            self._table.recover(MOST_INTERRUPTIONS)
            if rarely:
                self._workers.forget_dead(FORGET_SECONDS)
                self._see_models()
            if self._fetching is not None:
                self._fetching.begin(self._table.lacking(self._identity))
        if not self._slots.is_idle or rarely:
            self._look_for_unseen_ends()
        if self._folders is not None and self._folders.look():
            self._slots.wake(COMMAND)
        if self._shared:  # here and not at every look, for each statement is a way to the server
            self._begin_what_is_due()
        return self._look_for_work() or not self._slots.is_idle or bool(self._fetching and self._fetching.is_busy)

    def drain(self) -> None:
        """Begin nothing more; the worker ends once nothing runs."""
        if not self.draining:
            log("draining: no further job is begun")
            self.draining = True
            self.sweep_seconds = LOCAL_SWEEP_SECONDS
            self._slots.close()

    def _look_for_work(self) -> bool:
        """Whether there is any; a file in which nothing has changed is not looked through again."""
        now = time.monotonic()
        version = self._table.database.version()
        if version is not None and version == self._version and now < self._next_due and self._slots.is_idle:
            return self._has_work
        self._version = version
        if not self._shared:
            self._begin_what_is_due()
        kinds, seconds = self._table.waiting(self._identity)
        self._wake(kinds)
        self._has_work = bool(kinds) or (seconds is not None if self._shared else self._table.unfinished() > 0)
        due = math.inf if seconds is None else seconds
        self._next_due = now + due
        self.sweep_seconds = max(SHORTEST_SWEEP_SECONDS, min(self._longest_sweep, due))
        return self._has_work

    def _see_models(self) -> None:
        """Look again which models are here, and report them."""
        assert self._at_hand is not None
        if self._at_hand.look():
            self._workers.set_models(self._id, self._at_hand.names, self._at_hand.origins)
            self._wake(self._table.waiting(self._identity)[0])

    def _forget_output(self) -> None:
        """Forget old output, now and then."""
        days, now = self._configuration.keep_output_days, time.monotonic()
        if now >= self._forget_due:
            self._forget_due = now + FORGET_OUTPUT_SECONDS
            self._table.forget_output(days * 86_400.0 if days else math.inf)

    def _look_for_unseen_ends(self) -> None:
        """Queue again attempts whose end could not be written down, on a full disk for example."""
        for id, attempt in self._table.running_of(self._owner) - self._slots.busy():
            job = self._table.get(id)
            if job is not None and (id, attempt) not in self._slots.busy():
                interrupted(self._table, job, Claim(id, attempt, self._owner), "its end was not seen")

    def _enter(self) -> None:
        report = WorkerReport(
            self._configuration.machine,
            self._configuration.name,
            os.getpid(),
            __version__,
            self._configuration.concurrency,
            models=self._at_hand.names if self._at_hand else {},
            origins=self._at_hand.origins if self._at_hand else {},
            fetches=self._fetching is not None,
        )
        self._workers.enter(self._id, report)

    def _hear(self) -> None:
        """Look for work when the server announces some to this worker."""
        changes = self._table.database.listen(worker=self._id)
        while not self._ending.is_set():
            for message in changes.wait(HEAR_SECONDS):
                if self._ending.is_set():
                    break
                try:
                    if message in ("queued", MISSED):
                        self._look_for_work()
                    elif message == "cancel":
                        self._processes.announce(message)
                    elif message == "drain" and self._workers.beat(self._id):
                        self.drain()
                except Exception as error:  # a server that went away: the sweep looks again
                    log(f"looking for work: {type(error).__name__}: {error}")
        changes.close()

    def _wake(self, kinds: frozenset[str]) -> None:
        for kind in {BATCH if kind == SHARD else kind for kind in kinds}:
            self._slots.wake(kind)

    def _claim(self, kind: str) -> Job | None:
        if self._ending.is_set() or (
            kind in (FUNCTION, COMMAND, WEBHOOK) and self._shared
        ):  # others' rows name nothing here
            return None
        kind = SHARD if kind == BATCH and self._shared else kind
        job = self._table.claim_next(kind, self._identity)
        if job is None or self._at_hand is None or job.model is None:
            return job
        reference = self._at_hand.reference_of(job.model)
        if reference is None:
            return job
        return replace(job, parameters={**job.parameters, "model": reference})

    def _repeat(self, job: Job) -> None:
        """Have another attempt fence off the one that runs."""
        log(f"{job.id} was claimed twice: the server has lost the first claim")
        with suppress(ClaimLostError):
            self._table.requeue(Claim(job.id, job.attempt, self._owner), interrupted=True)

    def _work(self, job: Job) -> None:
        self._do(job)
        self._version = None  # what this process writes changes no version, and something may come after the job

    def _begin_what_is_due(self) -> None:
        """Queue what schedules want, and what comes after jobs that have ended."""
        self._table.release()
        fire(self._table)

    def _do(self, job: Job) -> None:
        if job.kind not in TASKS:
            self._run_in_process(job)
            return
        module, name = TASKS[job.kind].split(":")  # not imported before, because every worker's start would pay for it
        task = getattr(import_module(f"{__package__}.{module}"), name)
        self._run_here(job, partial(task, table=self._table, configuration=self._configuration))

    def _run_here(self, job: Job, task: Callable[[Attempt], Ending]) -> None:
        attempt = self._attempts.begin(job)
        try:
            run_attempt(attempt, self._table, task)
        finally:
            self._attempts.over(attempt)

    def _run_in_process(self, job: Job) -> None:
        claim = Claim(job.id, job.attempt, self._owner)
        end = self._processes.run(job, lambda: self._is_cancelled(job))
        if end is None:
            return
        if self._ending.is_set():
            interrupted(self._table, job, claim, "the worker was stopped")
        elif self._is_cancelled(job):
            with suppress(ClaimLostError):
                self._table.finish(claim, Ending(State.CANCELLED))
        else:
            died(self._table, job, claim, end)

    def _is_cancelled(self, job: Job) -> bool:
        current = self._table.get(job.id)
        return current is None or current.cancel_requested
