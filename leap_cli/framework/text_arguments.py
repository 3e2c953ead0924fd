"""Arguments that are text: UTF-8, or a usage error. Those that are names of files may be any bytes."""

from __future__ import annotations

import os
from typing import Any

import click

from .environment import Environment


class FileName(click.ParamType[str]):
    """The name of a file or directory, whose bytes need not be UTF-8. click.Path checks more."""

    name = "file"


def check_texts(context: click.Context) -> None:
    """See to it that what a command was given is text. Raises UsageError."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in context.params and not isinstance(parameter.type, (FileName, click.Path)):
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


def absolute(name: str, env: Environment) -> str:
    """The name of a file as it is valid in any directory. Raises UsageError for one that is no text."""
    return text_argument(str((env.cwd / name).absolute()), "a file's name")


def absolute_if_file(name: str, env: Environment) -> str:
    """The same of a file that is there; other names stay."""
    return absolute(name, env) if os.path.isfile(env.cwd / name) else name
