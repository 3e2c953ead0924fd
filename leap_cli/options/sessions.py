"""The options that continue and keep conversations, shared by the commands that generate."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from leap_core.errors import LeapError

from ..framework.environment import Environment
from ..framework.output import Output
from .loading import model_reference

if TYPE_CHECKING:
    from leap_core.sessions.recorder import SessionRecorder

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def session_flags(*, saves: bool) -> Callable[[Decorated], Decorated]:
    """Add the flags; the function receives ``continue_last``, ``session`` and ``save``, for ``take_session``.

    ``saves``: whether conversations of this command are kept by default.
    """
    keeps = "session (default), or not" if saves else "session, or not; with -c and --session it is kept by default"
    options = (
        click.option("-c", "--continue", "continue_last", is_flag=True, help="Continue the last session."),
        click.option("--session", metavar="SESSION", help="Continue the session of this name or id, or begin it."),
        click.option("--save/--no-save", default=None, help=f"Keep the conversation as a {keeps}."),
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

    def open(self, env: Environment) -> SessionRecorder:
        """The session that is continued or begun. Raises LeapSessionError where there is none to continue, and
        LeapError when the file of sessions cannot be used although it was asked for."""
        from leap_core.sessions.recorder import SessionRecorder
        from leap_core.storage.sqlite import has_tables

        required = self.continues or bool(self.save)
        recorder = SessionRecorder(env.directories.sessions_file, Output(env).warning, self.name, required)
        if not required and (self.save is False or not self.saves):
            return recorder
        try:
            recorder.open()
            if self.continues:
                recorder.resume(last=self.continue_last)
        except LeapError as error:
            recorder.close()
            # Without any session to continue, the answer is worth more than its being kept.
            if required and (self.continue_last or has_tables(recorder.file)):
                raise
            recorder.not_saved(error)
        if self.save is False:
            recorder.close()
        return recorder


def session_model(recorder: SessionRecorder, env: Environment, model: str | None) -> str | None:
    """The model that was named, else that of the session, else None. A session that begins records it."""
    if model is None and recorder.session is not None:
        model = recorder.session.model
    reference = model_reference(env, model)
    file = env.cwd / reference
    # The session may be continued from another directory.
    recorder.model = str(file.absolute()) if os.path.isfile(file) else reference
    return model


def take_session(flags: dict[str, Any], *, saves: bool) -> SessionFlags:
    """Take the flags out of ``flags``. One of the command line overrides another from the configuration."""
    session = SessionFlags(flags.pop("continue_last"), flags.pop("session"), flags.pop("save"), saves)
    if not session.continue_last or session.name is None:
        return session
    source = click.get_current_context().get_parameter_source
    typed = [name for name in ("continue_last", "session") if source(name) is ParameterSource.COMMANDLINE]
    if len(typed) != 1:
        raise click.UsageError("-c continues the last session and --session a certain one: give one of them")
    return replace(session, name=None) if typed == ["continue_last"] else replace(session, continue_last=False)
