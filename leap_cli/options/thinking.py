"""Whether a model reasons before it answers, and where that is shown."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Thinking(str, Enum):
    """``show`` on stderr, ``hide``, or ``only``: the reasoning takes the place of the answer."""

    SHOW = "show"
    HIDE = "hide"
    ONLY = "only"


def thinking_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives ``think`` and ``show_thinking``, for ``take_thinking``."""
    options = (
        click.option(
            "--think",
            type=click.Choice([kind.value for kind in Thinking]),
            help="Let the model reason: show that on stderr, hide it, or print it alone.",
        ),
        click.option("--show-thinking", is_flag=True, hidden=True, help="The same as --think show."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def take_thinking(flags: dict[str, Any]) -> Thinking | None:
    """Take the flags out of ``flags``; None where the model is not asked to reason."""
    think, show = flags.pop("think"), flags.pop("show_thinking")
    if show and think not in (None, Thinking.SHOW.value):
        raise click.UsageError(f"--show-thinking is --think show, and cannot be combined with --think {think}")
    return Thinking.SHOW if show else None if think is None else Thinking(think)
