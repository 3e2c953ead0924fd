"""``leap jobs watch``, ``worker`` and ``workers``: the progress of jobs, and the processes that run them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError
from leap_core.system.dataclass import dataclass

from ...completion.value_types import JobId
from ...display.jobs import done, table_row
from ...framework.click_classes import format_flag, leap_command
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.options import Duration, age, option
from ...framework.output import Format, Output, table_lines
from ...options.background import open_jobs

if TYPE_CHECKING:
    from jobs.client import JobsClient
    from jobs.configuration import JobsConfiguration
    from jobs.table.job import Job


@dataclass(frozen=True)
class WorkerArguments:
    """What is typed after ``leap jobs worker``."""

    foreground: bool
    until_empty: bool
    seconds: float | None
    stop: bool
    drain: bool
    only_status: bool
    name: str | None
    print_unit: str | None
    format: str


@leap_command("worker", short_help="Start, stop or show the worker.", into=WorkerArguments)
@click.option("--foreground", is_flag=True, help="Run the worker in the foreground until Ctrl-C.")
@click.option("--until-empty", is_flag=True, help="Run the worker in the foreground until the queue is empty.")
@click.option(
    "--for", "seconds", type=Duration(1.0), help="Run in the foreground; stop taking jobs after this time (55m)."
)
@option("--shutdown", "stop", is_flag=True, help="Stop the worker now; its running jobs return to the queue.")
@click.option("--drain", is_flag=True, help="Graceful shutdown: finish running jobs, then stop.")
@click.option("--status", "only_status", is_flag=True, help="Show whether a worker runs; start none.")
@click.option("--name", metavar="NAME", help="Name of the worker, if this machine runs several; needs jobs_url.")
@click.option(
    "--print-unit",
    type=click.Choice(["systemd", "launchd"]),
    is_flag=False,
    flag_value="systemd",
    help="Print a service file for the worker: systemd (default) or launchd.",
)
@format_flag
def worker(env: Environment, /, args: WorkerArguments) -> None:
    """Start the worker that runs the jobs, unless it is running already.

    This is seldom needed: a command that submits a job starts a worker, which exits after five minutes without jobs.
    Jobs on a server (jobs_url) need a worker started by hand, by a service manager, or as a task of a cluster, with
    --option until-empty or for. SIGTERM stops it, and its running jobs return to the queue.
    """
    output = Output(env, args.format)
    foreground = args.foreground or args.until_empty or args.seconds is not None
    if sum((foreground, args.stop, args.drain, args.only_status, args.print_unit is not None)) > 1:
        raise click.UsageError(
            "--foreground (or --option for, until-empty), --shutdown, --drain, --status and --print-unit exclude "
            "each other"
        )
    if args.print_unit is not None:
        output.text(_unit(env, args.print_unit, args.name))
        return
    configuration = _configuration(env, args.name)
    if foreground:
        from jobs.worker.worker import run_in_foreground

        output.note("working; Ctrl-C ends it, and what runs then is queued again")
        seconds = math.inf if args.seconds is None else args.seconds
        run_in_foreground(configuration, until_empty=args.until_empty, seconds=seconds)
        return
    if args.drain:
        with open_jobs(env, autostart=False) as jobs:
            if not jobs.drain([configuration.worker_id]):
                output.note("no worker runs")
        return
    from jobs.worker_process import WorkerKeeper

    keeper = WorkerKeeper(configuration, env.variables)
    if args.stop:
        if not keeper.stop():
            output.note("no worker runs")
        return
    before = keeper.describe()
    record = before if args.only_status else keeper.start()
    if output.format is Format.TEXT and record["started"] is not None:
        record["started"] = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record["started"]))
    output.record(record, name="pid")
    if not before["running"] and not args.only_status:
        output.note("a worker was started; --status only looks, --shutdown ends it")


def _unit(env: Environment, manager: str, name: str | None) -> str:
    from jobs.configuration import JobsConfiguration
    from jobs.service_files import unit_file
    from leap_core.system.directories import absolute_home

    return unit_file(
        manager, absolute_home(env.variables), name, JobsConfiguration.from_environment(env.variables).jobs_url
    )


@leap_command("workers", short_help="List the workers that run the jobs.")
@format_flag
def workers(env: Environment, /, format: str) -> None:
    """List the workers that run the jobs: this machine's, or with jobs_url those of all machines.

    A worker that was killed is listed as not alive for a day, or until it returns.
    """
    output = Output(env, format)
    with open_jobs(env, autostart=False) as jobs:
        rows = list(jobs.workers())
    records = [row.to_json() for row in rows]
    if output.format is Format.TEXT:
        records = [
            {
                **record,
                "state": _state(record),
                "seen": f"{age(row.idle_seconds)} ago",
                "models": ", ".join(record["models"]) or None,
            }
            for record, row in zip(records, rows, strict=True)
        ]
    columns = ["machine", "name", "pid", "state", "running", "seen", "models"]
    output.records(records, columns, name="id", none="no worker runs")


def _state(record: dict[str, object]) -> str:
    if not record["alive"]:
        return "not alive"
    return "draining" if record["draining"] else "alive"


def _configuration(env: Environment, name: str | None) -> JobsConfiguration:
    from jobs.configuration import DEFAULT_NAME, JobsConfiguration

    configuration = JobsConfiguration.from_environment(env.variables, name=name or DEFAULT_NAME)
    if name is not None and not configuration.is_shared:
        raise click.UsageError("--name needs jobs_url: one worker is enough for the jobs of one data directory")
    return configuration


COLUMNS = ("id", "kind", "state", "done", "age", "what")
LOOK_SECONDS = 0.5
"""The jobs are looked at this often."""
NEWEST = 100
"""Jobs that are looked at where none is named; all that have not ended beside."""


@leap_command("watch", short_help="Watch the progress of jobs.")
@click.argument("ids", metavar="[JOB]...", nargs=-1, type=JobId())
@format_flag
def watch(env: Environment, /, ids: tuple[str, ...], format: str) -> None:
    """Watch the progress of jobs; without a JOB all of them.

    A terminal shows a live table until you press q or Ctrl-C, or until the named JOBs have ended. A pipe gets a line
    for every change until all of them have ended; with --format jsonl the line is the job as JSON.
    """
    output = Output(env, format)
    with open_jobs(env) as jobs:
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


class _EveryJob:
    """The jobs that have not ended, those that ended since the first look, and the newest of the others."""

    def __init__(self, jobs: JobsClient) -> None:
        self._jobs = jobs
        self._unfinished: set[str] = set()
        self._ended: dict[str, Job] = {}

    def look(self) -> list[Job]:
        """How they are now."""
        from jobs.table.job import STANDING, State

        listed = self._jobs.list(states=[State.QUEUED, State.RUNNING])
        unfinished = {job.id: job for job in listed if job.kind not in STANDING}
        for id in self._unfinished - unfinished.keys():
            job = outcome_of(partial(self._jobs.get, id))
            if not isinstance(job, LeapError):  # else it was removed
                self._ended[id] = job
        self._unfinished = set(unfinished)
        others = {job.id: job for job in self._jobs.list(limit=NEWEST) if job.state.is_final} | self._ended
        return [*unfinished.values(), *(job for id, job in others.items() if id not in unfinished)]


def _show_live(env: Environment, look: Callable[[], Sequence[Job]], *, ends: bool) -> None:
    """Draw the table until q is pressed; where it ``ends``, until all jobs have ended."""
    from ...display.jobs import LiveScreen

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
    told = {job.id: _watch_state(job) for job in before}
    while True:
        rows = look()
        for job in rows:
            if told.get(job.id) != _watch_state(job):
                told[job.id] = _watch_state(job)
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


def _watch_state(job: Job) -> dict[str, Any]:
    """What a change of it is a change of the job."""
    return {"state": job.state, "stopping": job.cancel_requested, "attempt": job.attempt, "done": done(job)}


def _rows(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    now = time.time()
    return [{**table_row(job), "age": age(now - job.created)} for job in jobs]
