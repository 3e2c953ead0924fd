"""The job queue as ``leap serve`` uses it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_core.conversation.priority import BACKGROUND as LEVEL
from leap_core.conversation.priority import BATCH
from leap_core.errors import LeapError, LeapJobNotFoundError

from ..table.job import FINAL, Job, State
from .client import JobsClient, Policy

if TYPE_CHECKING:
    from leap_core.batch.settings import BatchSettings
    from leap_core.server.job_queue import AnswerState, BatchState, QueuedAnswer


BACKGROUND = Policy(priority=LEVEL - BATCH)
"""What a server does after its reply goes before other jobs, and its requests are of level background."""


class ServedJobs:
    """The jobs of the data directory that these variables lead to, as ``leap_core.server.job_queue.JobQueue``."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def ask(self, answer: QueuedAnswer) -> str:
        """Have it answered in the background; the job's id."""
        with JobsClient(self._variables) as jobs:
            asked = answer.request
            return jobs.generate(
                asked.messages,
                model=answer.model,
                options=asked.options,
                functions=asked.functions,
                loading=answer.loading,
                cwd=answer.cwd,
                policy=BACKGROUND,
            )

    def answered(self, job: str, attempt: int, number: int) -> AnswerState | None:
        """How the job is, and what its newest attempt put out: all of it, or where that is ``attempt`` what came
        beyond the event ``number``. None when it was removed."""
        from leap_core.server.job_queue import AnswerState

        with JobsClient(self._variables) as jobs:
            try:
                row = jobs.get(job)
            except LeapJobNotFoundError:
                return None
            newest = jobs.table.last_attempt_with_output(row.id)
            if newest is not None and newest == attempt:
                events = jobs.table.events(row.id, newest, number)
            else:
                events, number = jobs.events(row.id), -1
            jobs.ensure_worker_for_unfinished()
        return AnswerState(
            row.state.value,
            (row.error or {}).get("message"),
            events[-1].attempt if events else newest or attempt,
            events[-1].number if events else number,
            [event.value for event in events],
        )

    def cancel(self, job: str) -> None:
        """Have it end soon; harmless when it has ended."""
        with JobsClient(self._variables) as jobs:
            jobs.cancel(job, wait=False)

    def forget(self, job: str) -> None:
        """Remove the job, and what it put out; one that runs ends before."""
        with suppress(LeapError), JobsClient(self._variables) as jobs:
            jobs.cancel(job)
            jobs.remove(job)

    def submit(self, settings: BatchSettings, cwd: Path) -> str:
        """Have a batch answered in the background; the job's id. Raises LeapError when its lines cannot be used."""
        with JobsClient(self._variables) as jobs:
            return jobs.batch(settings, cwd=cwd, policy=BACKGROUND)

    def state(self, job: str) -> BatchState | None:
        """How the job is, queued where the table cannot be read just now; None when it was removed."""
        from leap_core.server.job_queue import BatchState

        try:
            with JobsClient(self._variables) as jobs:
                row = jobs.get(job)
                jobs.ensure_worker_for_unfinished()
        except LeapJobNotFoundError:
            return None
        except LeapError:
            return BatchState("queued")
        counts = row.result or row.progress or {}
        return BatchState(
            row.state.value,
            (row.error or {}).get("message"),
            row.cancel_requested,
            row.started,
            row.finished,
            total=int(counts.get("total") or 0),
            completed=int(counts.get("succeeded") or 0),
            failed=int(counts.get("failed") or 0),
            counted=bool((row.result or {}).get("total")),
        )

    def jobs(self, limit: int, only: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Jobs of all kinds, or of these ids: running ones, then queued ones, then those that ended; each kind the
        newest first."""
        rows: list[Job] = []
        with JobsClient(self._variables) as jobs:
            if only is not None:
                for id in only:
                    with suppress(LeapJobNotFoundError):  # removed meanwhile
                        rows.append(jobs.get(id))
                order = (State.RUNNING, State.QUEUED)
                rows.sort(key=lambda row: (order.index(row.state) if row.state in order else 2, -row.created))
                del rows[limit:]
            for states in ({State.RUNNING}, {State.QUEUED}, FINAL) if only is None else ():
                if len(rows) < limit:
                    rows += jobs.list(states=states, limit=limit - len(rows))
        return [
            {
                "id": row.id,
                "kind": row.kind,
                "state": row.state.value,
                "percent": row.percent,
                "done": (row.progress or {}).get("done"),
                "total": (row.progress or {}).get("total"),
                "unit": (row.progress or {}).get("unit"),
                "label": row.label,
                "cancelling": row.cancel_requested,
            }
            for row in rows
        ]

    def counts(self) -> Mapping[str, int]:
        """How many jobs are in each state."""
        with JobsClient(self._variables) as jobs:
            states: dict[str, int] = {}
            for kind in jobs.stats()["jobs"].values():
                for state, count in kind.items():
                    states[state] = states.get(state, 0) + count
            return states
