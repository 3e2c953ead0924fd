"""``leap batch``: many prompts from a JSONL file, answered at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ...display.batches import ProgressLine, missing_lines, show_nothing, summary, warn_of_problems
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_command
from ...framework.environment import Environment
from ...framework.interrupts import stopping_on_interrupt
from ...framework.output import Output
from ...options.background import BACKGROUND, Background, open_jobs, print_id
from ...options.batch import BATCH, MACHINES, BatchOptions, Machines
from ...options.constraints import SHAPE, Constraint
from ...options.embedding import open_embedder
from ...options.first_use import have_here
from ...options.loading import (
    MODEL,
    ModelChoice,
    builtin_note,
    default_model,
    load_model,
    naming_the_default,
    warm_or_load,
)
from ...options.sampling import SAMPLING, Sampling
from ...options.tasks import own_recipes

if TYPE_CHECKING:
    from leap_core.batch.answering import Runner
    from leap_core.batch.checking import CheckedBatch
    from leap_core.batch.settings import BatchSettings


@leap_command("batch")
@BATCH
@SHAPE
@SAMPLING
@MODEL
@BACKGROUND
@MACHINES
def command(
    env: Environment,
    /,
    batch: BatchOptions,
    model: ModelChoice,
    sampling: Sampling,
    shape: Constraint,
    background: Background,
    machines: Machines,
) -> ExitCode:
    """Answer every line of INPUT: JSON Lines, JSON, CSV, TSV or plain lines; - reads standard input.

    A line is {"prompt": "..."}, {"messages": [...]}, a string, or a request of OpenAI's Batch format (custom_id and
    body). With --pattern, a line is an object of variables; a row of a table is one, too. {"task": "classify",
    "labels": ["a", "b"], "text": "..."} runs leap classify, and likewise for other tasks: see leap help tasks. Fields
    of a line (temperature, schema, tools, ...) override the options.

    Run the same command again to resume after Ctrl-C, a crash or a power failure: FILE.journal records what is done.
    The exit code is 8 if lines failed; the next run tries them again.
    """
    from leap_core.batch.checking import check_batch
    from leap_core.batch.settings import BatchSettings

    output = Output(env)
    if model.name == "":
        raise click.UsageError("-m needs a model's name or file")
    settings = BatchSettings.of(
        **batch.fields,
        model=model.name,
        options=sampling.options(shape, enable_thinking=batch.reasons).to_json(),
        loading=dict(model.fields),
        recipes=own_recipes(env),
        on=machines.on,
        workers=machines.workers,
    )
    if machines.part is not None:
        settings = settings.of_part(machines.part)
    with naming_the_default(env, model.name):
        if background:
            print_id(output, _submit(env, settings, model, background, batch.workers))
            return ExitCode.DONE
        if model.name is not None and machines.merge is None:
            have_here(env, model.name)
        with check_batch(
            settings, env.stdin, default_model=default_model(env, model.name), variables=env.variables, cwd=env.cwd
        ) as checked:
            if machines.merge is not None:
                return _merge(output, checked, machines.merge, quiet=batch.quiet)
            return _run(env, output, settings, checked, model, quiet=batch.quiet)


def _submit(
    env: Environment, settings: BatchSettings, model: ModelChoice, background: Background, max_workers: int | None
) -> str:
    """The id of the job that answers the lines."""
    from leap_core.batch.settings import STANDARD

    if settings.output.path == STANDARD:
        raise click.UsageError("--background needs -o FILE for the results")
    with open_jobs(env) as jobs:
        if max_workers is not None and not jobs.configuration.is_shared:
            raise click.UsageError("--max-workers needs jobs_url: here one worker does all jobs")
        return jobs.batch(
            settings,
            rows=env.stdin if settings.input.source == STANDARD else None,
            default_model=default_model(env, model.name),
            host=model.job_may_use_host,
            policy=background.policy,
            cwd=env.cwd,
            max_workers=max_workers,
        )


def _run(
    env: Environment, output: Output, settings: BatchSettings, checked: CheckedBatch, model: ModelChoice, *, quiet: bool
) -> ExitCode:
    from leap_core.batch.escalation import EscalatingRunner, escalation_of
    from leap_core.batch.settings import STANDARD
    from leap_core.conversation.wrapping import wrapped

    warn_of_problems(output, checked)

    nodes: Callable[[], int] | None = None

    def load() -> AbstractContextManager[Runner]:
        nonlocal nodes
        if settings.cluster.on is not None:
            from leap_core.batch.checking import open_on_cluster

            places = {"variables": env.variables, "cwd": env.cwd}
            cluster = open_on_cluster(checked, settings.cluster, **places, on_note=output.note)
            nodes = cluster.nodes
            opened: AbstractContextManager[Runner] = cluster
            return opened
        if checked.embeds:
            return open_embedder(env, checked.model, model)
        runner = warm_or_load(env, checked.model, settings.loading_options(), model)
        if not checked.named_model:
            output.note(builtin_note())
        if settings.escalation.escalate_to is not None:
            far = load_model(env, replace(model, name=settings.escalation.escalate_to, fields={}))
            runner = wrapped(runner, escalate=escalation_of(settings.escalation, far, escalations.append))
        return runner

    escalations: list[EscalatingRunner] = []

    stop = threading.Event()
    journal = settings.open_journal()
    try:
        with stopping_on_interrupt(stop.set):
            piped = settings.output.path == STANDARD and not env.stdout_is_terminal
            # The reader of a pipe may write to the same terminal.
            show = show_nothing if piped else ProgressLine(output, lambda: nodes() if nodes else None)
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
        for each in escalations:
            output.note(each.summary(str(settings.escalation.escalate_to)))
    if progress.stopped:
        if not quiet and journal is not None:
            output.note("stopped; the same command resumes from here")
        return ExitCode.INTERRUPTED
    return ExitCode.JOB if progress.failed else ExitCode.DONE


def _merge(output: Output, checked: CheckedBatch, count: int, *, quiet: bool) -> ExitCode:
    from leap_core.batch.run import merge
    from leap_core.batch.settings import Part

    settings = checked.settings
    warn_of_problems(output, checked)
    parts = [settings.of_part(Part(number, count)).journal_path for number in range(1, count + 1)]
    journal = settings.open_journal()
    if journal is None:
        raise click.UsageError(f"--merge needs a file for the results, and {settings.output.path} is none")
    try:
        merged = merge(checked.open(journal, output.text, show_nothing), [path for path in parts if path])
    except OSError as error:
        raise _not_written(error, settings) from None
    finally:
        journal.close()
    if not quiet:
        output.note(summary(merged.progress, skipped=checked.problem_count))
    for told in missing_lines(merged.missing, count):
        output.warning(told)
    return ExitCode.JOB if merged.missing or merged.progress.failed else ExitCode.DONE


def _not_written(error: OSError, settings: BatchSettings) -> Exception:
    from leap_core.errors import LeapError
    from leap_core.system.addresses import shown

    return LeapError(
        f"cannot write {error.filename or shown(settings.output.path)}: {error.strerror or error}",
        hint="free disk space; the answers so far are kept, and the same command resumes",
    )
