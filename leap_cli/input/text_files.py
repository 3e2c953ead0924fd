"""Files that are put into a prompt: their text, under their names.

    report.txt:
    ```
    the text of the file
    ```

The fence is longer than every run of backticks in the text, so that no file can end it.
"""

from __future__ import annotations

import re

import click

from ..framework.environment import Environment
from ..framework.output import one_line

MOST_BYTES = 16 * 1024 * 1024
"""A text for a prompt has at most these."""


def attach(name: str, env: Environment) -> str:
    """The part of a prompt that a file becomes. Raises UsageError for what is no text."""
    text = read_text_file(name, env).rstrip("\r\n")
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{one_line(name)}:\n{fence}\n{text}\n{fence}"


def read_text_file(name: str, env: Environment) -> str:
    """The text of a file, or of a pipe that has a name. Raises UsageError naming it, and what is wrong with it."""
    if name in ("", "-"):
        why = "a '-' among the words of the prompt says where standard input belongs" if name else "its name is empty"
        raise click.UsageError(f"{name!r} is no file: {why}")
    try:
        with (env.cwd / name).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise click.UsageError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    check_size(data, name)
    if b"\0" in data:
        raise click.UsageError(f"{name} is binary; only text can be put into a prompt")
    return decode_text(data, name)


def check_size(data: bytes, source: str) -> None:
    """More than any model could read is a usage error that names the source."""
    if len(data) > MOST_BYTES:
        raise click.UsageError(f"{source} is larger than {MOST_BYTES // 1024**2} MiB, which no model could read")


def decode_text(data: bytes, source: str) -> str:
    """UTF-8 text, a byte order mark dropped; anything else is a usage error that names the source."""
    if data.startswith(b"%PDF-"):
        tasks = "extract, translate, summarize, classify and decide"
        raise click.UsageError(f"{source} is a PDF and no text; leap {tasks} read files named .pdf")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{source} is not UTF-8 text (byte {error.start + 1})") from None
