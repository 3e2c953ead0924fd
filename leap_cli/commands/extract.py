"""``leap extract``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from ..exit_codes import ExitCode
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.constraints import read_schema_argument
from ..options.tasks import take_task, task_flags


@leap_command("extract")
@task_flags
@click.option(
    "--json-schema",
    "--schema",
    "schema",
    required=True,
    metavar="SCHEMA",
    help="Extract data of this schema: a file, JSON text, a saved name, or the shorthand 'name, age int'.",
)
@click.option("--errors", metavar="FILE", help="Write the texts that failed and why to this file, as JSONL.")
@click.pass_obj
def command(env: Environment, /, schema: str, errors: str | None, **flags: Any) -> ExitCode:
    """Extract data from FILEs, or standard input, by a schema: a JSON document a line, in the order of the texts.

    Missing data stays out. A text beyond the context is cut; lists of its pieces are joined, otherwise the first piece
    that has a field counts. A text that fails is named and the rest goes on (exit code 8).
    """
    from leap_core.tasks.extraction import all_optional, fields_of_schema, merged, pieces_that_fit

    from ..answers.tasks import answers_or_problem, fits_in_context

    document = read_schema_argument(schema, env)
    if not isinstance(document, dict) or document.get("type", "object") != "object":
        raise click.UsageError("--json-schema must describe an object")
    task, output = take_task("extract", flags, env), Output(env)
    shape = all_optional(document)
    values = {"fields": fields_of_schema(document), "schema": json.dumps(shape)}
    failures: list[dict[str, str]] = []
    with ExitStack() as stack:
        if errors is not None:
            stack.callback(_write_failures, env.cwd / errors, failures)  # also of those before Ctrl-C
        runner, wording = stack.enter_context(task.opened())
        options = wording.generation_options(json_schema_constraint=json.dumps(shape), inject_schema_into_prompt=False)

        def messages(text: str) -> list[Any]:
            return wording.messages({**values, "text": text})

        for name, text in task.texts:
            pieces = pieces_that_fit(text, lambda piece: fits_in_context(runner, messages(piece)))
            if task.dry_run:
                for piece in pieces:
                    task.show(runner, messages(piece), options)
                continue
            answers, problem = answers_or_problem(runner, [messages(piece) for piece in pieces], options)
            if problem is None:
                whole = merged([json.loads(answer) for answer in answers])
                output.text(json.dumps(whole, ensure_ascii=False) + "\n")
            else:
                failures.append({"source": name, "error": problem, "text": text})
                output.warning(f"{name}: {problem}")
    return ExitCode.JOB if failures else ExitCode.DONE


def _write_failures(path: Path, failures: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(failure, ensure_ascii=False) + "\n" for failure in failures), encoding="utf-8")
