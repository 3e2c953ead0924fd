"""``leap extract``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.option_groups import Arguments, OptionGroup
from ...framework.options import option
from ...framework.output import Output
from ...framework.output_format import format_choice
from ...framework.text_arguments import FileName
from ...input.media_files import STDIN, read_image
from ...options.constraints import OPEN_OBJECTS, read_schema_argument
from ...options.task_options import TASK, TaskInput, TaskSettings, named_apart, read_inputs, read_task_of


@dataclass(frozen=True)
class Evidence:
    """Where values are in a text. ``shown``: beside each document. ``strict``: what becomes of values that are not in
    the text. ``passes``: how often a text is read. ``doubtful``: the file of values to look at, which are those
    ``below`` this probability."""

    shown: bool
    strict: str | None
    passes: int
    doubtful: str | None
    below: float


def _build(arguments: Arguments) -> Evidence:
    return Evidence(*arguments.of("evidence", "strict", "passes", "doubtful", "doubtful_below").values())


EVIDENCE = OptionGroup(
    "evidence",
    "",
    (
        option(
            "--evidence",
            is_flag=True,
            help="Say of each value where it stands in the text, and how sure the model was.",
        ),
        option(
            "--strict-evidence",
            "strict",
            type=click.Choice(["absent", "fail"]),
            is_flag=False,
            flag_value="absent",
            help="Leave out values that are not in the text, or let the text fail.",
        ),
        option(
            "--passes",
            type=click.IntRange(1, 10),
            default=1,
            show_default=True,
            metavar="N",
            help="Read each text this many times; further passes add what the first missed.",
        ),
        option("--doubtful", metavar="FILE", help="Write values to look at to this file, as JSON lines."),
        option(
            "--doubtful-below",
            type=click.FloatRange(0, 1),
            default=0.5,
            show_default=True,
            metavar="P",
            help="Doubt values of which a token had a smaller probability than this, and those that are not in the "
            "text.",
        ),
    ),
    _build,
)


@leap_command("extract")
@TASK
@option(
    "--json-schema",
    "schema",
    formerly=("--schema",),
    required=True,
    metavar="SCHEMA",
    help="Extract data of this schema: a file, JSON text, a saved name, or the shorthand 'name, age int'.",
)
@click.option(
    "--image",
    "images",
    type=FileName(),
    multiple=True,
    metavar="FILE",
    help="Extract from this picture; - reads standard input.",
)
@format_choice(
    "Write a document a line, one JSON document (a list of several), or a table of the schema's fields.",
    ["jsonl", "json", "csv"],
    show_default=True,
)
@OPEN_OBJECTS
@EVIDENCE
@click.pass_obj
def command(
    env: Environment,
    /,
    schema: str,
    images: tuple[str, ...],
    format: str,
    open_objects: bool,
    evidence: Evidence,
    settings: TaskSettings,
) -> ExitCode:
    """Extract data from FILEs, pictures or standard input, by a schema: a JSON document a text, in their order.

    Missing data stays out. A text beyond the context is cut; lists of its pieces are joined, otherwise the first piece
    that has a field counts. A text that fails is named and the rest goes on (exit code 8).
    """
    from leap_core.tasks.evidence.evidence import is_doubtful

    from ...answers.file import writing_to
    from ...answers.task_answers import do_task, write_line
    from ...answers.task_jobs import submit_task

    if open_objects:
        settings.overrides.open_objects = True
    keeps_doubts = evidence.doubtful is not None
    form = "jsonl" if format == "json" else format
    fields = {"task": "extract", "schema": read_schema_argument(schema, env), "format": form}
    task = read_task_of(
        {**fields, "evidence": evidence.shown or keeps_doubts, "strict": evidence.strict, "passes": evidence.passes},
        env,
    )
    if keeps_doubts and settings.background:
        raise click.UsageError(
            "--doubtful cannot be combined with --background: the results of the job have the evidence"
        )
    if settings.background and format == "json":
        raise click.UsageError("--format json cannot be combined with --background; jsonl and csv can")
    if settings.background and STDIN in images:
        raise click.UsageError("--background needs a picture that is a file")
    inputs = named_apart([_picture(name, env) for name in images])
    if settings.files or not images:
        inputs += read_inputs(settings, env)
    if settings.background:
        return submit_task(task, inputs, settings, env)
    documents: list[Any] = []

    doubts: list[dict[str, Any]] = []

    def write(output: Output, text: str, details: dict[str, Any]) -> None:
        found = details.get("evidence", [])
        doubts.extend(each for each in found if is_doubtful(each, evidence.below))
        document = {"document": json.loads(text), "evidence": found} if evidence.shown and format != "csv" else None
        if format == "json":
            documents.append(document or json.loads(text))
        else:
            write_line(output, text if document is None else json.dumps(document, ensure_ascii=False), details)

    try:
        return do_task(task, inputs, settings, env, write=write)
    finally:
        if evidence.doubtful is not None:
            _write_lines(evidence.doubtful, doubts, env)
        if documents:  # also those before Ctrl-C
            with writing_to(settings.target, env) as place:
                Output(place).document(documents[0] if len(inputs) == 1 else documents)


def _write_lines(name: str, values: list[dict[str, Any]], env: Environment) -> None:
    from leap_core.storage.atomic_files import replace_text

    replace_text(env.cwd / name, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in values))


def _picture(name: str, env: Environment) -> TaskInput:
    from leap_core.messages import ChatMessage

    return TaskInput(name, ChatMessage("user", read_image(name, env, Output(env))), picture=name)
