"""Watching jobs: how they are, what they put out, and when they end."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from ..table.job import FOLDER, GENERATE, TRANSCRIBE, Job, JobEvent, State
from ..table.row_reading import ID_CHARACTERS
from ..table.table import Table
from .results import text_of_result

LOOK_SECONDS = 1.0
"""A table on a server, which reports changes, is read this often; one in a file every 20 ms."""


class JobWatcher:
    """Reads ``table``. While it waits it calls ``ensure_worker`` now and then."""

    table: Table

    def ensure_worker(self, job: Job | None = None) -> None:
        """See to it that the wait, for this job or for any, can end."""

    def get(self, id: str) -> Job:
        """The job whose id begins so. Raises LeapJobNotFoundError."""
        return self.table.with_progress(self.table.find(id))

    def list(
        self,
        *,
        states: Collection[State] = (),
        kinds: Collection[str] = (),
        limit: int | None = None,
        schedule: str | None = None,
        client: str | None = None,
    ) -> Sequence[Job]:
        """Jobs, newest first. ``schedule``: the runs of the one whose id begins so. ``client``: those that it
        submitted. Raises LeapJobNotFoundError."""
        schedule = None if schedule is None else self.get(schedule).id
        jobs = self.table.jobs(states=states, kinds=kinds, limit=limit, schedule=schedule, client=client)
        return [self.table.with_progress(job) for job in jobs]

    def count(self, *, states: Collection[State] = (), kinds: Collection[str] = (), schedule: str | None = None) -> int:
        """How many jobs ``list`` would give without a limit."""
        if schedule is not None:
            return len(self.list(states=states, kinds=kinds, schedule=schedule))
        found = [
            (State.RUNNING if (kind, state) == (FOLDER, State.QUEUED) else state, kind, count)
            for (kind, state), count in self.table.counts().items()
        ]
        return sum(n for state, kind, n in found if (not states or state in states) and (not kinds or kind in kinds))

    def events(self, id: str, attempt: int | None = None) -> Sequence[JobEvent]:
        """What a job has put out: in this attempt, or in the newest one that put anything out. Of an answer whose
        output was forgotten, what its result holds."""
        job = self.get(id)
        if attempt is None:
            attempt = self.table.last_attempt_with_output(job.id)
        return _of_result(job) if attempt is None else self.table.events(job.id, attempt)

    def follow(self, id: str) -> Iterator[JobEvent]:
        """The job's output, from its beginning and on as it comes, until the job has ended.

        When an attempt is given up and another begins, the events begin anew with a higher ``attempt``.
        """
        id = self.get(id).id
        attempt = self.table.last_attempt_with_output(id) or 1
        after = -1
        with closing(self.table.database.listen(id)) as changes:
            while True:
                job = self.table.find(id)
                newest = self.table.last_attempt_with_output(id) or attempt
                if newest > attempt:
                    attempt, after = newest, -1
                events = self.table.events(id, attempt, after)
                yield from events
                if events:
                    after = events[-1].number
                elif job.state.is_final:
                    if after < 0:
                        yield from _of_result(job)
                    return
                else:
                    self.ensure_worker(job)
                    changes.wait(LOOK_SECONDS)

    def changes(self, id: str) -> Iterator[Job]:
        """The job now, and again whenever something about it has changed, until it has ended."""
        id = self.get(id).id
        before: Job | None = None
        with closing(self.table.database.listen(id)) as changes:
            while True:
                job = self.get(id)
                if before is None or _without_beat(job) != _without_beat(before):
                    yield job
                    before = job
                if job.state.is_final:
                    return
                self.ensure_worker(job)
                changes.wait(LOOK_SECONDS)

    def wait(self, id: str, timeout: float | None = None) -> Job:
        """Wait for the job's end. Raises TimeoutError after so many seconds, LeapUnavailableError without a worker."""
        id = self.get(id).id
        deadline = None if timeout is None else time.monotonic() + timeout
        with closing(self.table.database.listen(id)) as changes:
            while True:
                job = self.table.find(id)
                if job.state.is_final:
                    return job
                self.ensure_worker(job)
                left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"the job {id} is still {job.state.value} after {timeout:g} s")
                changes.wait(min(left, LOOK_SECONDS))

    def as_they_end(self, ids: Iterable[str], timeout: float | None = None) -> Iterator[Job]:
        """Each of these jobs once it has ended, the first to end first. Raises TimeoutError when some have not after so
        many seconds, LeapUnavailableError without a worker."""
        waiting = dict.fromkeys(id if len(id) == ID_CHARACTERS else self.get(id).id for id in ids)
        deadline = None if timeout is None else time.monotonic() + timeout
        with closing(self.table.database.listen(next(iter(waiting), ""))) as changes:
            while waiting:
                unfinished = self.table.unfinished_ids()
                for id in [id for id in waiting if id not in unfinished]:
                    del waiting[id]
                    yield self.get(id)
                left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
                if waiting and left <= 0:
                    raise TimeoutError(f"{len(waiting)} jobs have not ended after {timeout:g} s")
                if waiting:
                    self.ensure_worker()
                    changes.wait(min(left, LOOK_SECONDS))


def _of_result(job: Job) -> Sequence[JobEvent]:
    """The end of an answer, and its text, as its output had them."""
    if job.kind not in (GENERATE, TRANSCRIBE) or job.result is None:
        return []
    chunk = {"type": "chunk", "text": text_of_result(job) or ""}
    return [JobEvent(job.attempt, 0, chunk), JobEvent(job.attempt, 1, {"type": "complete", **job.result})]


def _without_beat(job: Job) -> Job:
    return replace(job, heartbeat=None, lease_until=None)
