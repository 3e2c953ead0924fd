"""The options of conversations: kept, spoken, guarded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from leap_core.errors import LeapError, LeapSerializationError
from leap_core.inference.speech.voices import VOICES
from leap_core.system.dataclass import dataclass

from ..completion.value_types import ModelName
from ..framework.arguments import FileName
from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.output import Output
from .answer import SpeechTarget, check_target
from .background import check_apart
from .loading import ModelChoice, load_model, model_reference
from .prompt import SYSTEM_OPTION, read_system_option

if TYPE_CHECKING:
    from leap_core.conversation.generator import Generator
    from leap_core.conversation.session_recorder import SessionRecorder
    from leap_core.tasks.decisions.guard import Guard, Watched


@dataclass(frozen=True)
class SessionChoice:
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
        from leap_core.conversation.session_recorder import SessionRecorder

        required = self.continues or bool(self.save)
        recorder = SessionRecorder(env.directories.sessions_file, Output(env).warning, self.name, required)
        if not required and (self.save is False or not self.saves):
            return recorder
        try:
            recorder.open()
            if self.continues:
                recorder.resume(last=self.continue_last)
        except LeapError as error:
            from leap_core.system.sqlite import has_tables

            recorder.close()
            # Without any session to continue, the answer is worth more than its being kept.
            if required and (self.continue_last or has_tables(recorder.file)):
                raise
            recorder.not_saved(error)
        if self.save is False:
            recorder.close()
        return recorder


def session_group(*, saves: bool) -> OptionGroup[SessionChoice]:
    """The group of a command that keeps conversations by default, or does not."""
    keeps = "session (default), or not" if saves else "session, or not; with -c and --session it is kept by default"
    return OptionGroup(
        "session",
        "Session",
        (
            option("-c", "--continue", "continue_last", is_flag=True, saved=None, help="Continue the last session."),
            option(
                "--session", metavar="SESSION", saved=None, help="Continue or start the session of this name or id."
            ),
            option(
                "--save/--no-save", default=None, wish=True, saved=None, help=f"Save the conversation as a {keeps}."
            ),
        ),
        partial(_build, saves=saves),
    )


def _build(arguments: Arguments, *, saves: bool) -> SessionChoice:
    """One option of the command line overrides another from the configuration."""
    session = SessionChoice(arguments["continue_last"], arguments["session"], arguments["save"], saves)
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


@dataclass(frozen=True)
class TalkOptions:
    """``voice``: that reads answers aloud, None for the conversation's own. ``microphone``, ``loudspeaker``: numbers or
    parts of names, None for the system's own. ``sound``: the audio file that replaces the microphone; ``answers``:
    where what is said goes then, ``fast`` or in real time. ``recording``: the file of both sides. ``pause``: seconds
    that end an utterance."""

    system: str | None
    voice: str | None
    push: bool
    interrupt: bool
    pause: float
    microphone: int | str | None
    loudspeaker: int | str | None
    devices: bool
    sound: str | None
    answers: SpeechTarget
    fast: bool
    recording: SpeechTarget
    stats: bool


def _build_talk(arguments: Arguments) -> TalkOptions:
    env: Environment = arguments.env
    named = [int(name) if name.isdecimal() else name for name in arguments["device"]]
    if len(named) > 2:
        raise click.UsageError("--device is given once, or twice: the microphone, then the loudspeaker")
    if arguments["sound"] is None:
        for name, flag in (("answers", "--output"), ("fast", "--fast")):
            if arguments[name]:
                raise click.UsageError(f"{flag} needs --input{arguments.origin(name)}")
    answers, recording = SpeechTarget(arguments["answers"]), SpeechTarget(arguments["recording"])
    check_target(answers, env, "--output")
    check_target(recording, env, "--record")
    if recording.is_stdout:
        raise click.UsageError("--record needs a file's name")
    check_apart(env, {"--input": arguments["sound"], "--output": answers.file, "--record": recording.file})
    return TalkOptions(
        read_system_option(arguments),
        arguments["voice"],
        **arguments.of("push", "interrupt", "pause"),
        microphone=named[0] if named else None,
        loudspeaker=named[-1] if named else None,
        answers=answers,
        recording=recording,
        **arguments.of("devices", "sound", "fast", "stats"),
    )


TALK = OptionGroup(
    "talking",
    "Talk",
    (
        option("--push-to-talk", "push", is_flag=True, help="Record only between two presses of the space bar."),
        option(
            "--interrupt/--no-interrupt",
            default=True,
            help="Let speech interrupt an answer (default), or ignore the microphone during one.",
        ),
        option(
            "--silence-duration",
            "pause",
            type=click.FloatRange(0.2, 5.0),
            default=0.7,
            show_default=True,
            metavar="SECONDS",
            help="End of speech: this much silence.",
        ),
        option(
            "--voice",
            type=click.Choice(list(VOICES), case_sensitive=False),
            help="Answer in text, read aloud sentence by sentence with this voice.",
        ),
        SYSTEM_OPTION,
        option(
            "--device",
            multiple=True,
            metavar="DEVICE",
            help="Audio device by number or part of its name; given twice, the microphone and the loudspeaker.",
        ),
        option("--devices", is_flag=True, help="List microphones and loudspeakers and exit."),
        option(
            "--input",
            "sound",
            type=FileName(),
            heading="Files",
            help="Read this audio (WAV, FLAC, OGG, MP3, ...) instead of the microphone; - reads standard input.",
        ),
        option(
            "-o",
            "--output",
            "answers",
            type=FileName(),
            heading="Files",
            help="Write the answers to this WAV file, each at its time; - is standard output.",
        ),
        option("--fast", is_flag=True, heading="Files", help="Process the input faster than real time."),
        option(
            "--record",
            "recording",
            type=FileName(),
            heading="Files",
            help="Record both sides to this WAV file: the user on the left channel, the model on the right.",
        ),
        option("--stats", is_flag=True, help="Show token counts and speed after each answer."),
    ),
    _build_talk,
    {"sound": ("push", "device"), "devices": ("sound", "push")},
)


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
        from leap_core.tasks.decisions.guard import Guard

        return Guard(self.runner or runner, self.questions)


def _build_guard(arguments: Arguments) -> GuardChoice:
    """Raises UsageError for a file that cannot be read, or questions that cannot be asked."""
    name, model = arguments["guard"], arguments["guard_model"]
    if name is None:
        if model is not None:
            raise click.UsageError("--guard-model needs --guard QUESTIONS")
        return GuardChoice()
    from leap_core.tasks.decisions.guard import read_guard

    from .tasks import read_questions_file  # here, because every prompt would pay for it

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
            help="Guardrails: check messages and answers by the questions of this JSON or YAML file; blocked ones "
            "exit with code 11 in a pipe.",
        ),
        option(
            "--guard-model",
            type=ModelName(),
            help="Use this model for the guard, such as d1-3B, instead of the one that answers.",
        ),
    ),
    _build_guard,
)
