"""``leap extract``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import FileName, format_choice, leap_command
from ..framework.environment import Environment
from ..framework.options import option
from ..framework.output import Output
from ..input.files import STDIN, read_image
from ..options.background import check_apart
from ..options.constraints import OPEN_OBJECTS, read_schema_argument
from ..options.review import EVIDENCE, REVIEW_PAGE, REVIEWED, Evidence, Reviewed, ReviewPage
from ..options.tasks import (
    EXAMPLES,
    TASK,
    TaskInput,
    TaskSettings,
    named_apart,
    read_examples_argument,
    read_inputs,
    read_task_of,
)


@leap_command("extract")
@TASK
@option(
    "--json-schema",
    "schema",
    formerly=("--schema",),
    metavar="SCHEMA",
    help="Extract data of this schema: a file, JSON text, a saved name, or the shorthand 'name, age int'. Required but "
    "with --apply, --fit, and where --review-serve goes on.",
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
@EXAMPLES
@REVIEWED
@REVIEW_PAGE
@click.pass_obj
def command(
    env: Environment,
    /,
    schema: str | None,
    images: tuple[str, ...],
    format: str,
    open_objects: bool,
    evidence: Evidence,
    examples: str | None,
    reviewed: Reviewed,
    review: ReviewPage,
    settings: TaskSettings,
) -> ExitCode:
    """Extract data from FILEs (text, PDF, HTML), pictures or standard input, by a schema: a JSON document a text, in
    their order.

    Missing data stays out. A text beyond the context is cut; lists of its pieces are joined, otherwise the first piece
    that has a field counts. A text that fails is named and the rest goes on (exit code 8).
    """
    from leap_core.tasks.evidence.evidence import is_doubtful

    from ..answers.file import check_place, writing_to
    from ..answers.reviews import Reviewing, apply_reviews, fit_reviews
    from ..answers.task_answers import do_task, submit_task, write_line

    reads = {"--apply": reviewed.apply, "--fit": reviewed.fit, "--examples": examples}
    writes = {"--output": settings.target, "--errors": settings.errors, "--doubtful": evidence.doubtful}
    check_apart(env, {**reads, **writes, "--review": review.page, "--review-serve": review.served})
    given = None if schema is None else read_schema_argument(schema, env)
    if reviewed.fit is not None:
        if format == "csv":
            raise click.UsageError("--fit prints text, or one JSON document with --format json")
        return fit_reviews(reviewed.fit, as_json=format == "json", target=settings.target, env=env)
    if reviewed.apply is not None:
        return apply_reviews(reviewed.apply, given, format, evidence=evidence.shown, target=settings.target, env=env)
    reviewing = Reviewing(review, evidence.below, env)
    if review.goes_on:
        reviewing.go_on()
        return ExitCode.DONE
    if given is None:
        raise click.UsageError("Missing option '--json-schema'.")
    if review.wanted and format == "csv":
        raise click.UsageError("a review cannot be combined with --format csv; leap extract --apply prints it as one")
    reviewing.check()
    if evidence.doubtful is not None:
        check_place(env.cwd / evidence.doubtful, evidence.doubtful, "--doubtful")
    if open_objects:
        settings.overrides.open_objects = True
    keeps_doubts = evidence.doubtful is not None
    form = "jsonl" if format == "json" else format
    has_evidence = evidence.shown or keeps_doubts or review.wanted
    fields = {"task": "extract", "schema": given, "format": form}
    fields |= {"evidence": has_evidence, "strict": evidence.strict, "passes": evidence.passes}
    task = read_task_of(fields, env)
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
    if examples is not None:
        if images:
            raise click.UsageError("--examples cannot be combined with --image: examples are texts")
        fields["examples"] = read_examples_argument(examples, task.to_json()["schema"], env)
    shows_lines = evidence.shown and format != "csv"
    is_lost = settings.background.wanted or any(each.is_extracted for each in inputs)  # the text that offsets count in
    task = read_task_of({**fields, "keep_text": shows_lines and is_lost}, env)
    if settings.background:
        return submit_task(task, inputs, settings, env, form="plain" if shows_lines else "text")
    documents: list[Any] = []

    doubts: list[dict[str, Any]] = []

    def write(output: Output, each: TaskInput, text: str, details: dict[str, Any]) -> None:
        found = details.get("evidence", [])
        doubts.extend(entry for entry in (*found, *details.get("left_out", ())) if is_doubtful(entry, evidence.below))
        document = details if shows_lines else None
        if format == "json":
            documents.append(document or json.loads(text))
        else:
            write_line(output, each, text if document is None else json.dumps(document, ensure_ascii=False), details)
        if review.wanted:
            reviewing.add(each.name, each.message.text, task.task.to_json()["schema"], json.loads(text), found)

    def write_doubts() -> None:
        if evidence.doubtful is not None and (doubts or is_done):
            _write_lines(evidence.doubtful, doubts, env)

    def write_documents() -> None:
        if documents:
            with writing_to(settings.target, env) as place:
                Output(place).document(documents[0] if len(inputs) == 1 else documents)

    is_done = False
    with ExitStack() as ending:  # each file of what has come, also before Ctrl-C, whatever becomes of the others
        for step in (write_doubts, reviewing.write, write_documents):
            ending.callback(step)
        code = do_task(task, inputs, settings, env, write=write)
        is_done = not settings.dry_run
    reviewing.serve()
    return code


def _write_lines(name: str, values: list[dict[str, Any]], env: Environment) -> None:
    from leap_core.system.files import replace_text

    replace_text(env.cwd / name, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in values))


def _picture(name: str, env: Environment) -> TaskInput:
    from leap_core.conversation.messages import ChatMessage

    return TaskInput(name, ChatMessage("user", read_image(name, env, Output(env))), picture=name)
