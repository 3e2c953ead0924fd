"""``leap eval``: the same cases put to several models, and what the counts allow to say."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...answers.cases import BATCH, FEATURES, SOURCES, cases_from
from ...display.batches import ProgressLine
from ...display.evaluation import Shown, print_case, print_evaluation
from ...exit_codes import ExitCode
from ...framework.click_classes import leap_group
from ...framework.environment import Environment
from ...framework.interrupts import stopping_on_interrupt
from ...framework.options import option
from ...framework.output import Output
from ...options.background import BACKGROUND, Background, check_apart, open_jobs, print_id
from ...options.batch import MACHINES, Machines
from ...options.embedding import open_embedder
from ...options.evaluation import ASKING, COLUMNS, JUDGEMENT, Asking, ColumnOptions, Judgement
from ...options.loading import EACH_MODEL, ModelChoice, model_reference, note_builtin, warm_or_load
from ...options.tasks import own_recipes

if TYPE_CHECKING:
    from leap_core.batch.answering import Runner
    from leap_core.batch.checking import CheckedBatch
    from leap_core.evaluation.cases import CaseFile
    from leap_core.evaluation.running import Evaluation

RUN = "run"
ENDING = ".eval"


@leap_group("eval", verb=RUN)
def command() -> None:
    """Find out which model, quantization, prompt or sampling is good enough, and whether it got worse: leap eval CASES
    -m A -m B"""


OF_RESULTS = (
    *("--format", "--html", "--junit", "--baseline", "--option alpha", "--min"),
    *("--judge", "--option embedding-model", "--allow-python", "--quiet"),
)
"""Options of what is done with answers: where they are given, one job asks and judges, else there is one for each
column."""


@command.command(RUN, short_help="Run test cases on models and compare them.")
@click.argument("cases", type=click.Path(dir_okay=False))
@COLUMNS
@ASKING
@JUDGEMENT
@MACHINES
@EACH_MODEL
@BACKGROUND
def run(
    env: Environment,
    /,
    cases: str,
    wish: ColumnOptions,
    asking: Asking,
    judgement: Judgement,
    machines: Machines,
    model: ModelChoice,
    background: Background,
) -> ExitCode:
    """Run the test cases of CASES with every MODEL, and print pass rates with confidence intervals.

    CASES is JSONL, JSON, YAML, CSV or TSV. A case is a line of `leap batch` plus an expectation: {"prompt": "The
    capital of Italy?", "expect": {"contains": "Rome"}}. Files of promptfoo, OpenAI Evals, inspect_ai and the Berkeley
    Function-Calling Leaderboard work unchanged. See `leap help evaluation`.

    Answers are saved in CASES.eval: the same command resumes and runs only new cases. The exit code is 8 if cases have
    no answer, or if --baseline or --min fails.
    """
    from leap_core.evaluation.cases import read_cases
    from leap_core.evaluation.report import hints_on_equals

    output = Output(env)
    file = read_cases(env.cwd / cases)
    if not asking.quiet:
        _tell_unsupported(output, file)
    if file.runs_programs and not asking.allow_python:
        raise click.UsageError("the cases name Python files to run: --allow-python lets them")
    evaluation = _evaluation(env, env.cwd / cases, file, wish, asking, model)
    evaluation.on, evaluation.workers = machines.on, machines.workers
    evaluation.part, evaluation.merge = machines.part, machines.merge
    evaluation.check()
    if background.repeats_command(env) or background.has(*OF_RESULTS):
        return background.submit(env, output, None if wish.models else model_reference(env, None))
    if background:
        return _submit(env, output, evaluation, model, background)
    if not wish.models and not asking.quiet:
        note_builtin(env, None, output)
    shown = _ask(output, evaluation, asking)
    if shown is None:
        output.note("stopped; the same command resumes from here")
        return ExitCode.INTERRUPTED
    if machines.part is not None:
        output.note(f"that is one part; --merge {machines.part.count} shows the table of all")
        return ExitCode.DONE
    for hint in [] if asking.quiet else hints_on_equals(file.cases, shown.results):
        output.note(hint)
    return print_evaluation(env, shown, judgement, quiet=asking.quiet)


@command.command("show")
@click.argument("results", default=".", type=click.Path())
@option("--case", "cases", multiple=True, metavar="ID", help="Show the answers to this case side by side.")
@option("--failed", is_flag=True, help="Show the cases that failed.")
@option("--differs", nargs=2, metavar="A B", help="Show the cases on which these two variants differ.")
@JUDGEMENT
def show(
    env: Environment,
    /,
    results: str,
    cases: tuple[str, ...],
    failed: bool,
    differs: tuple[str, str] | None,
    judgement: Judgement,
) -> ExitCode:
    """Show the RESULTS of an evaluation: the table, or the answers to single cases side by side.

    RESULTS is a directory or its results.jsonl; by default the only directory *.eval of the current directory.
    """
    from leap_core.evaluation.results import read_results

    found, facts = read_results(_place(env, results))
    shown = Shown(found, facts)
    if not (cases or failed or differs):
        return print_evaluation(env, shown, judgement, quiet=True)
    return print_case(env, shown, judgement.format, cases=cases, failed=failed, differs=differs)


@command.command("make")
@click.option(
    "--from",
    "source",
    type=click.Choice(SOURCES),
    required=True,
    help="Source: saved sessions, the prompt log, batch results, or reviewed documents.",
)
@click.argument("names", nargs=-1)
@click.option("-o", "--output", "target", metavar="FILE", help="Write the cases to this file.")
@click.option("--limit", type=click.IntRange(1), help="Make at most this many cases.")
@click.option("--undecided", is_flag=True, help="Include reviewed documents with undecided fields.")
def make(
    env: Environment, /, source: str, names: tuple[str, ...], target: str | None, limit: int | None, undecided: bool
) -> None:
    """Create test cases from existing answers: each case expects the recorded answer, or its reviewed version.

    NAMES are sessions, batch files (RESULTS, or LINES and RESULTS), search words for logged prompts, or files of
    reviewed documents. Read the cases before you use them: unless reviewed, the expected value is what the model said.
    """
    from leap_core.system.files import replace_text

    output = Output(env)
    for name in names if source in (BATCH, *FEATURES) else ():
        check_apart(env, {"NAMES": name, "--output": target})
    lines = cases_from(env, source, names, limit, undecided=undecided)
    text = "".join(f"{line}\n" for line in lines)
    if target is None:
        output.text(text)
    else:
        replace_text(env.cwd / target, text)
    good = "the reviewed document" if source in FEATURES else "the answer that was given"
    output.note(f"{'1 case' if len(lines) == 1 else f'{len(lines)} cases'}: each expects {good}")


def _tell_unsupported(output: Output, file: CaseFile) -> None:
    for each in file.unsupported[:20]:
        output.warning(each)
    if len(file.unsupported) > 20:
        output.warning(f"{len(file.unsupported) - 20} more things are not supported")


def _evaluation(
    env: Environment, path: Path, file: CaseFile, wish: ColumnOptions, asking: Asking, model: ModelChoice
) -> Evaluation:
    from leap_core.evaluation.running import Evaluation

    directory = asking.directory or path.with_suffix(ENDING)
    names = wish.models or (model_reference(env, None),)
    columns = wish.columns(model, names, file.templates, env.cwd)

    def load(checked: CheckedBatch) -> AbstractContextManager[Runner]:
        if checked.settings.cluster.on is not None:
            from leap_core.batch.checking import open_on_cluster

            cluster: AbstractContextManager[Runner]
            cluster = open_on_cluster(checked, checked.settings.cluster, variables=env.variables, cwd=env.cwd)
            return cluster
        if checked.embeds:
            return open_embedder(env, checked.model, model)
        return warm_or_load(env, checked.model, checked.settings.loading_options(), model)

    return Evaluation(
        file,
        columns,
        directory,
        load,
        env.variables,
        wish.repeats,
        asking.concurrency,
        asking.judge,
        asking.embedder,
        own_recipes(env),
        env.cwd,
        asking.overwrite,
    )


def _ask(output: Output, evaluation: Evaluation, asking: Asking) -> Shown | None:
    """Ask all columns, and keep what came of them; None where that was stopped."""
    from leap_core import __version__
    from leap_core.evaluation.results import write_results

    stop = threading.Event()
    progress = ProgressLine(output)
    results, facts = [], []
    with stopping_on_interrupt(stop.set):
        for column in evaluation.columns:
            done, about = evaluation.ask(column, stop, progress)
            if done.stopped:
                return None
            if not asking.quiet:
                before = f" ({done.reused} of them before)" if done.reused else ""
                output.note(f"{column.name}: {done.succeeded} of {done.total} requests answered{before}")
            facts.append(about.to_json())
        for column in [] if evaluation.part is not None else evaluation.columns:
            results += evaluation.results(column, stop, progress)
            if stop.is_set():
                return None
    about_all: dict[str, Any] = {"leap": __version__, "cases": len(evaluation.file.cases), "columns": facts}
    about_all |= {"repeats": evaluation.repeats, "concurrency": evaluation.concurrency}
    if evaluation.part is None:
        write_results(evaluation.directory, results, about_all)
    return Shown(results, about_all)


def _submit(
    env: Environment, output: Output, evaluation: Evaluation, model: ModelChoice, background: Background
) -> ExitCode:
    """A job for each column; the same command without --background reads what they did."""
    with open_jobs(env) as jobs:
        for column in evaluation.columns:
            settings, host = evaluation.settings(column), model.job_may_use_host
            print_id(output, jobs.batch(settings, host=host, policy=background.policy, cwd=env.cwd))
    output.note("one job for each column; the same command without --background shows the table when they are done")
    return ExitCode.DONE


def _place(env: Environment, results: str) -> Path:
    place = env.cwd / results
    if results != "." or (place / "results.jsonl").exists():
        return place
    found: Sequence[Path] = sorted(place.glob(f"*{ENDING}"))
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.name for each in found) or "none"
    raise click.UsageError(f"say which results: here are {names}")
