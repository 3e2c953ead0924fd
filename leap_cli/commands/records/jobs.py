"""``leap jobs``: background work, watched, waited for, stopped, done again and removed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leap_core.system.features import own_parts

from ...completion.value_types import JobId
from ...display.jobs import (
    FINAL,
    STATES,
    EventPrinter,
    doing,
    exit_code_of_job,
    schedule_row,
    show_jobs,
    show_rows,
    state_named,
    table_row,
)
from ...exit_codes import ExitCode
from ...framework.arguments import FileName
from ...framework.click_classes import format_flag, leap_command, leap_group
from ...framework.environment import Environment
from ...framework.options import Duration, age, option
from ...framework.output import YES, Format, Output, confirm_meant, confirm_removal, removal_flags
from ...options.background import open_jobs, print_id
from .job_workers import watch, worker, workers

if TYPE_CHECKING:
    from jobs.client import JobsClient
    from jobs.table.job import Job

T = TypeVar("T")


@leap_command("cancel", short_help="Stop jobs and wait for them.")
@click.argument("ids", metavar="JOB...", nargs=-1, type=JobId("queued", "running"))
@click.option("--all", "everything", is_flag=True, help="Stop all jobs that have not ended.")
@click.option("--no-wait", is_flag=True, help="Request the stop and do not wait for it.")
@format_flag
def cancel(env: Environment, /, ids: tuple[str, ...], everything: bool, no_wait: bool, format: str) -> None:
    """Stop jobs, and return when they have stopped. Their output so far is kept."""
    if bool(ids) == everything:
        raise click.UsageError("give a JOB, or --all")
    with open_jobs(env) as jobs:

        def tell(job_ids: Iterable[str]) -> None:
            if not no_wait:
                ended = {job.id: job for job in jobs.as_they_end(job_ids)}
            show_rows(Output(env, format), [jobs.get(id) if no_wait else ended[id] for id in job_ids])

        if everything:
            tell(jobs.cancel_all())
        else:
            _for_each(ids, lambda id: jobs.cancel(id, wait=False).id, tell)


@leap_command("retry", short_help="Run failed or cancelled jobs again.")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, type=JobId("failed", "cancelled"))
@format_flag
def retry(env: Environment, /, ids: tuple[str, ...], format: str) -> None:
    """Run failed or cancelled jobs again. A download and a batch resume where they stopped."""
    with open_jobs(env) as jobs:
        _for_each(ids, jobs.retry, lambda rows: show_rows(Output(env, format), rows))


@leap_command("remove", short_help="Delete jobs that have ended.")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, type=JobId(*FINAL))
@YES
@format_flag
def remove(env: Environment, /, ids: tuple[str, ...], yes: bool, format: str) -> None:
    """Delete jobs that have ended, and their output. Files that they wrote stay."""
    output = Output(env, format)
    with open_jobs(env, autostart=False) as jobs:
        if not confirm_meant(env, jobs.meant_by(ids), yes=yes):
            return
        _for_each(ids, jobs.remove, lambda removed: output.records([{"id": id} for id in removed], ["id"], name="id"))


@leap_command("prune", short_help="Delete all jobs that have ended, or old ones.")
@click.option(
    "--older-than", type=Duration(), default="0s", help="Delete only jobs that ended longer ago than this, such as 7d."
)
@click.option(
    "--state", "states", type=click.Choice(FINAL), multiple=True, help="Delete only jobs that ended in this state."
)
@removal_flags
@format_flag
def prune(
    env: Environment, /, older_than: float, states: tuple[str, ...], yes: bool, dry_run: bool, format: str
) -> None:
    """Delete all jobs that have ended, with their results, or only older ones."""
    ended = [*map(state_named, states or FINAL)]
    with open_jobs(env, autostart=False) as jobs:
        removed: Sequence[str] = jobs.prunable(older_than, ended)
        what = "1 job and its result" if len(removed) == 1 else f"{len(removed)} jobs and their results"
        if removed and confirm_removal(env, what, yes=yes, dry_run=dry_run):
            removed = jobs.prune(older_than, ended)
        elif not dry_run:
            removed = []
    Output(env, format).records([{"id": id} for id in removed], ["id"], name="id")


def _for_each(ids: Iterable[str], action: Callable[[str], T], tell: Callable[[list[T]], object]) -> None:
    """One after the other; ``tell`` prints those that were done, also when a later one cannot be."""
    done: list[T] = []
    try:
        for id in ids:
            done.append(action(id))
    except BaseException:
        if done:
            tell(done)
        raise
    tell(done)


FEATURES = {"web UI": "leap_cli.commands.records.job_page:page"}
PROGRESS_SECONDS = 0.5
"""The time between two looks at how far a job is."""


@leap_command("wait", short_help="Wait until jobs have ended.")
@click.argument("ids", metavar="[JOB]...", nargs=-1, type=JobId("queued", "running"))
@click.option("--timeout", type=Duration(), help="Wait at most this long, such as 30s or 5m.")
@format_flag
def wait(env: Environment, /, ids: tuple[str, ...], timeout: float | None, format: str) -> ExitCode:
    """Wait until jobs have ended, and print the answers of those that generated one; without a JOB wait for all.

    The exit code is that of the first job that did not succeed, as its command would return it in the foreground.
    Examples: 3 for a missing model, 8 for failed lines of a batch, 130 for a cancelled job. On timeout it is 9.
    """
    from jobs.table.job import STANDING

    output = Output(env, format)
    deadline = None if timeout is None else time.monotonic() + timeout
    ended: list[Job] = []
    late: list[Job] = []
    with open_jobs(env) as jobs:
        unfinished = jobs.list(states=[state_named("queued"), state_named("running")])
        job_ids = ids or [job.id for job in unfinished if job.kind not in STANDING]
        for job in filter(lambda job: job.kind in STANDING and not job.state.is_final, map(jobs.get, ids)):
            raise click.UsageError(f"the {job.kind} {job.id} has no end to wait for: leap jobs cancel ends it")
        try:
            for id in job_ids:
                ended.append(_wait_with_progress(jobs, id, deadline, output))
                if output.format is Format.TEXT:
                    _print_answer(jobs, ended[-1], output, titled=len(job_ids) > 1)
        except TimeoutError:
            late = [jobs.get(id) for id in job_ids[len(ended) :]]
        if output.format in (Format.JSON, Format.JSONL):
            show_jobs(output, ended + late, jobs)
    if late:
        output.error(f"the job {late[0].id} is still {late[0].state.value} after {timeout:g} s")
        return ExitCode.TIMEOUT
    codes = []
    for job in ended:
        codes.append(exit_code_of_job(job))
        if job.state.value == "failed":
            error = job.error or {}
            output.error(f"the job {job.id}: {error.get('message', 'failed')}", error.get("hint"))
        elif job.state.value == "cancelled":
            output.error(f"the job {job.id} was cancelled")
    return next((code for code in codes if code), ExitCode.DONE)


@leap_command("output", short_help="Print a job's results.")
@click.argument("id", metavar="JOB", type=JobId())
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write results to this file instead of standard output.",
)
@format_flag
def print_output(env: Environment, /, id: str, path: Path | None, format: str) -> None:
    """Print the results of a batch, the answer of a generation, or the output of a command, in order, as far as
    available.

    With -o they go to FILE; the same command later appends the rest, also while the job runs.
    """
    output = Output(env, format)
    with open_jobs(env, autostart=False) as jobs:
        if path is not None:
            count = jobs.write_output(id, env.cwd / path)
            output.note(f"{count} lines written to {path}")
        elif output.format is Format.TEXT:
            for line in jobs.output(id):
                output.text(f"{line}\n")
        else:
            lines = ({"number": n, "line": line} for n, line in enumerate(jobs.output(id), 1))
            output.records(list(lines), ["number", "line"], name="line")


def _wait_with_progress(jobs: JobsClient, id: str, deadline: float | None, output: Output) -> Job:
    """The ended job; a terminal's last line says how far it is meanwhile. Raises TimeoutError."""
    while True:
        left = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            return jobs.wait(id, min(left, PROGRESS_SECONDS))
        except TimeoutError:
            if left <= PROGRESS_SECONDS:
                raise
        output.progress(doing(jobs.get(id)))


