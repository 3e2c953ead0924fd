"""``leap redact``."""

from __future__ import annotations

import json
from typing import Any

import click

from leap_core.errors import LeapSerializationError

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...input.text_files import read_text_file
from ...options.tasks.task_options import NO_TEXT, STDIN, TASK, TaskInput, TaskSettings, read_sources, read_task_of

CATEGORIES = "address, company_name, email_address, human_name, phone_number, iban, card_number and url"


@leap_command("redact")
@TASK
@click.option(
    "--categories",
    metavar="A,B",
    help=f"Mask these kinds of data; by default {CATEGORIES}.",
)
@click.option(
    "--patterns/--no-patterns",
    default=True,
    help="Find mail addresses, telephone numbers, IBANs, cards and URLs by expressions, too (default), or by the model "
    "alone.",
)
@click.option("--map", "map_file", metavar="FILE", help="Write what each mask stands for to this JSON file.")
@click.option("--restore", metavar="FILE", help="Take off the masks that this file of --map explains; needs no model.")
@click.pass_obj
def command(
    env: Environment,
    /,
    categories: str | None,
    patterns: bool,
    map_file: str | None,
    restore: str | None,
    settings: TaskSettings,
) -> ExitCode:
    """Mask personal data in FILEs, a text, or standard input: the model and expressions list it, and every occurrence
    is masked and counted. What neither lists stays. Several FILEs are one text."""
    from leap_core.messages import ChatMessage

    from ...answers.task_answers import do_task
    from ...answers.task_jobs import submit_task

    if restore is not None:
        return _restore(restore, settings, env)
    fields = {"task": "redact", "categories": categories, "patterns": patterns, "lines": settings.lines}
    task = read_task_of(fields, env)
    inputs = [TaskInput(" ".join(settings.files) or STDIN, ChatMessage("user", _whole(settings, env)))]
    if settings.background:
        if map_file is not None:
            raise click.UsageError("--map cannot be combined with --background: the results of the job have the map")
        return submit_task(task, inputs, settings, env, form="plain")

    def write(output: Output, _each: TaskInput, text: str, details: dict[str, Any]) -> None:
        if map_file is not None:
            _write_map(map_file, details.get("map", {}), env)
        output.text(text)
        counts = [f"{count} {category}" for category, count in details.get("masked", {}).items()]
        if counts:
            output.note(f"masked {', '.join(counts)}")
        else:
            output.warning("nothing was masked")

    return do_task(task, inputs, settings, env, write=write)


def _restore(file: str, settings: TaskSettings, env: Environment) -> ExitCode:
    from leap_core.tasks.masking import unmask

    from ...answers.file import writing_to

    try:
        masks = json.loads(read_text_file(file, env))
    except ValueError as error:
        raise click.UsageError(f"--restore {file} is not JSON: {error}") from None
    if isinstance(masks, dict) and isinstance(masks.get("map"), dict):  # a result of a job or a batch
        masks = masks["map"]
    if not isinstance(masks, dict) or not all(isinstance(text, str) and mask for mask, text in masks.items()):
        raise LeapSerializationError(f"{file} is no map of masks", hint="leap redact --map FILE writes one")
    with writing_to(settings.target, env) as place:
        Output(place).text(unmask(_whole(settings, env), masks))
    return ExitCode.DONE


def _whole(settings: TaskSettings, env: Environment) -> str:
    """All texts as one, to the byte where there is one source."""
    texts = [text for _, text in read_sources(settings.files, env)]
    whole = "".join(text if text.endswith("\n") or n == len(texts) else f"{text}\n" for n, text in enumerate(texts, 1))
    if not whole.strip():
        raise click.UsageError(NO_TEXT)
    return whole


def _write_map(name: str, masks: dict[str, str], env: Environment) -> None:
    from leap_core.storage.atomic_files import replace_text

    replace_text(env.cwd / name, json.dumps(masks, ensure_ascii=False, indent=2) + "\n")
