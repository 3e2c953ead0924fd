"""Files that a command is told to read and to write, which may not be one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from ..framework.environment import Environment
from .answer import STANDARD


def check_apart(env: Environment, files: Mapping[str, str | Path | None]) -> None:
    """Refuse one file under two flags: a new one takes its place. Raises UsageError."""
    flags: dict[Path, str] = {}
    for flag, name in files.items():
        if name is None or name == STANDARD:
            continue
        place = Path(os.path.realpath(env.cwd / name))
        if place.exists() and not place.is_file():
            continue
        if place in flags:
            raise click.UsageError(f"{flags[place]} and {flag} name the same file, {place.name}")
        flags[place] = flag