def _print_answer(jobs: JobsClient, job: Job, output: Output, *, titled: bool) -> None:
    results = "kept_output" in job.parameters or job.parameters.get("do") == "leap"
    if (job.kind not in ("generate", "transcribe") and not results) or job.state.value != "succeeded":
        return
    if titled:
        output.note(f"{job.id}: {job.label}")
    if results:
        for line in jobs.output(job.id):
            output.text(f"{line}\n")
        return
    printer = EventPrinter(output)
    for event in jobs.events(job.id):
        printer.show(event)
    printer.end()


LARGEST = 2**63 - 1
"""The largest integer of SQLite."""
KINDS = ("download", "generate", "transcribe", "batch", "function", "command", "webhook", "schedule", "folder")


@leap_group("jobs")
def command() -> None:
    """Background jobs, submitted with --background: they survive the terminal and the death of any process.

    A job is identified by its id, or by a prefix of it.
    """


MAKES_ONE = "; --background makes one of most commands that work for long"
NEWEST = 50
"""Jobs that are listed for people where no limit is given."""


@command.command("list", short_help="List jobs, newest first.")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="List only jobs in this state.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="List only jobs of this kind.")
@click.option("--schedule", type=JobId("queued"), help="List only the runs of this schedule.")
@option(
    "--limit",
    type=click.IntRange(1, LARGEST),
    help="List at most this many jobs; by default all, and in text the newest 50.",
)
@format_flag
def list_jobs(
    env: Environment,
    /,
    states: tuple[str, ...],
    kinds: tuple[str, ...],
    schedule: str | None,
    limit: int | None,
    format: str,
) -> None:
    """List jobs, newest first."""
    output = Output(env, format)
    with open_jobs(env) as jobs:
        jobs.ensure_worker_for_unfinished()
        wanted: dict[str, Any] = {"states": [*map(state_named, states)], "kinds": kinds, "schedule": schedule}
        most = NEWEST if limit is None and output.format is Format.TEXT else limit
        rows = jobs.list(limit=most, **wanted)
        left = jobs.count(**wanted) - len(rows) if most == len(rows) and output.format is Format.TEXT else 0
    records = [job.to_json() for job in rows]
    if output.format is Format.TEXT:
        records = [{**table_row(job), "age": age(time.time() - job.created)} for job in rows]
    none = "there are no such jobs" if states or kinds or schedule else f"there are no jobs{MAKES_ONE}"
    output.records(records, ["id", "kind", "state", "done", "age", "what"], name="id", none=none)
    if left > 0:
        output.note(f"{left} more; --limit {left + len(rows)} lists all")


