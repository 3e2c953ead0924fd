"""``--speak`` and ``--play``: where the sound of an answer goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from leap_core.storage.atomic_files import descriptor_of

from ..framework.environment import Environment

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

STANDARD = "-"

_SPEAK = click.option(
    "--speak",
    "speak",
    metavar="FILE",
    help="Let the model answer aloud and write the sound to this WAV file, as it comes; - is standard output, and a "
    "name that ends in .pcm gets bare samples.",
)
_PLAY = click.option("--play", is_flag=True, help="Let the model answer aloud and play it. Needs leap-edge[play].")


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


def speech_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives them for ``take_speech``."""
    return _SPEAK(_PLAY(function))


def take_speech(flags: dict[str, Any], env: Environment) -> SpeechTarget:
    """Take the flags out of ``flags``. Raises UsageError for a place where there can be no file."""
    target = SpeechTarget(flags.pop("speak"), flags.pop("play"))
    check_target(target, env, "--speak")
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
