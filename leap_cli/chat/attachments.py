"""Files that go with a message: pictures and sound as parts of their own, everything else as text."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from leap_core.media.sniffing import SNIFFED_BYTES, kind_of_medium
from leap_core.messages import Audio, AudioPcmF32, ChatMessageContent, Image, Text

from ..framework.environment import Environment
from ..framework.output import Output
from ..framework.sizes import in_bytes
from ..input.media_files import read_audio, read_image
from ..input.text_files import attach

LONGEST_PATH = 4096


def read_part(name: str, env: Environment, output: Output) -> ChatMessageContent:
    """The part of a message that a file becomes. Raises UsageError for what cannot be one."""
    try:
        with (env.cwd / name).open("rb") as file:
            kind = kind_of_medium(file.read(SNIFFED_BYTES))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if kind == "image":
        return read_image(name, env, output)
    if kind == "audio":
        return read_audio(name, env, output)
    return Text(attach(name, env) + "\n\n")


def pasted_medium(line: str, env: Environment) -> Path | None:
    """The picture or sound whose path is all of a line, as terminals paste it when a file is dropped on them: quoted,
    with backslashes before spaces, or as a ``file:`` URL."""
    line = line.strip()
    if not line or "\n" in line or len(line) > LONGEST_PATH:
        return None
    if line.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        name = unquote(urlsplit(line).path)
    else:
        try:
            words = shlex.split(line)
        except ValueError:  # an apostrophe
            words = []
        name = words[0] if len(words) == 1 else line
    path = env.cwd / os.path.expanduser(name)
    try:
        with path.open("rb") as file:
            return path if kind_of_medium(file.read(SNIFFED_BYTES)) else None
    except (OSError, ValueError):
        return None


def describe_part(part: ChatMessageContent) -> str:
    """What kind of part it is, and how large, for people."""
    if isinstance(part, Text):
        return f"text {part.text.partition(':')[0]}, {len(part.text)} characters"
    if isinstance(part, Image):
        return f"picture, {in_bytes(len(part.data))}"
    if isinstance(part, Audio):
        return f"sound, {part.format.seconds:.1f} s"
    assert isinstance(part, AudioPcmF32)
    return f"sound, {len(part.samples) / part.sample_rate:.1f} s"
