"""``leap jobs worker`` and ``leap jobs workers``: the processes that do the jobs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from ...framework.click_classes import leap_command
from ...framework.durations import Duration, age
from ...framework.environment import Environment
from ...framework.options import option
from ...framework.output import Format, Output
from ...framework.output_format import format_flag

if TYPE_CHECKING:
    from jobs.configuration import JobsConfiguration


@leap_command("worker", short_help="Start, stop or describe the worker.")
@click.option("--foreground", is_flag=True, help="Be the worker in this terminal, until Ctrl-C.")
@click.option("--until-empty", is_flag=True, help="Be the worker in this terminal until nothing is left to do.")
@click.option(
    "--for",
    "seconds",
    type=Duration(1.0),
    metavar="TIME",
    help="Be the worker in this terminal, and after so long (55m) begin nothing more.",
)
@option("--end", "stop", formerly=("--stop",), is_flag=True, help="End the worker; what it is doing is queued again.")
@click.option("--drain", is_flag=True, help="Have the worker end after the work that it has.")
@click.option("--status", "only_status", is_flag=True, help="Tell whether a worker runs, and start none.")
@click.option("--name", metavar="NAME", help="Name one of several workers of this machine; needs jobs_url.")
@click.option(
    "--print-unit",
    type=click.Choice(["systemd", "launchd"]),
    is_flag=False,
    flag_value="systemd",
    help="Print a unit file that keeps a worker running: systemd (default) or launchd.",
)
@format_flag
@click.pass_obj
def worker(
    env: Environment,
    /,
    foreground: bool,
    until_empty: bool,
    seconds: float | None,
    stop: bool,
    drain: bool,
    only_status: bool,
    name: str | None,
    print_unit: str | None,
    format: str,
) -> None:
    """Start the worker that does the jobs, unless it runs already.

    That is seldom needed: a command that submits a job starts a worker, and it ends by itself when nothing was left to
    do for five minutes. Jobs on a server (jobs_url) need a worker that was started by hand or by a service manager, or
    as a task of a cluster, with --until-empty or --for. SIGTERM ends it, and what it was doing is queued again.
    """
    output = Output(env, format)
    foreground = foreground or until_empty or seconds is not None
    if sum((foreground, stop, drain, only_status, print_unit is not None)) > 1:
        raise click.UsageError(
            "--foreground (or --until-empty, --for), --end, --drain, --status and --print-unit exclude each other"
        )
    if print_unit is not None:
        from jobs.configuration import JobsConfiguration
        from jobs.keeper.service_files import unit_file
        from leap_core.storage.directories import absolute_home

        jobs_url = JobsConfiguration.from_environment(env.variables).jobs_url
        output.text(unit_file(print_unit, absolute_home(env.variables), name, jobs_url))
        return
    configuration = _configuration(env, name)
    if foreground:
        from jobs.worker.worker import run_in_foreground

        output.note("working; Ctrl-C ends it, and what runs then is queued again")
        run_in_foreground(configuration, until_empty=until_empty, seconds=math.inf if seconds is None else seconds)
        return
    if drain:
        from jobs.client import JobsClient

        with JobsClient(env.variables, autostart=False) as jobs:
            if not jobs.drain([configuration.worker_id]):
                output.note("no worker runs")
        return
    from jobs.keeper.keeper import WorkerKeeper

    keeper = WorkerKeeper(configuration, env.variables)
    if stop:
        if not keeper.stop():
            output.note("no worker runs")
        return
    output.record(keeper.describe() if only_status else keeper.start(), name="pid")


@leap_command("workers", short_help="List the workers that do the jobs.")
@format_flag
@click.pass_obj
def workers(env: Environment, /, format: str) -> None:
    """List the workers that do the jobs: this machine's, or with jobs_url those of all machines.

    A worker that was killed is listed as not alive until it is seen again, or for a day.
    """
    from jobs.client import JobsClient

    output = Output(env, format)
    with JobsClient(env.variables, autostart=False) as jobs:
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
        if not records:
            output.note("no worker runs")
    output.records(records, ["machine", "name", "pid", "state", "running", "seen", "models"], name="id")


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
