"""``leap batch``: many prompts from a JSONL file, answered at once."""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..display.batches import ProgressLine, show_nothing, summary, warn_of_problems
from ..exit_codes import ExitCode
from ..framework.aliases import renamed_option
from ..framework.click_classes import leap_command
from ..framework.environment import Environment
from ..framework.interrupts import stopping_on_interrupt
from ..framework.output import Output
from ..input.pattern import INPUT
from ..input.prompt import read_system
from ..options.background import background_flags, policy_of, tell_id
from ..options.constraints import constraint_flags, take_constraint
from ..options.embedding import open_embedder
from ..options.generation import generation_flags, generation_options
from ..options.generation_details import generation_details
from ..options.loading import (
    builtin_note,
    default_model,
    host_for_job,
    loading_flags,
    telling_the_default,
    warm_or_load,
)
from ..options.loading_details import loading_fields
from ..options.saved_prompts import chosen_template, template_flags
from ..options.tasks import own_recipes

if TYPE_CHECKING:
    from leap_core.batch.answering import Runner
    from leap_core.batch.checking import CheckedBatch
    from leap_core.batch.settings import BatchSettings


@leap_command("batch")
@click.argument("source", metavar="INPUT")
@template_flags
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    default="-",
    help="Write results to this file; - (default) is standard output.",
)
@click.option(
    "-s", "--system", metavar="TEXT", help="Give lines that have none this system prompt; @FILE reads it from a file."
)
@click.option(
    "--pattern",
    metavar="TEXT",
    help="Make each prompt of a line's fields or columns: 'Translate: {text}'.",
)
@renamed_option(
    "--tools-file",
    "tools",
    formerly=("--tools",),
    metavar="FILE",
    help="Let lines that declare no functions call these: OpenAI's JSON list.",
)
@loading_flags
@generation_flags
@generation_details
@constraint_flags
@renamed_option(
    "--keep-reasoning",
    "show_thinking",
    formerly=("--show-thinking",),
    is_flag=True,
    help="Let the model reason, and keep that in the results.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    metavar="N",
    help="Answer this many lines at once.",
)
@click.option(
    "--input-format",
    type=click.Choice(["jsonl", "json", "csv", "tsv", "lines"]),
    help="Read INPUT as this; by default as its extension says, else jsonl.",
)
@renamed_option(
    "--format",
    "output_format",
    formerly=("--output-format",),
    type=click.Choice(["auto", "openai", "plain", "text", "csv", "tsv"]),
    default="auto",
    show_default=True,
    help="Write OpenAI's batch results, plain JSON, the answers alone, or a table; auto is plain where INPUT is plain.",
)
@click.option("--errors", metavar="FILE", help="Write failed lines to FILE, and leave them out of the output.")
@click.option(
    "--keep-fields/--no-keep-fields",
    default=None,
    help="Carry a line's own fields over to its plain result; default for tables.",
)
@click.option(
    "--speak", "speech", metavar="DIR", help="Let the model answer aloud: a WAV file for each line in this directory."
)
@click.option(
    "--ordered/--unordered",
    default=True,
    help="Write results in the order of the input (default), or as they are ready.",
)
@click.option("--skip-invalid", is_flag=True, help="Leave out lines that cannot be used, instead of refusing all.")
@renamed_option(
    "--replace",
    "overwrite",
    formerly=("--overwrite",),
    is_flag=True,
    help="Start over, and replace what the output holds.",
)
@click.option("--journal", metavar="FILE", help="Keep progress in this file; beside the output by default.")
@click.option("-q", "--quiet", is_flag=True, help="Print no summary at the end.")
@background_flags()
@click.option(
    "--max-workers",
    type=click.IntRange(1),
    metavar="N",
    help="Let at most this many workers answer at once; needs jobs_url.",
)
@click.pass_obj
def command(
    env: Environment,
    /,
    source: str,
    target: str,
    system: str | None,
    pattern: str | None,
    tools: str | None,
    model: str | None,
    context_size: int | None,
    cpu_threads: int | None,
    n_gpu_layers: int | str,
    verbose: bool,
    show_thinking: bool,
    concurrency: int,
    input_format: str | None,
    output_format: str,
    errors: str | None,
    speech: str | None,
    keep_fields: bool | None,
    ordered: bool,
    skip_invalid: bool,
    overwrite: bool,
    journal: str | None,
    quiet: bool,
    background: bool,
    priority: int,
    job_retries: int,
    max_workers: int | None,
    **flags: Any,
) -> ExitCode:
    """Answer every line of INPUT, a file of JSON lines, JSON, CSV, TSV or plain lines, or - for standard input.

    A line is {"prompt": "..."}, {"messages": [...]}, a string, a request of OpenAI's Batch format (custom_id and body),
    or, with --pattern, an object of variables; a row of a table is one too. {"task": "classify", "labels": ["a", "b"],
    "text": "..."} and the like do what leap classify does: leap help tasks. What a line says (temperature, schema,
    tools, ...) wins over the options here.

    The same command again goes on where it was ended, by Ctrl-C, a crash or a power failure: FILE.journal keeps what
    was answered. The exit code is 8 when some lines failed; they are tried again next time.
    """
    from leap_core.batch.checking import check_batch
    from leap_core.batch.settings import STANDARD, BatchSettings

    output = Output(env)
    shape = take_constraint(flags, env)
    options = generation_options({**flags, **shape}, enable_thinking=show_thinking)
    loading = {"context_size": context_size, "cpu_threads": cpu_threads, "n_gpu_layers": n_gpu_layers}
    loading |= loading_fields(env)
    pattern, variables = _prompts(pattern)
    if model == "":
        raise click.UsageError("-m needs a model's name or file")
    settings = BatchSettings(
        source=_place(env, source),
        output=_place(env, target),
        model=model,
        options=options.to_json(),
        loading=loading,
        system=None if system is None else read_system(system, env),
        template=pattern,
        variables=variables,
        tools=[] if tools is None else _read_tools(env.cwd / tools, tools),
        format=output_format,
        ordered=ordered,
        concurrency=concurrency,
        skip_invalid=skip_invalid,
        overwrite=overwrite,
        journal=None if journal is None else _place(env, journal),
        input_format=input_format,
        errors=None if errors is None else _place(env, errors),
        keep_fields=keep_fields,
        speech=None if speech is None else str(env.cwd / speech),
        directory=str(env.cwd),
        recipes=own_recipes(env),
    )
    with telling_the_default(env, model):
        if background:
            if settings.output == STANDARD:
                raise click.UsageError("--background needs -o FILE for the results")
            from jobs.client import JobsClient

            with JobsClient(env.variables, on_warning=output.note) as jobs:
                id = jobs.batch(
                    settings,
                    rows=env.stdin if settings.source == STANDARD else None,
                    default_model=default_model(env),
                    host=host_for_job(),
                    policy=policy_of(priority, job_retries),
                    cwd=env.cwd,
                    max_workers=max_workers,
                )
            tell_id(output, id)
            return ExitCode.DONE
        with check_batch(
            settings, env.stdin, default_model=default_model(env), variables=env.variables, cwd=env.cwd
        ) as checked:
            return _run(env, output, settings, checked, verbose=verbose, quiet=quiet)


