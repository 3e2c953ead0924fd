"""``leap extract``."""

from __future__ import annotations

import json
from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.aliases import renamed_option
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..input.media_files import STDIN, read_image
from ..options.constraints import read_schema_argument
from ..options.output_format import FormatChoice
from ..options.tasks import TaskInput, named_apart, read_inputs, read_task_of, take_flags, task_flags


@leap_command("extract")
@task_flags
@renamed_option(
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
    multiple=True,
    metavar="FILE",
    help="Extract from this picture; - reads standard input.",
)
@click.option(
    "--format",
    type=FormatChoice(["jsonl", "json", "csv"]),
    default="jsonl",
    show_default=True,
    help="Write a document a line, one JSON document (a list of several), or a table of the schema's fields.",
)
@click.pass_obj
def command(env: Environment, /, schema: str, images: tuple[str, ...], format: str, **flags: Any) -> ExitCode:
    """Extract data from FILEs, pictures or standard input, by a schema: a JSON document a text, in their order.

    Missing data stays out. A text beyond the context is cut; lists of its pieces are joined, otherwise the first piece
    that has a field counts. A text that fails is named and the rest goes on (exit code 8).
    """
    from ..answers.file import writing_to
    from ..answers.task_jobs import submit_task
    from ..answers.tasks import do_task, write_line

    options = take_flags(flags)
    form = "jsonl" if format == "json" else format
    task = read_task_of({"task": "extract", "schema": read_schema_argument(schema, env), "format": form}, env)
    if options.background and format == "json":
        raise click.UsageError("--format json cannot be combined with --background; jsonl and csv can")
    if options.background and STDIN in images:
        raise click.UsageError("--background needs a picture that is a file")
    inputs = named_apart([_picture(name, env) for name in images])
    if options.files or not images:
        inputs += read_inputs(options, env)
    if options.background:
        return submit_task(task, inputs, options, env)
    documents: list[Any] = []

    def collect(_output: Output, text: str, _details: dict[str, Any]) -> None:
        documents.append(json.loads(text))

    try:
        return do_task(task, inputs, options, env, write=collect if format == "json" else write_line)
    finally:
        if documents:  # also those before Ctrl-C
            with writing_to(options.target, env) as place:
                Output(place).document(documents[0] if len(inputs) == 1 else documents)


def _picture(name: str, env: Environment) -> TaskInput:
    from leap_core.messages import ChatMessage

    return TaskInput(name, ChatMessage("user", read_image(name, env, Output(env))), picture=name)
