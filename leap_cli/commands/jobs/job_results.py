"""``leap jobs wait`` and ``leap jobs output``: what came of a job."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...completion.value_types import JobId
from ...display.job_view import (
    EventPrinter,
    doing,
    exit_code_of_job,
    show_jobs,
    state_named,
)
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.durations import Duration
from ...framework.environment import Environment
from ...framework.output import Format, Output
from ...framework.output_format import format_flag
from ...options.background import open_jobs

if TYPE_CHECKING:
    from jobs.client import JobsClient
    from jobs.table.job import Job

PROGRESS_SECONDS = 0.5
"""The time between two looks at how far a job is."""


@leap_command("wait", short_help="Wait until jobs have ended.")
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
    with open_jobs(env) as jobs:
        job_ids = ids or [job.id for job in jobs.list(states=[state_named("queued"), state_named("running")])]
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
