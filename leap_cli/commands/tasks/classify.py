"""``leap classify``."""

from __future__ import annotations

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output_format import format_choice
from ...options.constraints import read_choices
from ...options.tasks.decisions import ASKING, Asking
from ...options.tasks.task_options import TASK, TaskSettings, read_inputs, read_task_of


@leap_command("classify")
@TASK
@click.option(
    "--labels", required=True, metavar="A,B,C", help="Give each text one of these labels (or of a JSON list)."
)
@ASKING
@format_choice(
    "Print the answer alone (text), or with the probabilities: a line of json for each text, or a table.",
    ["text", "json", "jsonl", "csv"],
    show_default=True,
)
@click.pass_obj
def command(env: Environment, /, labels: str, format: str, asking: Asking, settings: TaskSettings) -> ExitCode:
    """Give each text one of several labels: the one that the model finds likeliest. All are scored; the probabilities
    (--format json) compare them with each other and are not calibrated."""
    from ...answers.task_answers import do_task
    from ...answers.task_jobs import submit_task

    fields = {"task": "classify", "labels": read_choices([labels], "--labels"), **asking.fields}
    task = read_task_of({**fields, "format": "json" if format == "jsonl" else format}, env)
    inputs = read_inputs(settings, env)
    if settings.background:
        return submit_task(task, inputs, settings, env)
    return do_task(task, inputs, settings, env)
