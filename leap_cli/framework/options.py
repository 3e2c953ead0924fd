"""Options as leap declares them: with a heading in help, and former spellings that are still taken.

``option`` takes the place of ``click.option``; groups of options that commands share are in ``option_groups``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click

from .environment import Environment

OPTIONS = "Options"
"""The heading of options that have none of their own."""
OPTION_GROUPS = "option_groups"
"""The attribute of a command's function with its groups, each with the names of its parameters, in order."""
FEWEST = 14
"""Options from which on a command's help has headings."""


class LeapOption(click.Option):
    """An option that also answers to its former names, on the command line, by variable and in config.toml.

    ``heading``: where help shows it. ``wish``: from a variable or config.toml it is a general wish, which a command
    passes over where it cannot fulfil it. ``saved``: the text that a saved prompt keeps for one that was typed; None
    for an option that belongs to one call, or has a place of its own in a saved prompt.
    """

    def __init__(
        self,
        *args: Any,
        formerly: tuple[str, ...] = (),
        heading: str = "",
        wish: bool = False,
        saved: Callable[[str, Environment], str] | None = lambda text, _env: text,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.formerly, self.heading, self.wish, self.saved = formerly, heading, wish, saved

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        names = self.opts
        self.opts = list(self.formerly)
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = names


option = partial(click.option, cls=LeapOption)
"""``click.option`` with what LeapOption adds: ``formerly=("--old", "-o")``, ``heading="Answer"``, ``wish=True``."""


def former_names(option: click.Option) -> list[str]:
    """The former names in the configuration: ``--output-format`` is ``output_format``."""
    formerly = option.formerly if isinstance(option, LeapOption) else ()
    return [name.lstrip("-").replace("-", "_") for name in formerly if name.startswith("--")]


def under_headings(options: Iterable[click.Option]) -> list[tuple[str, list[click.Option]]]:
    """The options under their headings, in the order of declaration; all under OPTIONS where they are few."""
    headings: dict[str, list[click.Option]] = {OPTIONS: []}
    shown = list(options)
    for each in shown:
        heading = each.heading if isinstance(each, LeapOption) and len(shown) >= FEWEST else ""
        headings.setdefault(heading or OPTIONS, []).append(each)
    return [(heading, members) for heading, members in headings.items() if members]
