"""A task as a job: a batch of which each line is an input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..exit_codes import ExitCode
from ..framework.environment import Environment
from ..framework.output import Output
from ..options.background import print_id
from ..options.opening import default_model, naming_the_default, note_builtin
from ..options.tasks.task_options import TaskInput, TaskSettings, own_recipes
from .task_answers import leave_out

if TYPE_CHECKING:
    from leap_core.tasks.task import RecipeTask

AT_ONCE = 4
"""Inputs of a job at once: texts are long, and each takes a context."""


def submit_task(
    task: RecipeTask, inputs: Sequence[TaskInput], wish: TaskSettings, env: Environment, *, form: str = "text"
) -> ExitCode:
    """Queue the task and print the job's id. The answers go to ``--output``, or are kept with the job for ``leap jobs
    output``. ``form``: the format of the batch's results. Files that cannot be read are named and left out, and the
    exit code is JOB then."""
    from jobs.client import JobsClient
    from leap_core.batch.batch_settings import KEPT, BatchSettings

    output = Output(env)
    readable = leave_out(inputs, env)
    if not readable:
        return ExitCode.JOB
    failed, inputs = len(inputs) - len(readable), readable
    settings = BatchSettings(
        source="-",
        output=KEPT if wish.target is None else str(env.cwd / wish.target),
        model=wish.model.name,
        options=wish.overrides.to_json(),
        loading=dict(wish.model.fields),
        format=form,
        concurrency=min(AT_ONCE, len(inputs)),
        errors=None if wish.errors is None else str(env.cwd / wish.errors),
        directory=str(env.cwd),
        recipes=own_recipes(env, task.recipe.name),
        header=task.task.header,
    )
    with naming_the_default(env, wish.model.name), JobsClient(env.variables, on_warning=output.note) as jobs:
        id = jobs.batch(
            settings,
            rows=(_line(task, each, env) for each in inputs),
            default_model=default_model(env),
            host=wish.model.job_may_use_host,
            policy=wish.background.policy,
            cwd=env.cwd,
            label=f"{task.recipe.name} {inputs[0].name}" + (f" and {len(inputs) - 1} more" if len(inputs) > 1 else ""),
        )
    note_builtin(env, wish.model.name, output)
    print_id(output, id)
    return ExitCode.JOB if failed else ExitCode.DONE


def _line(task: RecipeTask, each: TaskInput, env: Environment) -> bytes:
    line: dict[str, Any] = {"custom_id": each.name, **task.task.to_json()}
    if each.picture is not None:
        line["image"] = str(env.cwd / each.picture)
    else:
        line["text"] = each.message.text
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"
