"""``leap redact``."""

from __future__ import annotations

import json
from typing import Any

import click

from leap_core.errors import LeapSerializationError

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..input.text_files import read_text_file
from ..options.tasks import STDIN, TaskFlags, TaskInput, read_source, read_task_of, take_flags, task_flags

CATEGORIES = "address,company_name,email_address,human_name,phone_number"


@leap_command("redact")
@task_flags
@click.option(
    "--categories",
    default=CATEGORIES,
    metavar="A,B",
    help=f"Mask these kinds of data; by default {', '.join(CATEGORIES.split(','))}.",
)
@click.option("--map", "map_file", metavar="FILE", help="Write what each mask stands for to this JSON file.")
@click.option("--restore", metavar="FILE", help="Take off the masks that this file of --map explains; needs no model.")
@click.pass_obj
def command(env: Environment, /, categories: str, map_file: str | None, restore: str | None, **flags: Any) -> ExitCode:
    """Mask personal data in FILEs, or standard input: the model lists it, and every occurrence is masked. What the
    model does not list stays. Several FILEs are one text."""
    from leap_core.messages import ChatMessage

    from ..answers.task_jobs import submit_task
    from ..answers.tasks import do_task

    options = take_flags(flags)
    if restore is not None:
        return _restore(restore, options, env)
    fields = {"task": "redact", "categories": categories, "lines": options.lines}
    task = read_task_of(fields, env)
    inputs = [TaskInput(" ".join(options.files) or STDIN, ChatMessage("user", _whole(options, env)))]
    if options.background:
        if map_file is not None:
            raise click.UsageError("--map cannot be combined with --background: the results of the job have the map")
        return submit_task(task, inputs, options, env, form="plain")

    def write(output: Output, text: str, details: dict[str, Any]) -> None:
        if map_file is not None:
            _write_map(map_file, details.get("map", {}), env)
        output.text(text)

    return do_task(task, inputs, options, env, write=write)


def _restore(file: str, flags: TaskFlags, env: Environment) -> ExitCode:
    from leap_core.tasks.masking import unmask

    from ..answers.file import writing_to

    try:
        masks = json.loads(read_text_file(file, env))
    except ValueError as error:
        raise click.UsageError(f"--restore {file} is not JSON: {error}") from None
    if isinstance(masks, dict) and isinstance(masks.get("map"), dict):  # a result of a job or a batch
        masks = masks["map"]
    if not isinstance(masks, dict) or not all(isinstance(text, str) and mask for mask, text in masks.items()):
        raise LeapSerializationError(f"{file} is no map of masks", hint="leap redact --map FILE writes one")
    with writing_to(flags.target, env) as place:
        Output(place).text(unmask(_whole(flags, env), masks))
    return ExitCode.DONE


def _whole(flags: TaskFlags, env: Environment) -> str:
    """All texts as one, to the byte where there is one source."""
    texts = [read_source(name, env) for name in flags.files or (STDIN,)]
    whole = "".join(text if text.endswith("\n") or n == len(texts) else f"{text}\n" for n, text in enumerate(texts, 1))
    if not whole.strip():
        raise click.UsageError("there is no text: give FILEs, or the text on standard input")
    return whole


def _write_map(name: str, masks: dict[str, str], env: Environment) -> None:
    from leap_core.storage.atomic_files import replace_text

    replace_text(env.cwd / name, json.dumps(masks, ensure_ascii=False, indent=2) + "\n")
