"""``leap decide``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from ...exit_codes import ExitCode
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.output import Output
from ...input.files import STDIN
from ...options.constraints import read_choices
from ...options.tasks import (
    ASKING,
    QUESTIONS,
    TASK,
    Questions,
    TaskAsking,
    TaskInput,
    TaskSettings,
    named_apart,
    read_inputs,
    read_picture,
    read_questions_file,
    read_sources,
    read_task_of,
)


@leap_command("decide")
@click.argument("question", required=False)
@TASK
@click.option(
    "--choices", metavar="A,B,C", help="Answers to choose from, or a JSON list of them; yes and no by default."
)
@click.option("--score", metavar="LOW..HIGH", help="Answer with a number in this range, such as 1..5.")
@QUESTIONS
@ASKING
@format_choice(
    "Output format: the answer (text), or answers with probabilities as JSON Lines, CSV, or bars (table).",
    ["text", "json", "jsonl", "csv", "table"],
    show_default=True,
)
def command(
    env: Environment,
    /,
    question: str | None,
    choices: str | None,
    score: str | None,
    format: str,
    questions: Questions,
    asking: TaskAsking,
    settings: TaskSettings,
) -> ExitCode:
    """Answer a yes/no, choice or score QUESTION about each text, or the questions of a file (--questions), which share
    one prompt prefix.

    With --score the expected value is printed, too. Probabilities are calibrated only after --calibrate was run for the
    model.
    """
    from ...answers.task_answers import do_task, write_line

    if questions.file is not None and question is not None:
        settings, question = replace(settings, files=(question, *settings.files)), None
    fields = {**_asked(question, choices, score, questions, env), **asking.fields}
    if questions.fit is not None:
        from ...answers.temperatures import fit_temperatures

        if settings.files or settings.background:
            raise click.UsageError("--calibrate takes its texts from the cases, and runs in this process")
        return fit_temperatures(fields, questions.fit, format, settings, env)
    if "question" not in fields and "questions" not in fields:
        raise click.UsageError("there is no question: give QUESTION, or --questions FILE")
    shows_bars = format == "table" or (format == "text" and questions.file is not None and env.stdout_is_terminal)
    form = "text" if format == "table" else "json" if format == "jsonl" else format
    task = read_task_of({**fields, "format": form}, env)
    inputs = _inputs(questions, settings, env)
    if settings.background and (format == "table" or STDIN in questions.images):
        raise click.UsageError("--background takes pictures that are files, and the formats text, json and csv")

    def write(output: Output, each: TaskInput, text: str, details: dict[str, Any]) -> None:
        if not shows_bars:
            write_line(output, each, text, details)
            return
        from ...display.batches import bars

        answers = details.get("answers") or {question or "": {"answer": text, **details}}
        write_line(output, each, bars(answers), details)

    return do_task(task, inputs, settings, env, write=write)


def _asked(
    question: str | None, choices: str | None, score: str | None, questions: Questions, env: Environment
) -> dict[str, Any]:
    """What is asked, as fields of the task."""
    fields: dict[str, Any] = {"task": "decide"}
    if choices is not None and score is not None:
        raise click.UsageError("--choices and --score cannot be combined")
    if questions.file is not None:
        if choices is not None or score is not None:
            raise click.UsageError("--questions cannot be combined with --choices or --score: the file has the answers")
        return {**fields, "questions": read_questions_file(questions.file, env)}
    if question is not None:
        if not question.strip():
            raise click.UsageError("the question is empty")
        fields["question"] = question
    if choices is not None:
        fields["choices"] = read_choices([choices], "--choices")
    return fields if score is None else {**fields, "score": score}


def _inputs(questions: Questions, settings: TaskSettings, env: Environment) -> list[TaskInput]:
    """Texts, rows of tables, and pictures."""
    from leap_core.conversation.messages import ChatMessage

    pictures = [read_picture(name, env) for name in questions.images]
    if pictures and not settings.files:
        return named_apart(pictures)
    if not questions.rows:
        return named_apart([*pictures, *read_inputs(settings, env)])
    rows = [
        (name, row) for name, text in read_sources(settings.files, env) for row in _rows(name, text, questions.columns)
    ]
    if not rows:
        raise click.UsageError("--rows: there is no row; a table has a heading and rows")
    texts = [
        TaskInput(f"{name}:{n}", ChatMessage("user", json.dumps(row, ensure_ascii=False, indent=2)))
        for n, (name, row) in enumerate(rows, 1)
    ]
    return named_apart([*pictures, *texts])


def _rows(name: str, text: str, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of a CSV table, of which only these columns where some are named. Raises UsageError for one that is not
    there."""
    table = csv.DictReader(io.StringIO(text))
    missing = [column for column in columns if column not in (table.fieldnames or ())]
    if missing:
        known = ", ".join(table.fieldnames or ())
        raise click.UsageError(f"--columns: {name} has no column {missing[0]!r} (it has {known})")
    for row in table:
        yield {column: row[column] for column in columns} if columns else row
