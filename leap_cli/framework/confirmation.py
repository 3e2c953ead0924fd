"""A question before something is removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .environment import Environment
from .interrupts import raising_on_interrupt
from .output import Output

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def removal_flags(function: Decorated) -> Decorated:
    """Add ``--yes`` and ``--dry-run``; the function receives ``yes`` and ``dry_run``, for ``confirm_removal``."""
    function = click.option("-y", "--yes", is_flag=True, help="Remove without asking, as scripts do.")(function)
    return click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")(function)


def confirm_removal(env: Environment, what: str, *, yes: bool, dry_run: bool) -> bool:
    """Whether to remove ``what``, such as "3 jobs". A terminal is asked; without one ``--yes`` is needed, or UsageError
    is raised."""
    if dry_run:
        Output(env).note(f"{what} would be removed")
        return False
    if yes:
        return True
    if not (env.stdin_is_terminal and env.stderr_is_terminal):
        raise click.UsageError(f"{what} would be removed: give --yes to remove, or --dry-run to see them")
    try:
        with raising_on_interrupt():
            answer = env.read_typed_line(f"remove {what}? [y/N] ").strip().lower()
    except EOFError:
        answer = ""
    if answer not in ("y", "yes"):
        Output(env).note("nothing was removed")
        return False
    return True
