"""The guard of a conversation: a file of questions, and the model that answers them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from leap_core.errors import LeapSerializationError

from ..completion.value_types import ModelName
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.text_arguments import FileName
from .loading import ModelChoice
from .opening import load_model
from .tasks.decisions import read_questions_file

if TYPE_CHECKING:
    from leap_core.decisions.guard import Guard, Watched
    from leap_core.runner.generator import Generator


@dataclass(frozen=True)
class GuardChoice:
    """``questions``: empty for no guard. ``model`` answers them; None is the conversation's own."""

    questions: tuple[Watched, ...] = ()
    model: str | None = None

    @contextmanager
    def opened(self, env: Environment, model: ModelChoice) -> Iterator[OpenGuard | None]:
        """The guard of conversations, while its model is loaded; None where there is none."""
        if not self.questions or self.model is None:
            yield OpenGuard(self.questions, None) if self.questions else None
            return
        with load_model(env, replace(model, name=self.model, fields={})) as runner:
            yield OpenGuard(self.questions, runner)


@dataclass(frozen=True)
class OpenGuard:
    """``runner`` None is the model of each conversation."""

    questions: tuple[Watched, ...]
    runner: Generator | None

    def of(self, runner: Generator) -> Guard:
        """The guard of a conversation with this model."""
        from leap_core.decisions.guard import Guard

        return Guard(self.runner or runner, self.questions)


def _build(arguments: Arguments) -> GuardChoice:
    """Raises UsageError for a file that cannot be read, or questions that cannot be asked."""
    name, model = arguments["guard"], arguments["guard_model"]
    if name is None:
        if model is not None:
            raise click.UsageError("--guard-model needs --guard QUESTIONS")
        return GuardChoice()
    from leap_core.decisions.guard import read_guard

    try:
        return GuardChoice(read_guard(read_questions_file(name, arguments.env, "--guard")), model)
    except LeapSerializationError as error:
        raise click.UsageError(f"--guard {name}: {error.message}") from None


GUARD = OptionGroup(
    "guard",
    "Guard",
    (
        option(
            "--guard",
            type=FileName(),
            metavar="QUESTIONS",
            help="Ask the questions of this JSON or YAML file about each message and each answer, and stop those that "
            "they find. Exit code 11 in a pipe.",
        ),
        option(
            "--guard-model",
            type=ModelName(),
            metavar="MODEL",
            help="Ask this model, such as d1-3B, in the place of the one that answers.",
        ),
    ),
    _build,
)
