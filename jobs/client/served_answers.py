"""The job queue as ``leap serve`` uses it for answers that outlive their connection."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from leap_core.errors import LeapError, LeapJobError

from .client import JobsClient

if TYPE_CHECKING:
    from leap_core.host.server.protocols.stored_responses import AnswerState, QueuedAnswer


class ServedAnswers:
    """Answers as jobs of the data directory that these variables lead to."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def ask(self, answer: QueuedAnswer) -> str:
        """Have it answered in the background; the job's id."""
        with JobsClient(self._variables) as jobs:
            return jobs.generate(
                answer.messages,
                model=answer.model,
                options=answer.options,
                functions=answer.functions,
                loading=answer.loading,
                cwd=answer.cwd,
            )

    def answered(self, job: str, attempt: int, number: int) -> AnswerState | None:
        """How the job is, and what its newest attempt put out: all of it, or where that is ``attempt`` what came
        beyond the event ``number``. None when it was removed."""
        from leap_core.host.server.protocols.stored_responses import AnswerState

        with JobsClient(self._variables) as jobs:
            try:
                row = jobs.get(job)
            except LeapJobError:
                return None
            newest = jobs.table.last_attempt_with_output(row.id)
            if newest is not None and newest == attempt:
                events = jobs.table.events(row.id, newest, number)
            else:
                events, number = jobs.events(row.id), -1
            jobs.ensure_worker_for_unfinished()
        return AnswerState(
            row.state.value,
            events[-1].attempt if events else newest or attempt,
            events[-1].number if events else number,
            [event.value for event in events],
            (row.error or {}).get("message"),
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
