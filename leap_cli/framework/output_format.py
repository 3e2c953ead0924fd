"""``--format``, shared by the commands that print data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from .options import option
from .output import Format

FORMATS = tuple(each.value for each in Format)


class FormatChoice(click.Choice[str]):
    """The formats of data; ``human`` is another name of text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert("text" if value == "human" else value, param, ctx))


def format_choice(help: str, formats: Sequence[str] = FORMATS, **more: Any) -> Callable[[Any], Any]:
    """The option of a command that prints data in these formats, the first of them by default."""
    decorator: Callable[[Any], Any] = option(
        "--format", type=FormatChoice(formats), default=formats[0], help=help, **more
    )
    return decorator


def format_option(quiet: str) -> Callable[[Any], Any]:
    """The option of a command whose data are things with names; ``quiet`` prints only them."""
    return format_choice(f"Print text, one json document, jsonl, or quiet: {quiet} only.")


format_flag = format_option("ids")
"""The option of a command whose data are things with ids."""
