"""The options of commands that can hand their work to the background, and how the job's id is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ..framework.aliases import renamed_option
from ..framework.output import Format, Output

if TYPE_CHECKING:
    from jobs.client import Policy

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_BACKGROUND = click.option(
    "--background", is_flag=True, help="Do this in the background and print the job's id: see leap jobs."
)
_PRIORITY = click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    metavar="N",
    help="Do the job before those of lower priority.",
)
_RETRIES = renamed_option(
    "--job-retries",
    formerly=("--retries",),
    type=click.IntRange(0, 1000),
    default=2,
    metavar="N",
    help="Try a failed job again this many times.",
)


def background_flags(*, with_retries: bool = True) -> Callable[[Decorated], Decorated]:
    """Add the flags; the function receives ``background``, ``priority`` and perhaps ``job_retries``."""

    def add(function: Decorated) -> Decorated:
        for option in (_RETRIES, _PRIORITY, _BACKGROUND) if with_retries else (_PRIORITY, _BACKGROUND):
            function = option(function)
        return function

    return add


def refuse_typed(name: str, flag: str) -> None:
    """Refuse the parameter of this name, which a job cannot heed, if it was typed: a general wish in the configuration
    is passed over. Raises UsageError."""
    if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
        raise click.UsageError(f"--background cannot be combined with {flag}")


def policy_of(priority: int, retries: int) -> Policy:
    """The flags' values as the jobs' client takes them."""
    from jobs.client import Policy

    return Policy(priority=priority, retries=retries)


def tell_id(output: Output, id: str) -> None:
    """Print the id of a submitted job, and nothing else."""
    if output.format is Format.JSON:
        output.document({"id": id})
    elif output.format is Format.JSONL:
        output.event({"id": id})
    else:
        output.text(f"{id}\n")
