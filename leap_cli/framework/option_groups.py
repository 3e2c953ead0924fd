"""Groups of options: what is typed, configured or saved becomes one frozen value that a command is handed."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import field
from itertools import product
from typing import Any, Generic, TypeVar

import click
from click.core import ParameterSource, augment_usage_errors

from leap_core.system.dataclass import dataclass
from leap_core.system.features import own_parts

from .arguments import CommandLine
from .environment import Environment
from .option_defaults import OptionDefaults
from .options import OPTION_GROUPS, LeapOption

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Value = TypeVar("Value")


class Arguments:
    """The values of a command's parameters, and where each comes from."""

    def __init__(self, context: click.Context) -> None:
        self._context = context
        self._values = dict(context.params)
        self._parameters = {str(each.name): each for each in context.command.params}
        self.env = context.ensure_object(Environment)
        self.command = context.command_path.partition(" ")[2]
        """The command's name, such as ``models list``."""

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get(self, name: str) -> Any:
        """The value; None also where the command has no such parameter."""
        return self._values.get(name)

    def of(self, *names: str) -> dict[str, Any]:
        """The values of these parameters."""
        return {name: self._values[name] for name in names}

    def is_typed(self, name: str) -> bool:
        """Whether the parameter is on the command line."""
        return self._context.get_parameter_source(name) is ParameterSource.COMMANDLINE

    def is_set(self, name: str) -> bool:
        """Whether the parameter has another value than its default, from wherever; False where there is none."""
        value = self._values.get(name)
        return value not in (None, False, "", ()) and value != self._parameters[name].default

    def is_for_all(self, name: str) -> bool:
        """Whether the value is that of every command with such an option."""
        defaults = self._context.default_map
        configured = self._context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP
        return configured and isinstance(defaults, OptionDefaults) and name in defaults.for_all

    def flag(self, name: str) -> str:
        """The parameter's long name, such as ``--count``."""
        return max(self._parameters[name].opts, key=len)

    def origin(self, *names: str) -> str:
        """Where the first of these is configured, as the end of a message; empty where all were typed."""
        defaults = self._context.default_map
        for name in names:
            configured = self._context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP
            if configured and isinstance(defaults, OptionDefaults) and name in defaults.origins:
                return f" (it is set in {defaults.origins[name]})"
        return ""

    def typed_options(self) -> list[tuple[click.Option, Any]]:
        """The options on the command line with their values."""
        options = ((each, self._values.get(name)) for name, each in self._parameters.items() if self.is_typed(name))
        return [(each, value) for each, value in options if isinstance(each, click.Option)]

    def command_line(self, without: Container[str] = ()) -> CommandLine:
        """What was typed, but for these parameters."""
        return CommandLine.of(self._context, without)

    def sharing_rules(self, name: str) -> list[str]:
        """The parameter and those that imply it."""
        parameters = self._parameters.items()
        return [name, *(key for key, each in parameters if isinstance(each, LeapOption) and each.implies == name)]

    def check_apart(self, name: str, other: str) -> None:
        """Refuse these two together. A general setting of the other is ignored. Raises UsageError."""
        if not (self.is_set(name) and self.is_set(other)):
            return
        option = self._parameters[other]
        if isinstance(option, LeapOption) and option.wish and not self.is_typed(other):
            return
        both = f"{self.flag(name)} cannot be combined with {self.flag(other)}"
        raise click.UsageError(both + self.origin(other, name))


@dataclass(frozen=True)
class OptionGroup(Generic[Value]):
    """Options that belong together. As a decorator it gives a command these options, and the command's function the
    argument ``name``: what ``build`` makes of their values.

    ``options`` may hold whole groups, whose ``build`` this one's calls. ``heading``: where help shows those options
    that have no heading of their own. ``excludes``: by the name of a parameter, others that make no sense beside it;
    those that a command does not have are passed over.
    """

    name: str
    heading: str
    options: tuple[Callable[[Any], Any], ...]
    build: Callable[[Arguments], Value]
    excludes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __call__(self, function: Decorated) -> Decorated:
        parameters = self._add_options(function)
        names = tuple(str(parameter.name) for parameter in parameters)
        setattr(function, OPTION_GROUPS, [(self, names), *getattr(function, OPTION_GROUPS, [])])
        return function

    def _add_options(self, function: Any) -> list[click.Parameter]:
        """The parameters that the function has got, from the last to the first as click keeps them."""
        before = len(getattr(function, "__click_params__", []))
        for option in reversed(self.options):
            option._add_options(function) if isinstance(option, OptionGroup) else option(function)
        added: list[click.Parameter] = function.__click_params__[before:]
        for parameter in added:
            if isinstance(parameter, LeapOption):
                parameter.heading = parameter.heading or self.heading
        return added

    def check(self, arguments: Arguments) -> None:
        """Raises UsageError for options that make no sense together."""
        for option in self.options:
            if isinstance(option, OptionGroup):
                option.check(arguments)
        for name, others in self.excludes.items():
            given = [each for each in arguments.sharing_rules(name) if arguments.is_set(each)]
            for other in others if given else ():
                for pair in product(given, arguments.sharing_rules(other)):
                    arguments.check_apart(*pair)


def own_groups(rows: Mapping[str, str]) -> Callable[[Decorated], Decorated]:
    """A decorator that gives a command the groups of features, as far as these are there."""

    def decorate(function: Decorated) -> Decorated:
        for group in reversed([*own_parts(rows).values()]):
            function = group(function)
        return function

    return decorate


def hand_over(context: click.Context, groups: list[tuple[OptionGroup[Any], tuple[str, ...]]]) -> None:
    """Replace the values of the groups' options among the parameters by what the groups make of them. All that excludes
    each other is refused before anything is built, and groups are built from the first to the last."""
    arguments = Arguments(context)
    with augment_usage_errors(context):  # so that they say which command's help says more
        for group, _ in groups:
            group.check(arguments)
        values = {group.name: group.build(arguments) for group, _ in groups}
    own = {name for _, names in groups for name in names}
    rest = {name: value for name, value in context.params.items() if name not in own}
    context.params = {**rest, **values}
