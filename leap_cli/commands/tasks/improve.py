"""``leap improve``: the cheapest way of asking that passes cases."""

from __future__ import annotations

import html
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError

from ...config.saved import TEMPLATES, PromptTemplate, write_template
from ...display.batches import ProgressLine
from ...exit_codes import ExitCode
from ...framework.click_classes import format_choice, leap_command
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.interrupts import stopping_on_interrupt
from ...framework.options import seconds_of
from ...framework.output import Format, Output
from ...options.background import BACKGROUND, Background
from ...options.improvement import IMPROVEMENT, Improvement
from ...options.loading import (
    EACH_MODEL,
    ModelChoice,
    load_model,
    model_reference,
    model_to_pin,
    note_builtin,
    warm_or_load,
)
from ...options.tasks import own_recipes

if TYPE_CHECKING:
    from leap_core.batch.answering import Runner
    from leap_core.batch.checking import CheckedBatch
    from leap_core.batch.options import BatchEscalation
    from leap_core.evaluation.cases import Case
    from leap_core.evaluation.improvement.improver import Ask, Improved
    from leap_core.evaluation.results import CaseResult
    from leap_core.evaluation.running import Column
    from leap_core.tasks.recipe import Recipe

REFLECTION_TOKENS = 2048
SPELLED = {"template": "--save-template"}
"""Options whose names are not those of their values."""


@leap_command("improve")
@click.argument("cases", type=click.Path(dir_okay=False))
@IMPROVEMENT
@format_choice("Output format: the report (text), JSON, JSON Lines, or quiet: nothing.")
@EACH_MODEL
@BACKGROUND
def command(
    env: Environment, /, cases: str, wanted: Improvement, model: ModelChoice, background: Background, format: str
) -> ExitCode:
    """Prompt optimization: find the cheapest prompt, settings and model that pass the test cases of CASES (see leap
    eval).

    Steps are tried from cheapest to most expensive: the model as it is; options and labels; few-shot examples; a prompt
    rewritten from failures (leap-edge[improve]); a larger model for some cases; a LoRA adapter (leap-edge[train]).
    Answers are saved, and the same command resumes.
    """
    from leap_core.evaluation.cases import read_cases
    from leap_core.evaluation.improvement.improver import ImprovementSettings, Improver, report

    output = Output(env, format)
    path = env.cwd / cases
    file = read_cases(path)
    recipe = _recipe_of(env, file.cases, wanted)
    reference = model_reference(env, wanted.model)
    _check_names(env, wanted, background)
    directory = env.cwd / wanted.directory if wanted.directory else path.with_suffix(".improve")
    if background:
        pinned = model_to_pin(env, replace(model, name=wanted.model), background, output)
        return background.submit(env, output, pinned)
    if wanted.model is None:
        note_builtin(env, None, output)
    stop = threading.Event()
    with _models(env, model) as load, stopping_on_interrupt(stop.set):
        reflecting = wanted.reflect_with or reference
        settings = ImprovementSettings(
            file,
            _start(reference, wanted, model, file.templates),
            directory,
            wanted.goal,
            wanted.seed,
            lambda prompt: _reflect(env, model, reflecting, prompt),
            wanted.escalate_to,
            wanted.checkpoint,
            **_facts(env, reference),
            recipe=recipe,
        )
        directory.mkdir(parents=True, exist_ok=True)
        ask = _asker(env, output, settings.directory, load, stop, wanted.budget)
        improved = outcome_of(lambda: Improver(settings, ask, output.note, stop).run())
        if isinstance(improved, LeapError):
            if not stop.is_set():
                raise improved
            output.note("stopped; the same command resumes from here")
            return ExitCode.INTERRUPTED
    _write(directory, improved, report(improved))
    _tell(env, output, improved, wanted, directory)
    return ExitCode.DONE


def _check_names(env: Environment, wanted: Improvement, background: Background) -> None:
    """Raise what would stop a run at its end: a name that no template can have, and models that are not here."""
    from leap_core.models.resolving import Registry

    registry = Registry(env.variables, env.cwd)
    if wanted.template is not None:
        TEMPLATES.path(env, wanted.template)
    for name in filter(None, (wanted.reflect_with, wanted.escalate_to)):
        (registry.can_answer if background.comes_after_jobs else registry.find)(name)


