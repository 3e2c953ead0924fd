"""Old spellings of options, which are still taken and no longer shown."""

from __future__ import annotations

from functools import partial
from typing import Any

import click


class RenamedOption(click.Option):
    """An option that also answers to its former names, on the command line, by variable and in config.toml."""

    def __init__(self, *args: Any, formerly: tuple[str, ...] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.formerly = formerly

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        names = self.opts
        self.opts = list(self.formerly)
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = names


renamed_option = partial(click.option, cls=RenamedOption)
"""``click.option`` with ``formerly=("--old", "-o")``."""


def former_names(option: click.Option) -> list[str]:
    """The former names in the configuration: ``--output-format`` is ``output_format``."""
    formerly = getattr(option, "formerly", ())
    return [name.lstrip("-").replace("-", "_") for name in formerly if name.startswith("--")]
