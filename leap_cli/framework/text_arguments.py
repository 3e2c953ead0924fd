"""Arguments that are text, not names of files: UTF-8, or a usage error."""

from __future__ import annotations

import os
from typing import Any

import click

NAMES_OF_FILES = {
    *("file", "files", "images", "journal", "media_dir", "mmproj", "model", "models", "names", "output", "sounds"),
    *("source", "target", "tools"),
}
"""Parameters whose bytes need not be UTF-8."""


def check_texts(context: click.Context) -> None:
    """See to it that what a command was given is text. Raises UsageError."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in context.params and name not in NAMES_OF_FILES:
            try:
                context.params[name] = _as_text(context.params[name], parameter)
            except click.UsageError as error:
                error.ctx = context
                raise


def _as_text(value: Any, parameter: click.Parameter) -> Any:
    label = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else parameter.human_readable_name
    if isinstance(value, tuple):
        return tuple(text_argument(each, label) if isinstance(each, str) else each for each in value)
    return text_argument(value, label) if isinstance(value, str) else value


def text_argument(text: str, name: str) -> str:
    """An argument as text. Bytes that Python could not decode by the locale are taken as UTF-8, or refused."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # Python carries such bytes as lone surrogates
        try:
            return os.fsencode(text).decode("utf-8")
        except UnicodeError:
            raise click.UsageError(f"{name} is not valid UTF-8") from None
    return text
