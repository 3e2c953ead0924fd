"""``-o FILE``: what would go to stdout goes to a file, which at every moment is the old one or the new one."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from leap_core.errors import LeapError
from leap_core.system.files import NOT_WRITTEN, descriptor_of, replace_text

from ..framework.environment import Environment

STANDARD = "-"
NO_TEXT = NOT_WRITTEN | {".parquet", ".npy", ".pdf", ".docx", ".pptx", ".odt", ".odp"}
"""Endings of files that hold no text."""


@contextmanager
def writing_to(target: str | None, env: Environment) -> Iterator[Environment]:
    """The environment whose stdout is the file; this one where there is no target, or
    stdout is meant.

    The file is written when the block ends, also when an error or Ctrl-C ends it, if anything has come by then. Where
    it cannot be written its text goes to stdout, and LeapError says why. Raises UsageError for a place where there can
    be no file, before the block begins.
    """
    if target is None or is_standard(target):
        yield env
        return
    path = env.cwd / target
    check_place(path, target)
    text = io.StringIO()
    try:
        yield replace(env, stdout=text, stdout_is_terminal=False)
    except BaseException:
        if text.getvalue():
            _write(path, text.getvalue(), env)
        raise
    _write(path, text.getvalue(), env)


def is_standard(name: str) -> bool:
    """Whether an output's name means standard output: ``-``, ``/dev/stdout`` and the like."""
    return name == STANDARD or descriptor_of(name) == 1


def check_place(path: Path, name: str, option: str = "--output") -> None:
    """Raises UsageError where no file can be written under the ``name`` that was given to an option."""
    if path.is_dir():
        raise click.UsageError(f"{option} {name} is a directory" if name else f"{option} needs a file's name")
    if path.suffix.lower() in NO_TEXT:
        raise click.UsageError(
            f"{option} {name} would be no {path.suffix} file, for text is written (spreadsheets read .csv)"
        )
    if not path.parent.is_dir():
        raise click.UsageError(f"{option} {name}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.UsageError(f"{option} {name} cannot be written: permission denied")


def check_file(path: Path, name: str, option: str) -> None:
    """Raises UsageError also where a device or a pipe is, whose place a file would take."""
    check_place(path, name, option)
    if path.exists() and not path.is_file():
        raise click.UsageError(f"{option} {name} is no file")


def _write(path: Path, text: str, env: Environment) -> None:
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate has no UTF-8
    try:
        descriptor = descriptor_of(str(path))
        if descriptor is not None:
            with open(os.dup(descriptor), "w", encoding="utf-8", newline="") as file:
                file.write(text)
            return
        replace_text(path, text, mode=0o666)
    except (LeapError, OSError):
        env.stdout.write(text)
        env.stdout.flush()
        raise
