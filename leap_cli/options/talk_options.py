"""How a spoken conversation is held: with which devices or files, and what ends an utterance."""

from __future__ import annotations

from dataclasses import dataclass

import click

from leap_core.speech.voices import VOICES

from ..framework.environment import Environment
from ..framework.option_groups import Arguments, OptionGroup
from ..framework.options import option
from ..framework.text_arguments import FileName
from .answer import SpeechTarget, check_target
from .files_apart import check_apart
from .prompt_options import SYSTEM_OPTION, read_system_option


@dataclass(frozen=True)
class TalkOptions:
    """``voice``: that reads answers aloud, None for the conversation's own. ``microphone``, ``loudspeaker``: numbers or
    parts of names, None for the system's own. ``sound``: the file that is heard instead; ``answers``: where what is
    said goes then, ``fast`` or in real time. ``recording``: the file of both sides. ``pause``: seconds that end an
    utterance."""

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


def _build(arguments: Arguments) -> TalkOptions:
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
        option("--push", is_flag=True, help="Hear only what is said between two presses of the space bar."),
        option(
            "--interrupt/--no-interrupt",
            default=True,
            help="Let speaking stop an answer (default), or hear nothing while one sounds.",
        ),
        option(
            "--pause",
            type=click.FloatRange(0.2, 5.0),
            default=0.7,
            show_default=True,
            metavar="SECONDS",
            help="Take so much quiet for the end of what is said.",
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
            help="Use this device, by number or a part of its name; given twice, the microphone and the loudspeaker.",
        ),
        option("--devices", is_flag=True, help="List microphones and loudspeakers, and end."),
        option(
            "--input",
            "sound",
            type=FileName(),
            metavar="FILE",
            heading="Files",
            help="Hear this sound (WAV, FLAC, OGG, MP3, ...) instead of a microphone; - reads standard input.",
        ),
        option(
            "-o",
            "--output",
            "answers",
            type=FileName(),
            metavar="FILE",
            heading="Files",
            help="Write the answers to this WAV file, each at its moment; - is standard output.",
        ),
        option("--fast", is_flag=True, heading="Files", help="Hear the input as fast as answers are made."),
        option(
            "--record",
            "recording",
            type=FileName(),
            metavar="FILE",
            heading="Files",
            help="Keep both sides in this WAV file: the user on the left, the model on the right.",
        ),
        option("--stats", is_flag=True, help="Show token counts and speed on stderr after each answer."),
    ),
    _build,
    {"sound": ("push", "device"), "devices": ("sound", "push")},
)
