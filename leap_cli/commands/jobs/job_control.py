"""``leap jobs cancel``, ``retry``, ``remove`` and ``prune``: jobs are stopped, done again and forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from ...completion.value_types import JobId
from ...display.job_view import (
    FINAL,
    show_rows,
    state_named,
)
from ...framework.click_classes import leap_command
from ...framework.confirmation import confirm_removal, removal_flags
from ...framework.durations import Duration
from ...framework.environment import Environment
from ...framework.output import Output
from ...framework.output_format import format_flag
from ...options.background import open_jobs

if TYPE_CHECKING:
    pass

T = TypeVar("T")


@leap_command("cancel", short_help="Stop jobs, and wait until they have stopped.")
@click.argument("ids", metavar="JOB...", nargs=-1, type=JobId("queued", "running"))
@click.option("--all", "everything", is_flag=True, help="Stop all jobs that have not ended.")
@click.option("--no-wait", is_flag=True, help="Ask the jobs to stop, and do not wait until they have.")
@format_flag
@click.pass_obj
def cancel(env: Environment, /, ids: tuple[str, ...], everything: bool, no_wait: bool, format: str) -> None:
    """Stop jobs, and return when they have really stopped. What they have put out is kept."""
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


@leap_command("retry", short_help="Do failed or cancelled jobs again.")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, type=JobId("failed", "cancelled"))
@format_flag
@click.pass_obj
def retry(env: Environment, /, ids: tuple[str, ...], format: str) -> None:
    """Do failed or cancelled jobs again. A download and a batch go on where they were."""
    with open_jobs(env) as jobs:
        _for_each(ids, jobs.retry, lambda rows: show_rows(Output(env, format), rows))


@leap_command("remove", short_help="Forget jobs that have ended.")
@click.argument("ids", metavar="JOB...", nargs=-1, required=True, type=JobId(*FINAL))
@format_flag
@click.pass_obj
def remove(env: Environment, /, ids: tuple[str, ...], format: str) -> None:
    """Forget jobs that have ended, and what they have put out. Files that they wrote stay."""
    output = Output(env, format)
    with open_jobs(env, autostart=False) as jobs:
        _for_each(ids, jobs.remove, lambda removed: output.records([{"id": id} for id in removed], ["id"], name="id"))


@leap_command("prune", short_help="Forget all jobs that have ended, or the old ones.")
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
