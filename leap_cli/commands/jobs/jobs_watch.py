"""``leap jobs watch``: jobs as they go on, in a live table or a line a change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError

from ...completion.value_types import JobId
from ...display.job_view import done, table_row
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.durations import age
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.output import Format, Output, table_lines
from ...framework.output_format import format_flag

if TYPE_CHECKING:
    from jobs.client import JobsClient
    from jobs.table.job import Job

COLUMNS = ("id", "kind", "state", "done", "age", "what")
LOOK_SECONDS = 0.5
"""The jobs are looked at this often."""
NEWEST = 100
"""Jobs that are looked at where none is named; all that have not ended beside."""


@leap_command("watch", short_help="Watch jobs as they go on.")
@click.argument("ids", metavar="[JOB]...", nargs=-1, type=JobId())
@format_flag
@click.pass_obj
def watch(env: Environment, /, ids: tuple[str, ...], format: str) -> ExitCode:
    """Watch jobs as they go on; without a JOB all of them.

    A terminal shows a table that is drawn anew in place, until q or Ctrl-C is pressed or the JOBs named have ended. A
    pipe gets a line for every change, until all of them have ended; with --format jsonl it is the job as JSON.
    """
    from jobs.client import JobsClient

    output = Output(env, format)
    with JobsClient(env.variables, on_warning=output.note) as jobs:
        whole = [jobs.get(id).id for id in ids]

        every = _EveryJob(jobs)

        def look() -> Sequence[Job]:
            jobs.ensure_worker_for_unfinished()
            return [jobs.get(id) for id in whole] if whole else every.look()

        if output.format is Format.TEXT and env.has_editor:
            _show_live(env, look, ends=bool(whole))
            output.records(_rows(look()), COLUMNS, name="id")
        else:
            _tell_changes(output, look, named=bool(whole))
    return ExitCode.DONE


class _EveryJob:
    """The jobs that have not ended, those that ended since the first look, and the newest of the others."""

    def __init__(self, jobs: JobsClient) -> None:
        self._jobs = jobs
        self._unfinished: set[str] = set()
        self._ended: dict[str, Job] = {}

    def look(self) -> list[Job]:
        """How they are now."""
        from jobs.table.job import State

        unfinished = {job.id: job for job in self._jobs.list(states=[State.QUEUED, State.RUNNING])}
        for id in self._unfinished - unfinished.keys():
            job = outcome_of(partial(self._jobs.get, id))
            if not isinstance(job, LeapError):  # else it was removed
                self._ended[id] = job
        self._unfinished = set(unfinished)
        others = {job.id: job for job in self._jobs.list(limit=NEWEST) if job.state.is_final} | self._ended
        return [*unfinished.values(), *(job for id, job in others.items() if id not in unfinished)]


def _show_live(env: Environment, look: Callable[[], Sequence[Job]], *, ends: bool) -> None:
    """Draw the table until q is pressed; where it ``ends``, until all jobs have ended."""
    from ...display.live_screen import LiveScreen

    with LiveScreen(env) as screen:
        while True:
            rows = look()
            left = sum(not job.state.is_final for job in rows)
            width, height = screen.size
            lines, _ = table_lines(_rows(rows[: max(height - 3, 1)]), COLUMNS, width - 1)
            hidden = len(rows) - max(height - 3, 1)
            more = f"; {hidden} more" if hidden > 0 else ""
            screen.draw([*lines, "", f"{left} of {len(rows)} jobs have not ended{more}; q leaves"])
            if (ends and not left) or screen.key(LOOK_SECONDS) in ("q", "Q"):
                return


def _tell_changes(output: Output, look: Callable[[], Sequence[Job]], *, named: bool) -> None:
    """A line for every change until all have ended; jobs that had ended before count where they were ``named``."""
    before = [] if named else [job for job in look() if job.state.is_final]
    told = {job.id: _state(job) for job in before}
    while True:
        rows = look()
        for job in rows:
            if told.get(job.id) != _state(job):
                told[job.id] = _state(job)
                _tell(output, job)
        if all(job.state.is_final for job in rows):
            break
        time.sleep(LOOK_SECONDS)
    if output.format is Format.JSON:
        known = {job.id for job in before}
        output.document([job.to_json() for job in rows if job.id not in known])
    elif len(told) == len(before):
        output.note("there are no jobs that have not ended")


def _tell(output: Output, job: Job) -> None:
    if output.format is Format.JSONL:
        output.event(job.to_json())
    elif output.format is Format.QUIET:
        if job.state.is_final:
            output.text(f"{job.id}\n")
    elif output.format is Format.TEXT:
        row = table_row(job)
        parts = [row["id"], row["kind"], row["state"], row["done"], row["error"] or row["what"]]
        output.text("  ".join(str(part) for part in parts if part) + "\n")


def _state(job: Job) -> dict[str, Any]:
    """What a change of it is a change of the job."""
    return {"state": job.state, "stopping": job.cancel_requested, "attempt": job.attempt, "done": done(job)}


def _rows(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    now = time.time()
    return [{**table_row(job), "age": age(now - job.created)} for job in jobs]
