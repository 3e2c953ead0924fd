"""``leap classify`` and ``leap decide``: the model's probabilities of given answers."""

from __future__ import annotations

import json
from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.output_format import FormatChoice
from ..options.tasks import take_task, task_flags

format_flag = click.option(
    "--format",
    type=FormatChoice(["text", "json"]),
    default="text",
    show_default=True,
    help="Print the answer alone (text), or with the probabilities, a line of json for each text.",
)


@leap_command("classify")
@task_flags
@click.option("--labels", required=True, metavar="A,B,C", help="Give each text one of these labels.")
@format_flag
@click.pass_obj
def command(env: Environment, /, labels: str, format: str, **flags: Any) -> ExitCode:
    """Give each text one of several labels: the one that the model finds likeliest. All are scored; the probabilities
    (--format json) compare them with each other and are not calibrated."""
    return _score("classify", _labels(labels), {}, format, flags, env)


@leap_command("decide")
@click.argument("question")
@task_flags
@click.option("--choices", metavar="A,B,C", help="Choose from these answers; yes and no by default.")
@click.option("--score", metavar="LOW..HIGH", help="Answer with a number in this range, such as 1..5.")
@format_flag
@click.pass_obj
def decide(
    env: Environment, /, question: str, choices: str | None, score: str | None, format: str, **flags: Any
) -> ExitCode:
    """Answer QUESTION about each text by yes or no, a choice or a score, whichever the model finds likeliest. With
    --score the expected value is told, too. Nothing is calibrated."""
    if choices is not None and score is not None:
        raise click.UsageError("--choices and --score cannot be combined")
    labels = _labels(choices) if choices else _numbers(score) if score else ["yes", "no"]
    return _score("decide", labels, {"question": question}, format, flags, env, is_score=score is not None)


def _score(
    task_name: str,
    labels: list[str],
    values: dict[str, str],
    format: str,
    flags: dict[str, Any],
    env: Environment,
    *,
    is_score: bool = False,
) -> ExitCode:
    from leap_core.tasks.scoring import option_logprobs, probabilities

    task, output = take_task(task_name, flags, env), Output(env)
    with task.opened() as (runner, wording):
        options = wording.generation_options()
        for name, text in task.texts:
            messages = wording.messages({**values, "labels": ", ".join(labels), "text": text})
            if task.dry_run:
                task.show(runner, messages, options)
                continue
            shares = probabilities(option_logprobs(runner, messages, labels, options))
            best = labels[shares.index(max(shares))]
            result: dict[str, Any] = {
                "source": name,
                "answer": best,
                "probabilities": dict(zip(labels, shares, strict=True)),
            }
            if is_score:
                result["expected"] = sum(int(label) * share for label, share in zip(labels, shares, strict=True))
            output.text((best if format == "text" else json.dumps(result, ensure_ascii=False)) + "\n")
    return ExitCode.DONE


def _labels(text: str) -> list[str]:
    labels = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if len(labels) < 2:
        raise click.UsageError("give two or more, separated by commas")
    return labels


def _numbers(text: str) -> list[str]:
    low, dots, high = text.partition("..")
    if not dots or not low.isdecimal() or not high.isdecimal() or not 0 < int(high) - int(low) <= 100:
        raise click.UsageError("--score is a range of up to 100 whole numbers, such as 1..5")
    return [str(number) for number in range(int(low), int(high) + 1)]
