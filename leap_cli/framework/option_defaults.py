"""What an option's value is when the command line does not say: a variable's, else the configuration file's.

``--temperature`` of ``leap generate`` is ``LEAP_GENERATE_TEMPERATURE``, and in config.toml

    [options.generate]
    temperature = 0.2

Straight below ``[options]`` it is the value of every command that has such an option.
A variable of an option that may be repeated is split as a shell would split it. Knows nothing of what options mean.
"""

from __future__ import annotations

import shlex
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import click

from leap_core.errors import LeapSerializationError

from .environment import Environment
from .rare_names import OPTION

TABLE = "options"
VARIABLES = (
    *("LEAP_API_KEY", "LEAP_ENGINE", "LEAP_ENGINE_RELEASES", "LEAP_HOME", "LEAP_JOBS_URL", "LEAP_LOG", "LEAP_MODEL"),
    *("LEAP_OFFLINE", "LEAP_REGISTRY", "LEAP_TRY_MODELS", "LEAP_AUTO_DOWNLOAD", "LEAP_OTHER_PROGRAMS"),
)
"""Those that belong to no option of a command."""
GIVEN = ("LEAP_AGENT_KEY", "LEAP_JOB_PRIORITY")
"""What leap gives to programs that it starts."""
MEANT = {"LEAP_DEFAULT_MODEL": "LEAP_MODEL", "LEAP_MODELS": "LEAP_HOME", "LEAP_MODELS_DIR": "LEAP_HOME"}
"""Variables that people write, and those that leap reads."""


class OptionDefaults(UserDict[str, Any]):
    """click's ``default_map`` of one command, read when the first value is wanted. ``repairs``: the command mends the
    configuration file, so it runs although that cannot be read."""

    def __init__(self, command: click.Command, path: str, env: Environment, *, repairs: bool = False) -> None:
        self._command, self._path, self._env, self._repairs = command, path, env, repairs
        self.origins: dict[str, str] = {}
        """Where each value comes from, by the parameter's name."""
        self.for_all: set[str] = set()
        """The parameters whose values are those of every command that has such an option."""
        self.warnings: list[str] = []
        """What looks like a setting and is none."""

    @cached_property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        file = self._env.directories.config_file
        configured = self._read(file)
        self._warn_of_keys(configured, file)
        shared: dict[str, Any] = {}
        for name in (TABLE, *self._path.split()):
            configured = configured.get(name, {})
            if not isinstance(configured, dict):
                raise click.UsageError(f"{file}: {option_key(self._path)} must be a table")
            if name == TABLE:
                shared = {key: value for key, value in configured.items() if not isinstance(value, dict)}
        variables = {
            name: value
            for name, value in self._env.variables.items()
            if name.startswith("LEAP_") and value and name not in (*VARIABLES, *GIVEN)
        }
        if not (configured or shared or variables):
            return {}
        values: dict[str, Any] = {}
        by_name = _by_name(self._command)
        self._warn_of_variables(variables, by_name)
        self._warn_of_shared(shared, by_name, file)
        for name in configured:
            if name not in by_name:
                raise click.UsageError(f"{file}: {_unknown(name, self._path, by_name)}")
        for name, option in by_name.items():
            parameter, variable = str(option.name), _variable(self._path, name)
            if variable in variables:
                values[parameter] = split_variable(variables[variable], option, variable)
                self.origins[parameter] = variable
            elif name in configured or name in shared:
                own = name in configured
                where = f"{file}: {option_key(self._path)}.{name}" if own else f"{file}: {TABLE}.{name}"
                value = configured[name] if own else shared[name]
                check_shape(value, option, where)
                values[parameter] = _as_list(value, option)
                self.origins[parameter] = where
                if not own:
                    self.for_all.add(parameter)
        return values

    def _warn_of_keys(self, configured: Mapping[str, Any], file: Path) -> None:
        from leap_core.system.configuration import KEYS

        for key in () if self._repairs else configured:  # those look at the whole file themselves
            if key not in KEYS:
                self.warnings.append(f"{file}: there is no setting {key!r}{_meant(key, KEYS)}")

    def _warn_of_variables(self, variables: Iterable[str], by_name: Mapping[str, click.Option]) -> None:
        """Variables that name this command and none of its options, or nothing that leap has."""
        begin, of_commands = _variable(self._path, ""), _of_commands()
        for name in variables:
            if name.startswith(begin):
                own = [_variable(self._path, option) for option in by_name]
                if name not in own:
                    renamed = [_variable(self._path, each) for each in _renamed(name.removeprefix(begin), by_name)]
                    self.warnings.append(f"${name} is the variable of no option{_meant(name, renamed or own)}")
            elif name in MEANT:
                self.warnings.append(f"${name} is no variable of leap; did you mean {MEANT[name]}?")
            elif not name.startswith(of_commands):
                short = {f"LEAP_{option.upper()}": _variable(self._path, option) for option in by_name}
                if near := _near(name, (*VARIABLES, *short)):
                    meant = near if near in VARIABLES else short[near]
                    self.warnings.append(f"${name} is no variable of leap; did you mean {meant}?")

    def _warn_of_shared(self, shared: Mapping[str, Any], by_name: Mapping[str, click.Option], file: Path) -> None:
        """Options for all commands that none has, and that look like one of this command's."""
        for name in shared:
            near = None if name in by_name else next(iter(_renamed(name, by_name)), None) or _near(name, by_name)
            if near and name not in _names_of_all():
                self.warnings.append(f"{file}: there is no option {TABLE}.{name}; did you mean {near}?")

    def _read(self, file: Path) -> dict[str, Any]:
        """The file's content; nothing where a command that repairs it meets one that is no TOML."""
        from leap_core.system.configuration import table_or_error

        table = table_or_error(file) if file.is_file() else {}
        if not isinstance(table, LeapSerializationError):
            return table
        if not self._repairs:
            raise table
        return {}

    def prefer(self, values: dict[str, Any], file: str) -> None:
        """Let other values, by the names of their options, override these. Raises UsageError."""
        by_name = _by_name(self._command)
        for name, value in values.items():
            if name not in by_name:
                raise click.UsageError(f"{file}: {_unknown(name, self._path, by_name)}")
            where = f"{file}: {name}"
            check_shape(value, by_name[name], where)
            self.data[str(by_name[name].name)] = _as_list(value, by_name[name])
            self.origins[str(by_name[name].name)] = where


