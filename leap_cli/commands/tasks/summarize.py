"""``leap summarize``."""

from __future__ import annotations

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...options.tasks.task_options import TASK, TaskSettings, read_inputs, read_task_of

KINDS = ("executive", "detailed", "actions", "decisions", "participants", "topics")


@leap_command("summarize")
@TASK
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="Write this kind of summary.",
)
@click.pass_obj
def command(env: Environment, /, kind: str, settings: TaskSettings) -> ExitCode:
    """Summarize FILEs, a text, or standard input. A text beyond the context is cut, and the summaries of its pieces are
    summarized, until one is left; --verbose shows how."""
    from ...answers.task_answers import do_task
    from ...answers.task_jobs import submit_task

    task = read_task_of({"task": "summarize", "kind": kind}, env)
    inputs = read_inputs(settings, env)
    if settings.background:
        return submit_task(task, inputs, settings, env)
    return do_task(task, inputs, settings, env, streams=True)