@command.command(short_help="Show the state of jobs.")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, type=JobId())
@option("--follow", "watch", is_flag=True, help="Print every change until the jobs have ended.")
@format_flag
def status(env: Environment, /, ids: tuple[str, ...], watch: bool, format: str) -> None:
    """Show the state of jobs."""
    output = Output(env, format)
    with open_jobs(env) as jobs:
        if not watch:
            jobs.ensure_worker_for_unfinished()
            show_jobs(output, [jobs.get(id) for id in ids], jobs)
            return
        ended = []
        for id in ids:
            for job in jobs.changes(id):
                if output.format is Format.JSONL:
                    output.event(job.to_json())
                elif not job.state.is_final:
                    output.progress(doing(job))
            ended.append(job)
            if output.format in (Format.TEXT, Format.QUIET):
                show_jobs(output, [job], jobs)
        if output.format is Format.JSON:
            show_jobs(output, ended, jobs)


@command.command(short_help="Print the output of a job.")
@click.argument("id", metavar="JOB", type=JobId())
@option("--follow", is_flag=True, help="Follow the output until the job has ended.")
@click.option(
    "--attempt", type=click.IntRange(1, LARGEST), help="Print the output of this attempt instead of the newest."
)
@format_flag
def logs(env: Environment, /, id: str, follow: bool, attempt: int | None, format: str) -> None:
    """Print the output of a job: the text of an answer as it is generated, or the messages of other work."""
    output = Output(env, format)
    printer = EventPrinter(output)
    with open_jobs(env, autostart=follow) as jobs:
        if follow and attempt is None:
            for event in jobs.follow(id):
                printer.show(event)
        else:
            for event in jobs.events(id, attempt):
                printer.show(event)
    printer.end()