def _tell(env: Environment, output: Output, improved: Improved, wanted: Improvement, directory: Path) -> None:
    """Print the report, and say what becomes of the result."""
    for task in improved.column.recipes:
        output.note(f"`leap saved recipes add {wanted.directory or directory.name}/{task}.toml` has it used")
    if wanted.template is not None:
        _save(env, output, wanted.template, improved)
    if output.format is Format.TEXT:
        output.text((directory / "report.md").read_text("utf-8"))
    elif output.format is not Format.QUIET:
        output.record(_record(improved), name="kept")
    if improved.rejected is not None:
        output.note(improved.outcome)
    elif not improved.is_better:
        done = improved.trials[0].rate >= wanted.goal
        passes = f"{improved.column.model} passes already"
        output.note(passes if done else "nothing is better, as far as these cases can tell")


def _recipe_of(env: Environment, cases: Sequence[Case], wanted: Improvement) -> Recipe | None:
    """The recipe of the task that all cases are of; None where they are prompts. Raises UsageError."""
    tasks = {case.request.get("task") for case in cases}
    if tasks == {None}:
        return None
    if len(tasks) > 1:
        raise click.UsageError("the cases are of several tasks, or some of none: give a file for each")
    from leap_core.tasks.task_fields import read_task

    for option in ("system", "template", "checkpoint"):
        if getattr(wanted, option) is not None:
            raise click.UsageError(f"{SPELLED.get(option, '--' + option)} is for prompts: these cases are of a task")
    fields = {key: value for key, value in cases[0].request.items() if key not in ("text", "prompt")}
    return read_task(fields, own_recipes(env, str(fields["task"])))[0].recipe


def _start(reference: str, wanted: Improvement, model: ModelChoice, templates: Sequence[str]) -> Column:
    from leap_core.evaluation.running import Column

    limit = {} if wanted.max_tokens is None else {"max_tokens": wanted.max_tokens}
    template = templates[0] if templates else None
    return Column("baseline", reference, limit, dict(model.fields), wanted.system, template)


def _asker(
    env: Environment,
    output: Output,
    directory: Path,
    load: Callable[[CheckedBatch], AbstractContextManager[Runner]],
    stop: threading.Event,
    budget: str | None,
) -> Ask:
    """Puts cases to a column, as an evaluation of its own, until the budget is spent."""
    from leap_core.evaluation.cases import CaseFile
    from leap_core.evaluation.improvement.prompt_search import Ended
    from leap_core.evaluation.running import Evaluation

    known: dict[tuple[str, str], CaseResult] = {}
    began, requests = time.monotonic(), 0
    most = int(budget) if budget is not None and budget.isdecimal() else None
    seconds = None if budget is None or budget.isdecimal() else seconds_of(budget)
    progress = ProgressLine(output)

    def ask(column: Column, cases: Sequence[Case], part: str) -> list[CaseResult]:
        nonlocal requests
        left = [case for case in cases if (column.name, case.id) not in known]
        if left and part != "held":
            if most is not None and requests + len(left) > most:
                raise Ended(f"the budget of {most} requests is spent")
            if seconds is not None and time.monotonic() - began > seconds:
                raise Ended(f"the budget of {budget} is spent")
        if left:
            requests += len(left)
            file = CaseFile(tuple(left), directory=env.cwd)
            evaluation = Evaluation(
                file, [column], directory / part, load, env.variables, recipes=own_recipes(env), cwd=env.cwd
            )
            done, _ = evaluation.ask(column, stop, progress)
            if done.stopped or stop.is_set():
                raise Ended("stopped")
            known.update({(column.name, each.case): each for each in evaluation.results(column, stop, progress)})
        return [known[column.name, case.id] for case in cases]

    return ask


