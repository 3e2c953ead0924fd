"""Pictures and sound that go with a prompt, on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..framework.environment import Environment
from ..framework.option_groups import OptionGroup
from ..framework.options import option
from ..framework.output import Output
from ..input.media_files import STDIN, read_audio, read_image

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage, ChatMessageContent

_OPTIONS = (
    option(
        "--image",
        "images",
        multiple=True,
        metavar="FILE",
        help="Show the model this picture (JPEG, PNG, WebP, ...); - reads standard input.",
    ),
    option(
        "--audio",
        "sounds",
        multiple=True,
        metavar="FILE",
        help="Let the model hear this sound (WAV, FLAC, OGG, MP3, ...); - reads standard input.",
    ),
)


@dataclass(frozen=True)
class Media:
    """The files that were named: pictures, then sounds, each in their order. Raises UsageError for standard input
    twice."""

    images: tuple[str, ...] = ()
    sounds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (*self.images, *self.sounds).count(STDIN) > 1:
            raise click.UsageError("'-' stands for standard input and can be given only once")

    def __bool__(self) -> bool:
        return bool(self.images or self.sounds)

    @property
    def reads_stdin(self) -> bool:
        """Whether standard input is one of them, and so no text."""
        return STDIN in self.images or STDIN in self.sounds

    def read(self, env: Environment, output: Output) -> tuple[ChatMessageContent, ...]:
        """The parts of a message; models were trained to see and hear before they are asked. Raises UsageError."""
        pictures = (read_image(name, env, output) for name in self.images)
        return (*pictures, *(read_audio(name, env, output) for name in self.sounds))


MEDIA = OptionGroup("media", "Prompt", _OPTIONS, lambda arguments: Media(arguments["images"], arguments["sounds"]))


def with_media(parts: tuple[ChatMessageContent, ...], text: str) -> ChatMessage | str:
    """The user's message: the text alone where there are no other parts."""
    if not parts:
        return text
    from leap_core.messages import ChatMessage, Text

    return ChatMessage("user", [*parts, *([Text(text)] if text else [])])
