"""``leap classify`` and ``leap decide``: the model's probabilities of given answers."""

from __future__ import annotations

from typing import Any

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output_format import format_choice
from ...options.constraints import read_choices
from ...options.tasks import TASK, TaskSettings, read_inputs, read_task_of

format_flag = format_choice(
    "Print the answer alone (text), or with the probabilities: a line of json for each text, or a table.",
    ["text", "json", "jsonl", "csv"],
    show_default=True,
)


@leap_command("classify")
@TASK
@click.option(
    "--labels", required=True, metavar="A,B,C", help="Give each text one of these labels (or of a JSON list)."
)
@format_flag
@click.pass_obj
def command(env: Environment, /, labels: str, format: str, settings: TaskSettings) -> ExitCode:
    """Give each text one of several labels: the one that the model finds likeliest. All are scored; the probabilities
    (--format json) compare them with each other and are not calibrated."""
    return _choose({"task": "classify", "labels": read_choices([labels], "--labels")}, format, settings, env)


@leap_command("decide")
@click.argument("question")
@TASK
@click.option("--choices", metavar="A,B,C", help="Choose from these answers (or a JSON list); yes and no by default.")
@click.option("--score", metavar="LOW..HIGH", help="Answer with a number in this range, such as 1..5.")
@format_flag
@click.pass_obj
def decide(
    env: Environment, /, question: str, choices: str | None, score: str | None, format: str, settings: TaskSettings
) -> ExitCode:
    """Answer QUESTION about each text by yes or no, a choice or a score, whichever the model finds likeliest. With
    --score the expected value is told, too. Nothing is calibrated."""
    if choices is not None and score is not None:
        raise click.UsageError("--choices and --score cannot be combined")
    answers: dict[str, Any] = {} if choices is None else {"choices": read_choices([choices], "--choices")}
    answers |= {} if score is None else {"score": score}
    if not question.strip():
        raise click.UsageError("the question is empty")
    return _choose({"task": "decide", "question": question, **answers}, format, settings, env)


def _choose(fields: dict[str, Any], format: str, settings: TaskSettings, env: Environment) -> ExitCode:
    from ...answers.task_jobs import submit_task
    from ...answers.tasks import do_task

    task = read_task_of({**fields, "format": "json" if format == "jsonl" else format}, env)
    inputs = read_inputs(settings, env)
    if settings.background:
        return submit_task(task, inputs, settings, env)
    return do_task(task, inputs, settings, env)
