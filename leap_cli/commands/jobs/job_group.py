"""``leap jobs``: background work, watched and steered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ...completion.value_types import JobId
from ...display.job_view import (
    STATES,
    EventPrinter,
    doing,
    show_jobs,
    state_named,
    table_row,
)
from ...framework.click_classes import leap_group
from ...framework.durations import age
from ...framework.environment import Environment
from ...framework.options import option
from ...framework.output import Format, Output
from ...framework.output_format import format_flag
from ...options.background import open_jobs
from .job_control import cancel, prune, remove, retry
from .job_page import page
from .job_results import print_output, wait
from .job_workers import worker, workers
from .jobs_watch import watch

if TYPE_CHECKING:
    pass

LARGEST = 2**63 - 1
"""The largest integer of SQLite."""
KINDS = ("download", "generate", "batch", "quantize")


@leap_group("jobs")
def command() -> None:
    """Work in the background, submitted with --background: it survives the terminal, and the death of any process.

    A job is named by its id, or by the beginning of it.
    """


MAKES_ONE = "; --background makes one of generate, batch, download and quantize"


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
    with open_jobs(env) as jobs:
        jobs.ensure_worker_for_unfinished()
        rows = jobs.list(states=[*map(state_named, states)], kinds=kinds, limit=limit)
    records = [job.to_json() for job in rows]
    if output.format is Format.TEXT:
        records = [{**table_row(job), "age": age(time.time() - job.created)} for job in rows]
        if not records:
            wished = states or kinds
            output.note(f"there are no {'such ' if wished else ''}jobs{'' if wished else MAKES_ONE}")
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
    with open_jobs(env, autostart=follow) as jobs:
        if follow and attempt is None:
            for event in jobs.follow(id):
                printer.show(event)
        else:
            for event in jobs.events(id, attempt):
                printer.show(event)
    printer.end()


@command.command(short_help="Count jobs by kind and state.")
@format_flag
@click.pass_obj
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


for each in (watch, wait, print_output, cancel, retry, remove, prune, worker, workers, page):
    command.add_command(each)
