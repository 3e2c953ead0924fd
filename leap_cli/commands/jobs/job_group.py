"""``leap jobs``: background work, watched and steered."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...completion.value_types import JobId
from ...display.jobs import EventPrinter, doing, exit_code_of_job, table_row
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_group
from ...framework.confirmation import confirm_removal, removal_flags
from ...framework.durations import Duration, age
from ...framework.environment import Environment
from ...framework.options import option
from ...framework.output import Format, Output
from ...framework.output_format import format_flag
from .job_page import page
from .job_workers import worker, workers
from .jobs_watch import watch

if TYPE_CHECKING:
    from jobs.client import JobsClient
    from jobs.table.job import Job

T = TypeVar("T")
STATES = ("queued", "running", "succeeded", "failed", "cancelled")
FINAL = STATES[2:]
LARGEST = 2**63 - 1
"""Of SQLite's integers."""
PROGRESS_SECONDS = 0.5
"""Between two looks at how far a job is."""
KINDS = ("download", "generate", "batch")


@leap_group("jobs")
def command() -> None:
    """Work in the background, submitted with --background: it survives the terminal, and the death of any process.

    A job is named by its id, or by the beginning of it.
    """


@command.command("list", short_help="List jobs, newest first.")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="List only jobs in this state.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="List only jobs of this kind.")
@option("--limit", formerly=("-n",), type=click.IntRange(1, LARGEST), metavar="N", help="List at most this many jobs.")
@click.option("-q", "--quiet", is_flag=True, hidden=True, help="Ids only: the same as --format quiet.")
@format_flag
@click.pass_obj
def list_jobs(
    env: Environment,
    /,
    states: tuple[str, ...],
    kinds: tuple[str, ...],
    limit: int | None,
    quiet: bool,
    format: str,
) -> None:
    """List jobs, newest first."""
    output = Output(env, Format.QUIET if quiet else format)
    with _client(env) as jobs:
        jobs.ensure_worker_for_unfinished()
        rows = jobs.list(states=[*map(_state, states)], kinds=kinds, limit=limit)
    records = [job.to_json() for job in rows]
    if output.format is Format.TEXT:
        records = [{**table_row(job), "age": age(time.time() - job.created)} for job in rows]
        if not records:
            output.note("there are no jobs; --background makes one of generate, batch and download")
    output.records(records, ["id", "kind", "state", "done", "age", "what"], name="id")


@command.command(short_help="Tell how jobs are doing.")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, type=JobId())
@option(
    "--follow",
    "watch",
    formerly=("--watch", "-w"),
    is_flag=True,
    help="Go on until the jobs have ended, and tell every change.",
)
@format_flag
@click.pass_obj
def status(env: Environment, /, ids: tuple[str, ...], watch: bool, format: str) -> None:
    """Tell how jobs are doing."""
    output = Output(env, format)
    with _client(env) as jobs:
        if not watch:
            jobs.ensure_worker_for_unfinished()
            _show(output, [jobs.get(id) for id in ids], jobs)
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
                _show(output, [job], jobs)
        if output.format is Format.JSON:
            _show(output, ended, jobs)


@command.command(short_help="Print what a job has put out.")
@click.argument("id", metavar="JOB", type=JobId())
@option("--follow", formerly=("-f",), is_flag=True, help="Go on printing until the job has ended.")
@click.option(
    "--attempt",
    type=click.IntRange(1, LARGEST),
    metavar="N",
    help="Print what this attempt put out, instead of the newest.",
)
@format_flag
@click.pass_obj
def logs(env: Environment, /, id: str, follow: bool, attempt: int | None, format: str) -> None:
    """Print what a job has put out: the text of an answer as it comes, or what there was to tell of other work."""
    output = Output(env, format)
    printer = EventPrinter(output)
    with _client(env, autostart=follow) as jobs:
        if follow and attempt is None:
            for event in jobs.follow(id):
                printer.show(event)
        else:
            for event in jobs.events(id, attempt):
                printer.show(event)
    printer.end()


