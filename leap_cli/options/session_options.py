"""The options that continue and keep conversations, shared by the commands that generate."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import click

from leap_core.errors import LeapError

from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output
from .loading import ModelChoice
from .opening import model_reference

if TYPE_CHECKING:
    from leap_core.sessions.recorder import SessionRecorder


@dataclass(frozen=True)
class Session:
    """The conversation that is continued or kept. ``name``: by which it is continued. ``save``: whether it is kept,
    None as the command does, which ``saves`` conversations by default or does not."""

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


def session_group(*, saves: bool) -> OptionGroup[Session]:
    """The group of a command that keeps conversations by default, or does not."""
    keeps = "session (default), or not" if saves else "session, or not; with -c and --session it is kept by default"
    return OptionGroup(
        "session",
        "Session",
        (
            option("-c", "--continue", "continue_last", is_flag=True, saved=None, help="Continue the last session."),
            option(
                "--session", metavar="SESSION", saved=None, help="Continue the session of this name or id, or begin it."
            ),
            option(
                "--save/--no-save", default=None, wish=True, saved=None, help=f"Keep the conversation as a {keeps}."
            ),
        ),
        partial(_build, saves=saves),
    )


def _build(arguments: Arguments, *, saves: bool) -> Session:
    """One option of the command line overrides another from the configuration."""
    session = Session(arguments["continue_last"], arguments["session"], arguments["save"], saves)
    if not session.continue_last or session.name is None:
        return session
    typed = [name for name in ("continue_last", "session") if arguments.is_typed(name)]
    if len(typed) != 1:
        raise click.UsageError("-c continues the last session and --session a certain one: give one of them")
    return replace(session, name=None) if typed == ["continue_last"] else replace(session, continue_last=False)


def session_model(recorder: SessionRecorder, env: Environment, model: ModelChoice) -> ModelChoice:
    """The model that was named, else that of the session, else none. A session that begins records it."""
    if model.name is None and recorder.session is not None:
        model = replace(model, name=recorder.session.model)
    reference = model_reference(env, model.name)
    file = env.cwd / reference
    # The session may be continued from another directory.
    recorder.model = str(file.absolute()) if os.path.isfile(file) else reference
    return model
