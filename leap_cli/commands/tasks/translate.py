"""``leap translate``."""

from __future__ import annotations

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...options.tasks.task_options import TASK, TaskSettings, read_inputs, read_task_of


@leap_command("translate")
@TASK
@click.option(
    "--to",
    "language",
    required=True,
    metavar="LANGUAGE",
    help="Translate into this language: a code such as ja, or a name.",
)
@click.option(
    "--from",
    "source",
    metavar="LANGUAGE",
    help="Take the texts to be in this language; by default the model finds out.",
)
@click.pass_obj
def command(env: Environment, /, language: str, source: str | None, settings: TaskSettings) -> ExitCode:
    """Translate FILEs, a text, or standard input, piece by piece where a text is too long for the model."""
    from ...answers.task_answers import do_task
    from ...answers.task_jobs import submit_task

    task = read_task_of({"task": "translate", "to": language, "from": source}, env)
    inputs = read_inputs(settings, env)
    if settings.background:
        return submit_task(task, inputs, settings, env)
    return do_task(task, inputs, settings, env, streams=True)
