"""Command lines that a job runs later, read and checked when they are submitted."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..completion.value_types import ModelName
from ..framework.arguments import CommandLine
from ..framework.environment import Environment
from .loading import MODEL, model_reference


def read_command(words: Sequence[str], env: Environment) -> CommandLine:
    """The command that these words call, with the model that answers where they name none. Raises UsageError for what
    the command would not take, and LeapModelNotFoundError for a model that is not here."""
    from ..command_table import command_line

    context = command_line.make_context("leap", list(words), obj=env)
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    line = CommandLine.of(context)
    for parameter in context.command.params:
        if isinstance(parameter, click.Option) and isinstance(parameter.type, ModelName):
            values = context.params.get(str(parameter.name)) or ()
            for model in (values,) if isinstance(values, str) else values:
                _check(model, env)
    groups = [group for group, _ in getattr(context.command, "option_groups", ())]
    if any(MODEL in (group, *group.options) for group in groups) and not context.params.get("model"):
        model = model_reference(env, None)
        _check(model, env)
        line = line.with_option(f"--model={model}")
    return line


def _check(model: str, env: Environment) -> None:
    from leap_core.models.resolving import Registry

    Registry(env.variables, env.cwd).find(model)
