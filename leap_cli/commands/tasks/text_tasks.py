"""``leap classify``, ``summarize``, ``translate`` and ``redact``."""

from __future__ import annotations

import json
from typing import Any

import click

from leap_core.errors import LeapSerializationError

from ...exit_codes import ExitCode
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...input.files import read_text_file
from ...options.constraints import read_choices
from ...options.tasks import (
    ASKING,
    NO_TEXT,
    STDIN,
    TASK,
    TaskAsking,
    TaskInput,
    TaskSettings,
    read_inputs,
    read_sources,
    read_task_of,
)


@leap_command("classify")
@TASK
@click.option("--labels", required=True, metavar="A,B,C", help="Labels to choose from, or a JSON list of them.")
@ASKING
@format_choice(
    "Output format: the answer (text), or answers with probabilities as JSON Lines or a table.",
    ["text", "json", "jsonl", "csv"],
    show_default=True,
)
def classify_command(
    env: Environment, /, labels: str, format: str, asking: TaskAsking, settings: TaskSettings
) -> ExitCode:
    """Zero-shot classification: assign each text the most probable of several labels. The probabilities (--format json)
    are relative to each other and not calibrated."""
    from ...answers.task_answers import do_task

    fields = {"task": "classify", "labels": read_choices([labels], "--labels"), **asking.fields}
    task = read_task_of({**fields, "format": "json" if format == "jsonl" else format}, env)
    return do_task(task, read_inputs(settings, env), settings, env)


KINDS = ("executive", "detailed", "actions", "decisions", "participants", "topics")


@leap_command("summarize")
@TASK
@click.option("--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="Kind of summary to write.")
def summarize_command(env: Environment, /, kind: str, settings: TaskSettings) -> ExitCode:
    """Summarize FILEs, those of a folder, a text, or standard input. A long text is split, and the summaries of its
    chunks are summarized until one is left; --verbose shows how."""
    from ...answers.task_answers import do_task

    task = read_task_of({"task": "summarize", "kind": kind}, env)
    return do_task(task, read_inputs(settings, env), settings, env, streams=True)


@leap_command("translate")
@TASK
@click.option(
    "--to",
    "language",
    required=True,
    metavar="LANGUAGE",
    help="Translate into this language: a code such as ja, or a name.",
)
@click.option("--from", "source", metavar="LANGUAGE", help="Source language; detected by the model by default.")
def translate_command(env: Environment, /, language: str, source: str | None, settings: TaskSettings) -> ExitCode:
    """Translate FILEs, a text, or standard input; long texts are split into chunks."""
    from ...answers.task_answers import do_task

    task = read_task_of({"task": "translate", "to": language, "from": source}, env)
    return do_task(task, read_inputs(settings, env), settings, env, streams=True)


CATEGORIES = (
    "address, company_name, email_address, human_name, phone_number, national_number, passport_number, iban, "
    "card_number and url"
)


@leap_command("redact")
@TASK
@click.option("--categories", metavar="A,B", help=f"Redact these kinds of data; by default {CATEGORIES}.")
@click.option(
    "--patterns/--no-patterns",
    default=True,
    help="Also find emails, phone, national and passport numbers, IBANs, cards and URLs by regular expressions "
    "(default), or use the model alone.",
)
@click.option(
    "--map", "map_file", metavar="FILE", help="Save the original value of each placeholder to this JSON file."
)
@click.option("--restore", metavar="FILE", help="Restore the values saved in this file of --map; needs no model.")
def redact_command(
    env: Environment,
    /,
    categories: str | None,
    patterns: bool,
    map_file: str | None,
    restore: str | None,
    settings: TaskSettings,
) -> ExitCode:
    """PII redaction: replace personal data in FILEs, a text, or standard input by placeholders. The model and regular
    expressions list the data, and every occurrence is replaced. Several FILEs are treated as one text."""
    from leap_core.conversation.messages import ChatMessage

    from ...answers.task_answers import do_task, submit_task

    if restore is not None:
        if settings.background or settings.dry_run:
            raise click.UsageError("--restore needs no model and no job: it restores the text at once")
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
        needs_end = env.stdout_is_terminal and not text.endswith("\n")  # a pipe gets the text as it was
        output.text(f"{text}\n" if needs_end else text)
        counts = [f"{count} {category}" for category, count in details.get("masked", {}).items()]
        if counts:
            output.note(f"masked {', '.join(counts)}")
        else:
            output.warning("nothing was masked")

    return do_task(task, inputs, settings, env, write=write)


def _restore(file: str, settings: TaskSettings, env: Environment) -> ExitCode:
    from leap_core.tasks.redaction import unmask

    from ...answers.file import writing_to

    try:
        masks = json.loads(read_text_file(file, env))
    except ValueError as error:
        raise click.UsageError(f"--restore {file} is not JSON: {error}") from None
    if isinstance(masks, dict) and isinstance(masks.get("map"), dict):  # a result of a job or a batch
        masks = masks["map"]
    if not isinstance(masks, dict) or not all(isinstance(text, str) and mask for mask, text in masks.items()):
        raise LeapSerializationError(f"{file} is not a redaction map", hint="leap redact --map FILE writes one")
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
    from leap_core.system.files import replace_text

    replace_text(env.cwd / name, json.dumps(masks, ensure_ascii=False, indent=2) + "\n")