@contextmanager
def _models(env: Environment, model: ModelChoice) -> Iterator[Callable[[CheckedBatch], AbstractContextManager[Any]]]:
    """Opens the model of a batch, and keeps the last one for the next."""
    from leap_core.batch.escalation import escalation_of
    from leap_core.conversation.wrapping import wrapped

    opened: dict[str, Any] = {}

    def load(checked: CheckedBatch) -> AbstractContextManager[Any]:
        settings = checked.settings
        key = json.dumps([checked.model, settings.loading, settings.limits.concurrency], default=str)
        if key not in opened:
            close()
            opened[key] = warm_or_load(env, checked.model, settings.loading_options(), model)
        runner = opened[key]
        if settings.escalation.escalate_to is not None:
            return escalating(runner, settings.escalation, settings.escalation.escalate_to)
        return nullcontext(runner)

    @contextmanager
    def escalating(runner: Any, given: BatchEscalation, name: str) -> Iterator[Any]:
        """The first model is kept for the next batch."""
        with load_model(env, replace(model, name=name, fields={})) as far:
            yield wrapped(runner, escalate=escalation_of(given, far))

    def close() -> None:
        for runner in opened.values():
            runner.unload()
        opened.clear()

    try:
        yield load
    finally:
        close()


def _reflect(env: Environment, model: ModelChoice, name: str, prompt: str) -> str:
    """What a model says to a prompt."""
    from leap_core.conversation.options import GenerationOptions
    from leap_core.conversation.streams import last_of

    with load_model(env, replace(model, name=name, fields={})) as runner:
        options = GenerationOptions(temperature=0.0, max_tokens=REFLECTION_TOKENS)
        return last_of(runner.create_conversation().generate_response(prompt, options)).full_message.text


def _facts(env: Environment, reference: str) -> dict[str, Any]:
    """Of the model: whether it thinks, and the names that it has for recipes."""
    from leap_core.inference.gguf.header import read_gguf_header
    from leap_core.models.resolving import LocalModel, Registry

    found = Registry(env.variables, env.cwd).find(reference)
    if not isinstance(found, LocalModel):
        return {"model_id": reference}
    header = read_gguf_header(found.path)
    template = found.chat_template or header.chat_template or ""
    return {"thinks": "enable_thinking" in template, "model_id": found.model_id, "header_names": header.names}


def _write(directory: Path, improved: Improved, text: str) -> None:
    from markdown_it import MarkdownIt

    from leap_core.system.files import replace_text

    page = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    style = "body{font:16px system-ui;max-width:60em;margin:2em auto}td,th{padding:.2em .6em;text-align:left}"
    head = f"<!doctype html><meta charset=utf-8><title>{html.escape(directory.name)}</title><style>{style}</style>"
    for task, recipe in improved.column.recipes.items():
        replace_text(directory / f"{task}.toml", str(recipe))
    replace_text(directory / "report.md", text)
    replace_text(directory / "report.html", head + page)
    replace_text(directory / "improved.json", json.dumps(_record(improved), ensure_ascii=False, indent=1) + "\n")


def _record(improved: Improved) -> dict[str, Any]:
    kept = {name: value for name, value in asdict(improved.column).items() if value}
    steps = [trial.to_json() for trial in improved.trials]
    rates = {"before": improved.before, "after": improved.after, "p": improved.p, "rejected": improved.rejected}
    told = {"steps": steps, "notes": improved.notes, "doubts": improved.doubts}
    return {"kept": kept, "improved": improved.is_better, **rates, **told}


NAMES = {"choices_constraint": "choices", "inject_schema_into_prompt": "schema_in_prompt"}
"""Options of templates that are called otherwise."""


def _save(env: Environment, output: Output, name: str, improved: Improved) -> None:
    """Save the way that is kept as a template."""
    column = improved.column
    options: dict[str, Any] = {}
    for key, value in column.options.items():
        if key == "enable_thinking":
            options |= {"think": "hide"} if value else {}
        else:
            options[NAMES.get(key, key)] = ",".join(value) if key == "choices_constraint" else value
    if adapters := column.loading.get("adapters"):
        options["lora"] = [f"{each['path']}={each['scale']}" for each in adapters]
    prompt = column.template or "{input}"
    about = f"found by leap improve: {improved.after:.0%} of held-back cases"
    template = PromptTemplate(name, about, column.system, prompt, {"model": column.model, **options})
    write_template(env, template)
    command = f"leap -t {name}"
    if column.escalate_to is not None:  # which is not part of a template
        command = f"leap batch -t {name} --escalate-to {column.escalate_to} --escalate-when '{column.when}'"
    output.note(f"`{command}` uses it")
