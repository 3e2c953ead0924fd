"""``leap setup``: a model, completion and warmth in one go."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from leap_core.errors import LeapError

from ...completion.shell import SHELLS
from ...completion.value_types import ModelName
from ...exit_codes import ExitCode
from ...framework.click_classes import format_option, leap_command
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.options import option, seconds_of
from ...framework.output import Format, Output
from ...options.loading import check_chats, installed_models
from ...setup.questions import NONE, SetUp, SetupAnswers

NOTHING_GIVEN = "leap setup asks at a terminal; in a script give {missing}, or --yes for what it suggests"


class TimeOrNone(click.ParamType[str]):
    """A length of time as it was written, or ``none``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        try:
            if text.lower() != NONE:
                seconds_of(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return NONE if text.lower() == NONE else text


@leap_command("setup")
@click.option(
    "-m", "--model", type=ModelName(), metavar="MODEL|none", help="Default model; it is downloaded if needed."
)
@click.option(
    "--completion",
    type=click.Choice([*SHELLS, NONE], case_sensitive=False),
    help="Install TAB completion for this shell.",
)
@option(
    "--keep-alive",
    type=TimeOrNone(),
    metavar="TIME|none",
    help="Load the model now and unload idle models after this time; 0 is never.",
)
@click.option("-y", "--yes", is_flag=True, help="Accept all suggestions without asking.")
@click.option("--dry-run", is_flag=True, help="Show this machine, its settings and suggestions; change nothing.")
@format_option("the model's name")
def command(env: Environment, /, yes: bool, dry_run: bool, format: str, **given: str | None) -> ExitCode:
    """Set up leap: a default model that fits this machine, shell completion, and whether the model stays in memory.

    A terminal asks three questions and changes nothing before all are answered; options answer them in a script. Ctrl-C
    leaves nothing half done, and a download resumes where it stopped. Run it again to see the settings.
    """
    from ...setup.machine import offers, suggestion, this_machine
    from ...setup.questions import ask, describe, set_up_already, shell_in_use

    output = Output(env, format)
    machine, there = this_machine(env), set_up_already(env)
    models = offers(env, machine, installed_models(env))
    best = suggestion(models)
    suggested = SetupAnswers(
        model=there.model or (best.name if best else NONE),
        completion=shell_in_use(env),
        keep_alive=there.keep_alive or NONE,
    )
    if dry_run:
        if output.format is Format.TEXT:
            describe(env, machine, there)
        _show_plan(output, machine, models, suggested, there)
        return ExitCode.DONE
    missing = [f"--{name.replace('_', '-')}" for name, answer in given.items() if answer is None]
    if yes or not missing:
        answers = SetupAnswers(**{name: answer or getattr(suggested, name) for name, answer in given.items()})
    elif env.stdin_is_terminal and env.stderr_is_terminal:
        describe(env, machine, there)
        try:
            answers = ask(env, given=given, suggested=suggested, models=models, machine=machine)
        except EOFError:
            env.stderr.write("\n")
            output.note("nothing was changed")
            return ExitCode.INTERRUPTED
    else:
        raise click.UsageError(NOTHING_GIVEN.format(missing=", ".join(missing)))
    model = outcome_of(lambda: _fetched(env, answers.model))
    if isinstance(model, LeapError):
        _write(env, output, replace(answers, keep_alive=there.keep_alive or NONE), None, there)
        output.note("the other answers are kept; leap setup --model asks for the model again")
        raise model
    _warm(env, output, answers, model or there.model)
    _write(env, output, answers, model, there)
    output.record(set_up_already(env).record(), name="model")
    if output.format is Format.TEXT:
        output.note('next: leap "What is the capital of France?"; leap help lists the guides')
    return ExitCode.DONE


def _show_plan(output: Output, machine: Any, models: list[Any], suggested: SetupAnswers, there: SetUp) -> None:
    records = [model.record() for model in models]
    if output.format is Format.TEXT:
        from ...framework.options import in_bytes

        sizes = [{**row, "size": in_bytes(row["size"]), "memory": in_bytes(row["memory"])} for row in records]
        output.records(sizes, ["model", "size", "memory", "fits", "obstacle", "about"], name="model")
        flags = (f"--{name.replace('_', '-')} {answer}" for name, answer in vars(suggested).items())
        output.note(f"suggested: {' '.join(flags)}")
        return
    plan = {"machine": vars(machine), "set": there.record(), "suggested": vars(suggested), "models": records}
    output.record({"model": suggested.model, **plan}, name="model")


def _fetched(env: Environment, reference: str) -> str | None:
    """The name of the model that is here now, a file's path for a file; None for none. Raises LeapError."""
    from leap_core.models.resolving import Registry

    if reference.lower() == NONE:
        return None
    local = Registry(env.variables, env.cwd).get(reference)
    if local is not None:
        check_chats(env, reference)
        return str((env.cwd / reference).absolute()) if os.path.exists(env.cwd / reference) else local.model_id
    from ...options.first_use import fetch

    return fetch(env, reference).model_id


def _warm(env: Environment, output: Output, answers: SetupAnswers, model: str | None) -> None:
    """Load the model into the host, before anything is written: it may turn out that it cannot be loaded."""
    if answers.keep_alive == NONE:
        return
    from leap_core.protocols.host.lookup import keep_warm

    from ...options.loading import BUILTIN

    name = model or BUILTIN
    _host, held = keep_warm(
        name,
        variables=env.variables,
        cwd=env.cwd,
        on_progress=lambda seconds: output.progress(f"loading {name} … {seconds:.0f} s"),
        keep_alive=seconds_of(answers.keep_alive),
    )
    output.note(f"{held['model']} is loaded")


def _write(env: Environment, output: Output, answers: SetupAnswers, model: str | None, there: SetUp) -> None:
    """Each file is changed in one step, and only where it says something else."""
    from ...completion.scripts import install, place_of
    from ...config.settings import set_value, unset_value

    file = env.directories.config_file
    if model is not None and model != there.model:
        set_value(file, "default_model", model)
    if answers.keep_alive != NONE and answers.keep_alive != there.keep_alive:
        set_value(file, "keep_alive", answers.keep_alive)
    elif answers.keep_alive == NONE and there.keep_alive is not None:
        unset_value(file, "keep_alive")
    if answers.completion != NONE:
        place = place_of(answers.completion, env)
        if install(place, answers.completion):
            output.note(f"added a line to {place.start_file}; new {answers.completion} sessions complete leap")
    if model is not None and env.variables.get("LEAP_MODEL"):
        output.warning(f"$LEAP_MODEL names {env.variables['LEAP_MODEL']}, which answers instead of {model}")
