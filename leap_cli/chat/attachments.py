"""Files that go with a message: pictures and sound as parts of their own, everything else as text."""

from __future__ import annotations

import click

from leap_core.errors import LeapSerializationError
from leap_core.messages import JPEG_START, Audio, AudioPcmF32, ChatMessageContent, Image, Text

from ..framework.environment import Environment
from ..input.text_files import attach

MOST_BYTES = 64 * 1024 * 1024
PNG_START, WAV_START = b"\x89PNG", b"RIFF"


def read_part(name: str, env: Environment) -> ChatMessageContent:
    """The part of a message that a file becomes. Raises UsageError for what cannot be one."""
    try:
        with (env.cwd / name).open("rb") as file:
            start = file.read(4)
            if not start.startswith((JPEG_START, PNG_START, WAV_START)):
                return Text(attach(name, env) + "\n\n")
            data = start + file.read(MOST_BYTES)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MOST_BYTES:
        raise click.UsageError(f"{name} is larger than {MOST_BYTES // 1024**2} MiB")
    try:
        return Audio(data) if start == WAV_START else Image(data)
    except LeapSerializationError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise click.UsageError(f"{name}: {error.message}{hint}") from None


def describe_part(part: ChatMessageContent) -> str:
    """What kind of part it is, and how large, for people."""
    if isinstance(part, Text):
        return f"text {part.text.partition(':')[0]}, {len(part.text)} characters"
    if isinstance(part, Image):
        return f"picture, {len(part.data)} bytes"
    if isinstance(part, Audio):
        return f"sound, {part.format.samples / part.format.sample_rate:.1f} s"
    assert isinstance(part, AudioPcmF32)
    return f"sound, {len(part.samples) / part.sample_rate:.1f} s"
