"""Pictures and sound from files or standard input, as parts of a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..framework.environment import Environment
from ..framework.output import Output, one_line

if TYPE_CHECKING:
    from leap_core.media.conversion import Converted
    from leap_core.messages import Audio, Image

MOST_BYTES = 512 * 1024 * 1024
"""No larger file is read at all; pictures and pieces of sound have narrower limits of their own."""
STDIN = "-"


def read_image(name: str, env: Environment, output: Output) -> Image:
    """The picture in a file of any common format, or with ``-`` on standard input. Raises UsageError."""
    from leap_core.media.images import as_jpeg
    from leap_core.messages import Image

    return Image(_converted(name, read_bytes(name, env), as_jpeg, output))


def read_audio(name: str, env: Environment, output: Output) -> Audio:
    """The sound in a file of any common format, or with ``-`` on standard input. Raises UsageError."""
    from leap_core.media.audio import as_wav
    from leap_core.messages import Audio

    return Audio(_converted(name, read_bytes(name, env), as_wav, output))


def read_bytes(name: str, env: Environment) -> bytes:
    """All of a file, or with ``-`` of standard input. Raises UsageError naming it."""
    source = source_name(name)
    try:
        if name == STDIN:
            data = env.stdin.read(MOST_BYTES + 1)
        else:
            with (env.cwd / name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise click.UsageError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MOST_BYTES:
        raise click.UsageError(f"{source} is larger than {MOST_BYTES // 1024**2} MiB")
    return data


def source_name(name: str) -> str:
    """What a message calls the source."""
    return "standard input" if name == STDIN else one_line(name)


def _converted(name: str, data: bytes, convert: Callable[[bytes], Converted], output: Output) -> bytes:
    from leap_core.media.conversion import naming_source

    with naming_source(source_name(name)):
        converted = convert(data)
    if converted.changes:
        output.note(f"{source_name(name)}: {converted.changes}")
    return converted.data