@command.command(short_help="Wait until jobs have ended.")
@click.argument("ids", metavar="[JOB]...", nargs=-1, type=JobId("queued", "running"))
@click.option("--timeout", type=Duration(), metavar="TIME", help="Wait at most this long, such as 30s or 5m.")
@format_flag
@click.pass_obj
def wait(env: Environment, /, ids: tuple[str, ...], timeout: float | None, format: str) -> ExitCode:
    """Wait until jobs have ended, and print the answers of those that generated one; without a JOB wait for all.

    The exit code is that of the first job that did not succeed: what its command would have returned in the
    foreground, such as 3 for a model that is not there or 8 for failed lines of a batch; 130 for a cancelled one; and 9
    when the time is over.
    """
    output = Output(env, format)
    deadline = None if timeout is None else time.monotonic() + timeout
    ended: list[Job] = []
    late: list[Job] = []
    with _client(env) as jobs:
        job_ids = ids or [job.id for job in jobs.list(states=[_state("queued"), _state("running")])]
        try:
            for id in job_ids:
                ended.append(_wait_with_progress(jobs, id, deadline, output))
                if output.format is Format.TEXT:
                    _print_answer(jobs, ended[-1], output, titled=len(job_ids) > 1)
        except TimeoutError:
            late = [jobs.get(id) for id in job_ids[len(ended) :]]
        if output.format in (Format.JSON, Format.JSONL):
            _show(output, ended + late, jobs)
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


@command.command(short_help="Stop jobs, and wait until they have stopped.")
@click.argument("ids", metavar="JOB...", nargs=-1, type=JobId("queued", "running"))
@click.option("--all", "everything", is_flag=True, help="Stop all jobs that have not ended.")
@click.option("--no-wait", is_flag=True, help="Ask the jobs to stop, and do not wait until they have.")
@format_flag
@click.pass_obj
def cancel(env: Environment, /, ids: tuple[str, ...], everything: bool, no_wait: bool, format: str) -> None:
    """Stop jobs, and return when they have really stopped. What they have put out is kept."""
    if bool(ids) == everything:
        raise click.UsageError("give a JOB, or --all")
    with _client(env) as jobs:

        def tell(job_ids: Iterable[str]) -> None:
            if not no_wait:
                ended = {job.id: job for job in jobs.as_they_end(job_ids)}
            _show_rows(Output(env, format), [jobs.get(id) if no_wait else ended[id] for id in job_ids])

        if everything:
            tell(jobs.cancel_all())
        else:
            _for_each(ids, lambda id: jobs.cancel(id, wait=False).id, tell)


@command.command(short_help="Do failed or cancelled jobs again.")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, type=JobId("failed", "cancelled"))
@format_flag
@click.pass_obj
def retry(env: Environment, /, ids: tuple[str, ...], format: str) -> None:
    """Do failed or cancelled jobs again. A download and a batch go on where they were."""
    with _client(env) as jobs:
        _for_each(ids, jobs.retry, lambda rows: _show_rows(Output(env, format), rows))


@command.command(short_help="Forget jobs that have ended.")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, type=JobId(*FINAL))
@format_flag
@click.pass_obj
def remove(env: Environment, /, ids: tuple[str, ...], format: str) -> None:
    """Forget jobs that have ended, and what they have put out. Files that they wrote stay."""
    output = Output(env, format)
    with _client(env, autostart=False) as jobs:
        _for_each(ids, jobs.remove, lambda removed: output.records([{"id": id} for id in removed], ["id"], name="id"))


@command.command(short_help="Forget all jobs that have ended, or the old ones.")
@click.option(
    "--older-than",
    type=Duration(),
    default="0s",
    metavar="TIME",
    help="Forget only jobs that ended longer ago than this, such as 7d.",
)
@click.option(
    "--state", "states", type=click.Choice(FINAL), multiple=True, help="Forget only jobs that ended in this state."
)
@removal_flags
@format_flag
@click.pass_obj
def prune(
    env: Environment, /, older_than: float, states: tuple[str, ...], yes: bool, dry_run: bool, format: str
) -> None:
    """Forget all jobs that have ended, with their results, or those that did so longer ago."""
    ended = [*map(_state, states or FINAL)]
    with _client(env, autostart=False) as jobs:
        removed: Sequence[str] = jobs.prunable(older_than, ended)
        what = "1 job and its result" if len(removed) == 1 else f"{len(removed)} jobs and their results"
        if removed and confirm_removal(env, what, yes=yes, dry_run=dry_run):
            removed = jobs.prune(older_than, ended)
        elif not dry_run:
            removed = []
    Output(env, format).records([{"id": id} for id in removed], ["id"], name="id")


