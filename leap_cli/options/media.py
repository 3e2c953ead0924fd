"""Pictures and sound that go with a prompt, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..framework.environment import Environment
from ..framework.output import Output
from ..input.media_files import STDIN, read_audio, read_image

if TYPE_CHECKING:
    from leap_core.messages import ChatMessage, ChatMessageContent

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def media_flags(function: Decorated) -> Decorated:
    """Add the flags; the function receives them for ``take_media``."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--image",
        "images",
        multiple=True,
        metavar="FILE",
        help="Show the model this picture (JPEG, PNG, WebP, ...); - reads standard input.",
    ),
    click.option(
        "--audio",
        "sounds",
        multiple=True,
        metavar="FILE",
        help="Let the model hear this sound (WAV, FLAC, OGG, MP3, ...); - reads standard input.",
    ),
)


class Media:
    """The files that were named: pictures, then sounds, each in their order."""

    def __init__(self, images: tuple[str, ...], sounds: tuple[str, ...]) -> None:
        if (*images, *sounds).count(STDIN) > 1:
            raise click.UsageError("'-' stands for standard input and can be given only once")
        self._images, self._sounds = images, sounds

    def __bool__(self) -> bool:
        return bool(self._images or self._sounds)

    @property
    def reads_stdin(self) -> bool:
        """Whether standard input is one of them, and so no text."""
        return STDIN in self._images or STDIN in self._sounds

    def read(self, env: Environment, output: Output) -> tuple[ChatMessageContent, ...]:
        """The parts of a message; models were trained to see and hear before they are asked. Raises UsageError."""
        pictures = (read_image(name, env, output) for name in self._images)
        return (*pictures, *(read_audio(name, env, output) for name in self._sounds))


def take_media(flags: dict[str, Any]) -> Media:
    """Take the flags out of ``flags``."""
    return Media(flags.pop("images"), flags.pop("sounds"))


def with_media(parts: tuple[ChatMessageContent, ...], text: str) -> ChatMessage | str:
    """The user's message: the text alone where there are no other parts."""
    if not parts:
        return text
    from leap_core.messages import ChatMessage, Text

    return ChatMessage("user", [*parts, *([Text(text)] if text else [])])
