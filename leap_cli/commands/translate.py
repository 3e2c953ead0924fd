"""``leap translate``."""

from __future__ import annotations

from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..options.tasks import read_inputs, read_task_of, take_flags, task_flags


@leap_command("translate")
@task_flags
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
def command(env: Environment, /, language: str, source: str | None, **flags: Any) -> ExitCode:
    """Translate FILEs, or standard input, piece by piece where a text is too long for the model."""
    from ..answers.task_jobs import submit_task
    from ..answers.tasks import do_task

    options = take_flags(flags)
    task = read_task_of({"task": "translate", "to": language, "from": source}, env)
    inputs = read_inputs(options, env)
    if options.background:
        return submit_task(task, inputs, options, env)
    return do_task(task, inputs, options, env, streams=True)