@command.command("output", short_help="Print a job's results.")
@click.argument("id", metavar="JOB", type=JobId())
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write results to this file instead of standard output.",
)
@format_flag
@click.pass_obj
def print_output(env: Environment, /, id: str, path: Path | None, format: str) -> None:
    """Print the results of a batch, or the answer of a generation, as far as they are there and in order.

    With -o they go to FILE; the same command later goes on where it ended, also while the job runs.
    """
    output = Output(env, format)
    with _client(env, autostart=False) as jobs:
        if path is not None:
            count = jobs.write_output(id, env.cwd / path)
            output.note(f"{count} lines written to {path}")
        elif output.format is Format.TEXT:
            for line in jobs.output(id):
                output.text(f"{line}\n")
        else:
            lines = ({"number": n, "line": line} for n, line in enumerate(jobs.output(id), 1))
            output.records(list(lines), ["number", "line"], name="line")


@command.command(short_help="Count jobs by kind and state.")
@format_flag
@click.pass_obj
def stats(env: Environment, /, format: str) -> None:
    """Count jobs by kind and state."""
    output = Output(env, format)
    with _client(env) as jobs:
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


command.add_command(watch)
command.add_command(worker)
command.add_command(workers)
command.add_command(page)


def _client(env: Environment, *, autostart: bool = True) -> JobsClient:
    from jobs.client import JobsClient

    return JobsClient(env.variables, autostart=autostart, on_warning=Output(env, Format.TEXT).note)


def _for_each(ids: Iterable[str], action: Callable[[str], T], tell: Callable[[list[T]], object]) -> None:
    """One after the other, then tell of them; of those that were done also when a later one cannot be."""
    done: list[T] = []
    try:
        for id in ids:
            done.append(action(id))
    except BaseException:
        if done:
            tell(done)
        raise
    tell(done)


def _state(name: str) -> Any:
    from jobs.table.job import State

    return State(name)


def _show(output: Output, jobs: Sequence[Job], client: JobsClient) -> None:
    """Each job in full; with json one document for one job, a list for several."""
    waits_for = {job.id: {"waits_for": client.waiting_reason(job)} for job in jobs}
    if output.format is Format.JSON and len(jobs) != 1:
        output.document([job.to_json() | waits_for[job.id] for job in jobs])
        return
    for n, job in enumerate(jobs):
        if output.format is Format.TEXT:
            output.text("\n" if n else "")
            record = table_row(job) | waits_for[job.id]
            output.record({name: value for name, value in record.items() if value is not None}, name="id")
        else:
            output.record(job.to_json() | waits_for[job.id], name="id")


def _show_rows(output: Output, jobs: Iterable[Job]) -> None:
    text = output.format is Format.TEXT
    output.records(
        [table_row(job) if text else job.to_json() for job in jobs], ["id", "kind", "state", "what"], name="id"
    )


def _wait_with_progress(jobs: JobsClient, id: str, deadline: float | None, output: Output) -> Job:
    """The ended job; how far it is stands in a terminal's last line meanwhile. Raises TimeoutError."""
    while True:
        left = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            return jobs.wait(id, min(left, PROGRESS_SECONDS))
        except TimeoutError:
            if left <= PROGRESS_SECONDS:
                raise
        output.progress(doing(jobs.get(id)))


def _print_answer(jobs: JobsClient, job: Job, output: Output, *, titled: bool) -> None:
    results = "kept_output" in job.parameters
    if (job.kind != "generate" and not results) or job.state.value != "succeeded":
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