@command.command(short_help="Watch a folder: run a command for each new file.")
@click.argument("directory", metavar="DIR", type=FileName())
@click.argument("arguments", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@option(
    "--include",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Process only files whose path matches, such as '*.pdf'.",
)
@format_flag
def folder(
    env: Environment, /, directory: str, arguments: tuple[str, ...], patterns: tuple[str, ...], format: str
) -> None:
    """Watch DIR and run a leap command for each file in it, now and later.

    {} is the file's path, {name} its name and {stem} its name without the extension. Each file is processed once by
    name and content, when it has stopped growing. If an output exists or belongs to another file, the output gets the
    file's full name, then a number. The job's id is printed; leap jobs logs shows the processed files, and leap jobs
    cancel stops the watch.
    """
    from ...command_table import COMMANDS
    from ...options.stored_commands import read_command

    if arguments[0] not in COMMANDS:
        raise click.UsageError(f"{arguments[0]!r} is no command of leap")
    line = read_command(arguments, env)
    if any(each.partition("=")[0] == "--every" for each in line.options):
        raise click.UsageError(
            "--every would make a schedule of each file: `leap jobs folder` runs the command once for a new file, and "
            "`leap COMMAND FOLDER --every TIME --new-files` takes the new files at those times"
        )
    with open_jobs(env) as jobs:
        id = jobs.watch_folder(Path(directory), line.words, patterns=patterns, cwd=env.cwd, outputs=line.outputs)
        print_id(Output(env, format), id)


@command.command(short_help="List scheduled jobs.")
@option("--suspend", "paused", type=JobId(), metavar="ID", help="Suspend this schedule until it is resumed.")
@option("--resume", "resumed", type=JobId(), metavar="ID", help="Resume this schedule with its next run.")
@option("--run", "now", type=JobId(), metavar="ID", help="Run this schedule now, too, and print the job's id.")
@format_flag
def schedules(env: Environment, /, paused: str | None, resumed: str | None, now: str | None, format: str) -> None:
    """List scheduled jobs (--every): when the next run is due, and how the last one ended.

    leap jobs cancel stops a schedule.
    """
    from jobs.scheduling.schedules import pause, resume, run_now

    output = Output(env, format)
    with open_jobs(env) as jobs:
        if now is not None:
            print_id(output, run_now(jobs.table, jobs.get(now)))
            jobs.ensure_worker()
            return
        for id, change in ((paused, pause), (resumed, resume)):
            if id is not None:
                change(jobs.table, jobs.get(id))
        jobs.ensure_worker_for_unfinished()
        found = jobs.list(states=[state_named("queued")], kinds=["schedule"])
        records = [schedule_row(job, jobs) for job in found]
    none = "there are no schedules; --every makes one of what --background makes a job of"
    output.records(records, ["id", "next", "last", "runs", "what"], name="id", none=none)


@command.command(short_help="Count jobs by kind and state.")
@format_flag
def stats(env: Environment, /, format: str) -> None:
    """Count jobs by kind and state."""
    output = Output(env, format)
    with open_jobs(env) as jobs:
        jobs.ensure_worker_for_unfinished()
        statistics = jobs.stats()
    if output.format is Format.JSON:
        output.document(statistics)
        return
    records = [{"kind": kind, **counts} for kind, counts in statistics["jobs"].items()]
    output.records(records, ["kind", *STATES], name="kind")
    if output.format is Format.TEXT:
        pid = statistics["worker"]["pid"]
        output.note(f"a worker runs (process {pid})" if statistics["worker"]["running"] else "no worker runs")


for each in (watch, wait, print_output, cancel, retry, remove, prune, worker, workers, *own_parts(FEATURES).values()):
    command.add_command(each)
