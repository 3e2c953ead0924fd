"""The options that continue and keep conversations, shared by the commands that generate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from leap_core.errors import LeapError

from ..framework.environment import Environment
from ..framework.output import Output
from ..session_log import SessionLog

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def session_flags(*, saves: bool) -> Callable[[Decorated], Decorated]:
    """Add the flags; the function receives ``continue_last``, ``session`` and ``save``, for ``take_session``.

    ``saves``: whether conversations of this command are kept by default.
    """
    when = "by default" if saves else "with -c and --session by default"
    options = (
        click.option("-c", "--continue", "continue_last", is_flag=True, help="Continue the last session."),
        click.option("--session", metavar="SESSION", help="Continue the session of this name or id, or begin it."),
        click.option("--save/--no-save", default=None, help=f"Keep the conversation as a session, or not; {when}."),
    )

    def add(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return add


@dataclass(frozen=True)
class SessionFlags:
    """What the flags ask for."""

    continue_last: bool
    name: str | None
    save: bool | None
    saves: bool

    @property
    def continues(self) -> bool:
        """Whether a session is to be continued."""
        return self.continue_last or self.name is not None

    def open(self, env: Environment) -> SessionLog:
        """The session that is continued or begun. Raises LeapSessionError where there is none to continue, and
        LeapError when the file of sessions cannot be used although it was asked for."""
        wanted = self.continues or bool(self.save)
        log = SessionLog(Output(env), self.name, wanted)
        if not wanted and (self.save is False or not self.saves):
            return log
        try:
            log.open(env)
            if self.continues:
                log.resume(last=self.continue_last)
        except LeapError as error:
            log.close()
            if wanted:
                raise
            log.not_saved(error)
        if self.save is False:
            log.close()
        return log


def take_session(flags: dict[str, Any], *, saves: bool) -> SessionFlags:
    """Take the flags out of ``flags``. One of the command line goes before another from the configuration."""
    found = SessionFlags(flags.pop("continue_last"), flags.pop("session"), flags.pop("save"), saves)
    if not found.continue_last or found.name is None:
        return found
    source = click.get_current_context().get_parameter_source
    typed = [name for name in ("continue_last", "session") if source(name) is ParameterSource.COMMANDLINE]
    if len(typed) != 1:
        raise click.UsageError("-c continues the last session and --session a certain one: give one of them")
    return replace(found, name=None) if typed == ["continue_last"] else replace(found, continue_last=False)
