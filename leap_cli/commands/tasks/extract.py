"""``leap extract``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import field
from functools import partial
from typing import Any

import click

from leap_core.system.dataclass import dataclass

from ...exit_codes import ExitCode
from ...framework.arguments import FileName
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.option_groups import own_groups
from ...framework.options import option
from ...framework.output import Output
from ...input.files import STDIN
from ...options.background import check_apart
from ...options.constraints import OPEN_OBJECTS, read_schema_argument
from ...options.evidence import EVIDENCE, Evidence
from ...options.tasks import (
    EXAMPLES,
    TASK,
    TaskInput,
    TaskSettings,
    named_apart,
    read_examples_argument,
    read_inputs,
    read_picture,
    read_task_of,
)

FEATURES = {"review": "leap_cli.answers.reviews:REVIEW"}


@dataclass(frozen=True)
class ExtractArguments:
    """What is typed after ``leap extract``."""

    schema: str | None
    images: tuple[str, ...]
    format: str
    additional_properties: bool
    grounding: bool | None
    verbatim: bool | None
    evidence: Evidence
    examples: str | None
    settings: TaskSettings
    review: Any = None


@leap_command("extract", into=ExtractArguments)
@TASK
@option(
    "--json-schema",
    "--schema",
    "schema",
    metavar="SCHEMA",
    help="Extract data that matches this schema: a file, JSON, a saved name, or 'name, age int'; required unless "
    "documents are only reviewed.",
)
@click.option(
    "--image", "images", type=FileName(), multiple=True, help="Extract from this image; - reads standard input."
)
@format_choice(
    "Output format: JSONL, JSON (a list for several texts), or CSV.", ["jsonl", "json", "csv"], show_default=True
)
@OPEN_OBJECTS
@option(
    "--grounding/--no-grounding",
    default=None,
    help="Limit numbers and dates to those of the text, or not; by default as the recipe says.",
)
@option(
    "--verbatim/--no-verbatim",
    default=None,
    help="Limit strings without a description to words of the text, or not; by default as the recipe says.",
)
@EVIDENCE
@EXAMPLES
@own_groups(FEATURES)
def command(env: Environment, /, args: ExtractArguments) -> ExitCode:
    """Information extraction: turn each text, document, image or standard input into one JSON document that matches a
    schema.

    Missing data is omitted. A text beyond the context window is split: lists of its chunks are merged, and other fields
    keep their first value. If a text fails, the others are still processed (exit code 8).
    """
    format, settings, evidence, review = args.format, args.settings, args.evidence, args.review
    writes = {"--output": settings.target, "--errors": settings.errors, "--low-confidence": evidence.doubtful}
    check_apart(env, {"--examples": args.examples, **writes, **({} if review is None else review.files)})
    given = None if args.schema is None else read_schema_argument(args.schema, env)
    done = None if review is None else review.without_model(given, format, evidence, settings, env)
    if done is not None:
        return ExitCode(done)
    if given is None:
        raise click.UsageError("Missing option '--json-schema'.")
    reviewing = None if review is None else review.of_extraction(format, evidence.below, env)
    if args.additional_properties:
        settings.overrides.additional_properties = True
    if args.grounding is not None:
        settings.overrides.grounding = args.grounding
    extraction = _Extraction(env, given, format, evidence, reviewing, settings, args.verbatim)
    extraction.check(args.images, args.examples)
    code = extraction.run(args.images, args.examples)
    if reviewing is not None and not settings.background:
        reviewing.serve()
    return code


@dataclass
class _Extraction:
    """What is asked of a model, and what has come of it. ``reviewing``: where it is to be looked over."""

    env: Environment
    schema: Any
    format: str
    evidence: Evidence
    reviewing: Any
    settings: TaskSettings
    verbatim: bool | None
    documents: list[Any] = field(default_factory=list)
    doubts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def shows_lines(self) -> bool:
        """Whether evidence comes with each document."""
        return self.evidence.shown and self.format != "csv"

    def check(self, images: tuple[str, ...], examples: str | None) -> None:
        """Raises UsageError for what cannot be combined."""
        from ...answers.file import check_place

        doubtful = self.evidence.doubtful
        if doubtful is not None:
            check_place(self.env.cwd / doubtful, doubtful, "--low-confidence")
        if examples is not None and images:
            raise click.UsageError("--examples cannot be combined with --image: examples are texts")
        if not self.settings.background:
            return
        if doubtful is not None:
            raise click.UsageError(
                "--low-confidence cannot be combined with --background: the results of the job have the evidence"
            )
        if self.format == "json":
            raise click.UsageError("--format json cannot be combined with --background; jsonl and csv can")
        if STDIN in images:
            raise click.UsageError("--background needs a picture that is a file")

    def run(self, images: tuple[str, ...], examples: str | None) -> ExitCode:
        """Have the model do it, or a job."""
        from ...answers.task_answers import do_task, submit_task

        evidence, settings = self.evidence, self.settings
        fields = {"task": "extract", "schema": self.schema, "format": "jsonl" if self.format == "json" else self.format}
        fields["evidence"] = evidence.shown or evidence.doubtful is not None or self.reviewing is not None
        fields |= {"strict": evidence.strict, "passes": evidence.passes, "verbatim": self.verbatim}
        task = read_task_of(fields, self.env)
        inputs = named_apart([read_picture(name, self.env) for name in images])
        if settings.files or not images:
            inputs += read_inputs(settings, self.env)
        if examples is not None:
            fields["examples"] = read_examples_argument(examples, task.to_json()["schema"], self.env)
        is_lost = bool(settings.background) or any(each.is_extracted for each in inputs)  # what offsets count in
        task = read_task_of({**fields, "keep_text": self.shows_lines and is_lost}, self.env)
        if settings.background:
            return submit_task(task, inputs, settings, self.env, form="plain" if self.shows_lines else "text")
        is_done = False
        with ExitStack() as ending:  # each file of what has come, also before Ctrl-C, whatever becomes of the others
            ending.callback(lambda: self._write_doubts(is_done))
            if self.reviewing is not None:
                ending.callback(self.reviewing.write)
            ending.callback(self._write_documents, several=len(inputs) > 1)
            document_schema = task.task.to_json()["schema"]
            code = do_task(task, inputs, settings, self.env, write=partial(self._take, document_schema))
            is_done = not settings.dry_run
        return code

    def _take(self, schema: Any, output: Output, each: TaskInput, text: str, details: dict[str, Any]) -> None:
        """Write the document of one input, or keep it for the end."""
        from leap_core.tasks.evidence.evidence import is_doubtful

        from ...answers.task_answers import write_line

        found = details.get("evidence", [])
        entries = (*found, *details.get("left_out", ()))
        self.doubts.extend(entry for entry in entries if is_doubtful(entry, self.evidence.below))
        document = details if self.shows_lines else None
        if self.format == "json":
            self.documents.append(document or json.loads(text))
        else:
            write_line(output, each, text if document is None else json.dumps(document, ensure_ascii=False), details)
        if self.reviewing is not None:
            self.reviewing.add(each.name, each.message.text, schema, json.loads(text), found)

    def _write_doubts(self, is_done: bool) -> None:
        if self.evidence.doubtful is not None and (self.doubts or is_done):
            _write_lines(self.evidence.doubtful, self.doubts, self.env)

    def _write_documents(self, *, several: bool) -> None:
        from ...answers.file import writing_to

        if self.documents:
            with writing_to(self.settings.target, self.env) as place:
                Output(place).document(self.documents if several else self.documents[0])


def _write_lines(name: str, values: list[dict[str, Any]], env: Environment) -> None:
    from leap_core.system.files import replace_text

    replace_text(env.cwd / name, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in values))
