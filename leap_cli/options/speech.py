"""``--speak`` and ``--play``: where the sound of an answer goes."""

from __future__ import annotations

from dataclasses import dataclass

import click

from leap_core.storage.atomic_files import descriptor_of

from ..framework.environment import Environment
from ..framework.option_groups import Arguments
from ..framework.options import option

STANDARD = "-"

SPEECH_OPTIONS = (
    option(
        "--speak",
        metavar="FILE",
        help="Let the model answer aloud and write the sound to this WAV file, as it comes; - is standard output, and "
        "a name that ends in .pcm gets bare samples.",
    ),
    option("--play", is_flag=True, help="Let the model answer aloud and play it. Needs leap-edge[play]."),
)


@dataclass(frozen=True)
class SpeechTarget:
    """``file``: a name, or ``-`` for standard output. ``play``: through the loudspeaker."""

    file: str | None = None
    play: bool = False

    def __bool__(self) -> bool:
        return self.file is not None or self.play

    @property
    def is_stdout(self) -> bool:
        """Whether the sound takes standard output, which text cannot share."""
        return self.file is not None and (self.file == STANDARD or descriptor_of(self.file) == 1)


def read_speech(arguments: Arguments) -> SpeechTarget:
    """What SPEECH_OPTIONS ask for. Raises UsageError for a place where there can be no file."""
    target = SpeechTarget(arguments["speak"], arguments["play"])
    check_target(target, arguments.env, "--speak")
    return target


def check_target(target: SpeechTarget, env: Environment, flag: str) -> None:
    """Refuse a place where there can be no file, before anything is generated. Raises UsageError."""
    if target.file is None or target.is_stdout:
        return
    path = env.cwd / target.file
    if not target.file or path.is_dir():
        raise click.UsageError(f"{flag} {target.file} is a directory" if target.file else f"{flag} needs a file's name")
    if not path.parent.is_dir():
        raise click.UsageError(f"{flag} {target.file}: there is no directory {path.parent}")
