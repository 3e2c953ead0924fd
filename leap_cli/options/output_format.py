"""``--format``, shared by the commands that print data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..framework.output import Format

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class FormatChoice(click.Choice[str]):
    """The formats of data; ``human`` is another name of text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert("text" if value == "human" else value, param, ctx))


def format_flag(function: Decorated) -> Decorated:
    """Add the flag to a command whose data are things with ids."""
    option = click.option(
        "--format",
        type=FormatChoice([each.value for each in Format]),
        default=Format.TEXT.value,
        help="Print text, one json document, jsonl, or quiet: ids only.",
    )
    return option(function)