def options_of(command: click.Command) -> Iterator[click.Option]:
    """The options of a command that can be configured: all but ``--help`` and ``--version``."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_eager and _long_flag(parameter):
            yield parameter


def option_name(option: click.Option) -> str:
    """Its name in the configuration: the long flag's, with underscores."""
    return _long_flag(option).lstrip("-").replace("-", "_")


def option_key(path: str, option: click.Option | None = None) -> str:
    """Its whole key in the configuration, or that of the command's table: ``options.generate.temperature``."""
    return ".".join([TABLE, *path.split(), *([option_name(option)] if option else [])])


def option_variable(path: str, option: click.Option) -> str:
    """Its variable: ``LEAP_GENERATE_TEMPERATURE``."""
    return _variable(path, option_name(option))


def _variable(path: str, name: str) -> str:
    return "_".join(["LEAP", *path.split(), name]).upper().replace("-", "_")


@cache
def _by_name(command: click.Command) -> Mapping[str, click.Option]:
    """The options of a command by their names."""
    return {option_name(option): option for option in options_of(command)}


def split_variable(text: str, option: click.Option, variable: str) -> Any:
    """A variable's text, or the texts in it where the option may be repeated. Raises UsageError."""
    if not option.multiple:
        return text
    try:
        return shlex.split(text)
    except ValueError as error:
        raise click.UsageError(f"{variable}: {error}") from None


def check_shape(value: Any, option: click.Option, where: str) -> None:
    """Refuse TOML's values of a kind that the option cannot have; click checks the rest. Raises UsageError."""
    if (isinstance(value, list) and not option.multiple) or isinstance(value, dict):
        raise click.UsageError(f"{where} must be {'a list' if option.multiple else 'one value'}")
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, bool) != option.is_flag and not (option.is_flag and isinstance(each, str)):
            raise click.UsageError(f"{where} must {'be true or false' if option.is_flag else 'not be true or false'}")


def _as_list(value: Any, option: click.Option) -> Any:
    """One value of an option that may be repeated is a list of it."""
    return [value] if option.multiple and not isinstance(value, list) else value


def _long_flag(option: click.Option) -> str:
    return next((flag.replace(f"{OPTION} ", "--") for flag in option.opts if flag.startswith("--")), "")


def _unknown(name: str, path: str, by_name: Mapping[str, click.Option]) -> str:
    return f"there is no option {option_key(path)}.{name}{_meant(name, _renamed(name, by_name) or by_name)}"


def renamed(name: str, names: Iterable[str], spellings: Mapping[str, str]) -> list[str]:
    """Those of ``names`` that replace the option of this name. ``spellings`` are other names by each option's flag."""
    flag, known = f"--{name.lower().replace('_', '-')}", {each.replace("_", "-"): each for each in names}
    options = [each.split()[0].lstrip("-") for each, others in spellings.items() if flag in others.split()]
    return [known[option] for option in options if option in known]


def _renamed(name: str, names: Iterable[str]) -> list[str]:
    context = click.get_current_context(silent=True)
    root = None if context is None else context.find_root().command
    return renamed(name, names, getattr(root, "spellings", {}))


def _near(name: str, known: Iterable[str]) -> str | None:
    """The name that was meant, where it is next to certain that this one is a misspelling."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), 1, 0.85)), None)


def _of_commands() -> tuple[str, ...]:
    """How the variables of all commands begin."""
    context = click.get_current_context(silent=True)
    root = None if context is None else context.find_root()
    names = root.command.list_commands(root) if root and isinstance(root.command, click.Group) else []
    return tuple(f"LEAP_{name.upper().replace('-', '_')}_" for name in names)


def _names_of_all() -> set[str]:
    """The options of all commands, in the spelling of the configuration. Imports them."""
    context = click.get_current_context(silent=True)
    names: set[str] = set()
    waiting = [] if context is None else [context.find_root().command]
    while waiting:
        command = waiting.pop()
        names.update(_by_name(command))
        if isinstance(command, click.Group):
            below = click.Context(command)
            waiting += filter(None, (command.get_command(below, name) for name in command.list_commands(below)))
    return names


def _meant(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    known = list(names)
    near = [each for each in other_spellings(name) if each in known] or get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def other_spellings(name: str) -> list[str]:
    """What leap calls the option that other programs call so in the configuration."""
    context = click.get_current_context(silent=True)
    spellings = getattr(context.find_root().command, "spellings", {}) if context is not None else {}
    flag = f"--{name.replace('_', '-')}"
    return [each.lstrip("-").replace("-", "_") for each, others in spellings.items() if flag in others.split()]