def _prompts(pattern: str | None) -> tuple[str | None, dict[str, str] | None]:
    """What makes the prompts of lines: a pattern, and the values of a saved prompt's variables, which a line's own
    fields override; None without one."""
    chosen = chosen_template(of_lines=True)
    if chosen is None or chosen.template.prompt == INPUT:
        return pattern, None
    if pattern is not None:
        raise click.UsageError("--pattern cannot be combined with --template")
    return chosen.pattern.escaped(chosen.template.declared), dict(chosen.values)


def _run(
    env: Environment, output: Output, settings: BatchSettings, checked: CheckedBatch, *, verbose: bool, quiet: bool
) -> ExitCode:
    from leap_core.batch.settings import STANDARD

    warn_of_problems(output, checked)

    def load() -> AbstractContextManager[Runner]:
        if verbose:
            from leap_core.llama.library import set_verbose

            set_verbose(True)
        if checked.embeds:
            return open_embedder(env, checked.model, **settings.loading)
        runner = warm_or_load(env, checked.model, settings.loading_options(), quiet=verbose)
        if not checked.named_model:
            output.note(builtin_note(env))
        return runner

    stop = threading.Event()
    journal = settings.open_journal()
    try:
        with stopping_on_interrupt(stop.set):
            piped = settings.output == STANDARD and not env.stdout_is_terminal
            # The reader of a pipe may write to the same terminal.
            show = show_nothing if piped else ProgressLine(output)
            progress = checked.open(journal, output.text, show).run(load, stop)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            output.note("whatever read the results has ended: the rest was not answered")
            raise
        if journal is None:
            raise
        raise _not_written(error, settings) from None
    finally:
        if journal is not None:
            journal.close()
    if not quiet:
        output.note(summary(progress, skipped=checked.problem_count))
        if progress.remark:
            output.note(progress.remark)
    if progress.stopped:
        if not quiet and journal is not None:
            output.note("stopped; the same command goes on from here")
        return ExitCode.INTERRUPTED
    return ExitCode.JOB if progress.failed else ExitCode.DONE


def _not_written(error: OSError, settings: BatchSettings) -> Exception:
    from leap_core.errors import LeapError

    return LeapError(
        f"cannot write {error.filename or settings.output}: {error.strerror or error}",
        hint="make room; what was answered is kept, and the same command goes on from there",
    )


def _place(env: Environment, path: str) -> str:
    """A path as this command's user means it, valid in any directory; "-" stays."""
    return path if path == "-" else str(env.cwd / path)


def _read_tools(path: Path, name: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, list):
        raise click.UsageError(f"{name} is not a JSON list of functions")
    return value
