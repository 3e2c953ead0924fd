"""A command with what was typed, as words that run it again, by whoever and whenever."""

from __future__ import annotations

from collections.abc import Container, Sequence

import click

from leap_core.system.dataclass import dataclass

WRITTEN = {"--output", "--record", "--speak", "--errors", "--map", "--low-confidence", "--html", "--junit", "--review"}
"""Options that name a file which is written."""


@dataclass(frozen=True)
class CommandLine:
    """``path``: the command's name. ``options``: each with its value in one word where it has one. ``values``: the
    arguments."""

    path: tuple[str, ...]
    options: tuple[str, ...]
    values: tuple[str, ...]

    @staticmethod
    def of(context: click.Context, without: Container[str] = ()) -> CommandLine:
        """The line of a command that was parsed, without the options of these parameters."""
        given, _, order = context.command.make_parser(context).parse_args(list(getattr(context, "typed", ())))
        options: list[str] = []
        values: list[str] = []
        for parameter in dict.fromkeys(order):
            value = given.get(str(parameter.name))
            if isinstance(parameter, click.Option):
                options += [] if parameter.name in without else _spelled(parameter, value)
            elif isinstance(value, (str, tuple)):
                values += [value] if isinstance(value, str) else value
        return CommandLine(tuple(context.command_path.split()[1:]), tuple(options), tuple(values))

    def with_option(self, word: str) -> CommandLine:
        """The same with one more option."""
        return CommandLine(self.path, (*self.options, word), self.values)

    @property
    def words(self) -> list[str]:
        """What to type after ``leap``."""
        return [*self.path, *self.options, *(["--", *self.values] if self.values else [])]

    @property
    def outputs(self) -> list[int]:
        """Which of the words name a file that is written."""
        options = enumerate((each.partition("=") for each in self.options), len(self.path))
        return [n for n, (name, _, value) in options if name in WRITTEN and value != "-"]


def _spelled(option: click.Option, value: object) -> list[str]:
    name = max(option.opts, key=len)
    if option.is_flag:
        return [max(option.secondary_opts, key=len) if value is False and option.secondary_opts else name]
    if option.count and isinstance(value, int):
        return [name] * value
    given: Sequence[object] = value if option.multiple and isinstance(value, list) else [value]
    return [word for each in given for word in _with_value(option, name, each)]


def _with_value(option: click.Option, name: str, value: object) -> list[str]:
    if isinstance(value, tuple):  # an option of several values
        return [name, *map(str, value)]
    if not isinstance(value, str):  # its value was left out, which means the one of its flag
        return [name]
    return [f"{name}={value}"] if name.startswith("--") else [name, value]
