"""``config.toml``: the user's defaults. A file that is not there is an empty one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from leap_cli.framework.environment import Environment


@dataclass(frozen=True)
class Configuration:
    """``default_model``: the reference that is loaded when a command names none. ``keep_alive``: how long ``leap load``
    keeps a model without use, such as "10m"."""

    default_model: str | None = None
    keep_alive: str | None = None


def read_configuration(env: Environment) -> Configuration:
    """Read the file; a malformed one is a usage error that names it."""
    path = env.directories.config_file
    table = read_table(env)
    model = table.get("default_model")
    if model is not None and not (isinstance(model, str) and model):
        raise click.UsageError(f"{path}: default_model must be a non-empty string")
    keep_alive = table.get("keep_alive")
    if keep_alive is not None and not isinstance(keep_alive, str):
        raise click.UsageError(f'{path}: keep_alive must be a text, such as "10m"')
    return Configuration(model, keep_alive)


def read_table(env: Environment) -> dict[str, Any]:
    """The whole file, as tables and values."""
    path = env.directories.config_file
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return parse_toml(data, str(path))


def parse_toml(data: bytes, path: str) -> dict[str, Any]:
    """The tables and values of a file's content. Raises UsageError naming ``path``."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return dict(toml.loads(data.decode("utf-8")))
    except ValueError as error:  # also bytes that are not UTF-8
        raise click.UsageError(f"{path}: {error}") from None
