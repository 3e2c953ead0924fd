"""Everything that can be configured, by its key in config.toml, and changing that file.

A few settings are their own; besides, every option of every command is one (see ``option_defaults``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leap_core.errors import LeapError, LeapSerializationError
from leap_core.system import configuration
from leap_core.system.addresses import masked
from leap_core.system.dataclass import dataclass
from leap_core.system.files import changing, replace_text

from ..framework.environment import Environment
from ..framework.option_defaults import (
    TABLE,
    check_shape,
    option_key,
    option_variable,
    options_of,
    other_spellings,
    split_variable,
)
from ..framework.options import Duration

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def set_value(path: Path, key: str, value: Any) -> None:
    """Write one value. Raises UsageError for a file that is not TOML, LeapError for one that cannot be written."""

    def change(document: TOMLDocument) -> None:
        import tomlkit

        *tables, name = parts_of(key)
        table: Any = document
        for part in tables:
            if part not in table:
                table[part] = tomlkit.table()
            table = table[part]
            if not hasattr(table, "items"):
                raise click.UsageError(f"{path}: {part} is a value, so {key} cannot be set")
        if hasattr(table.get(name), "items"):
            raise click.UsageError(f"{path}: {key} is a table there; remove it first")
        table[name] = value

    drop_broken_line(path, key)
    _change(path, change)


def parts_of(key: str) -> list[str]:
    """The names of a key in dots; an alias of a model may have dots in its own."""
    table, _, name = key.partition(".")
    return [table, name] if table == "aliases" and name else key.split(".")


def drop_broken_line(path: Path, key: str) -> None:
    """Make a comment of the line that keeps the file from being TOML, if it is the one that sets ``key``. Other broken
    lines stay, for ``leap config edit``."""
    import tomlkit
    from tomlkit.exceptions import ParseError

    with changing(path):
        try:
            lines = path.read_bytes().decode("utf-8-sig").splitlines(keepends=True)
            tomlkit.parse("".join(lines))
        except ParseError as error:
            broken = lines[error.line - 1 : error.line]
            if not broken or not re.match(rf"\s*{re.escape(key.rpartition('.')[2])}\s*=", broken[0]):
                return
            lines[error.line - 1] = f"# {broken[0].rstrip()}  # could not be read\n"
            replace_text(path, "".join(lines))
        except (OSError, UnicodeDecodeError):
            return  # the change that follows says so


def unset_value(path: Path, key: str) -> None:
    """Take one value out, and the tables that are empty then."""

    def change(document: TOMLDocument) -> None:
        *parents, name = parts_of(key)
        tables: list[Any] = [document]
        for part in parents:
            tables.append(tables[-1][part])
        del tables[-1][name]
        for table, part in zip(reversed(tables[:-1]), reversed(parents), strict=True):
            if not table[part] and "#" not in table[part].as_string():
                del table[part]

    _change(path, change)


def _change(path: Path, change: Callable[[TOMLDocument], None]) -> None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    with changing(path):
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            raise LeapError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise click.UsageError(f"{path} is not UTF-8 text") from None
        try:
            document = tomlkit.parse(text)
        except TOMLKitError as error:
            raise LeapSerializationError(str(error), path=str(path), hint="leap config edit opens it") from None
        change(document)
        replace_text(path, tomlkit.dumps(document))


DEFAULT, MISSING = "default", object()


class TextType(click.ParamType[str]):
    """A text that is not empty."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not isinstance(value, str) or not value.strip():
            self.fail("must be a text, and not empty")
        return value


class UrlType(TextType):
    """An address with one of these schemes; what is behind it is not looked at, and a password not shown."""

    def __init__(self, schemes: Sequence[str]) -> None:
        super().__init__()
        self._schemes = schemes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        url = super().convert(value, param, ctx)
        if not url.startswith(tuple(self._schemes)):
            self.fail(f"{masked(url)!r} begins with none of {', '.join(self._schemes)}")
        return url


class LengthOfTime(TextType):
    """A length of time, kept as it was written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        Duration().convert(super().convert(value, param, ctx), param, ctx)
        return str(value)


@dataclass(frozen=True)
class KnownSetting:
    """``key`` in dots; ``variable`` None where there is none; ``many``: a list of values; ``option`` if it is one."""

    key: str
    meaning: str
    type: click.ParamType[Any]
    default: Any = None
    variable: str | None = None
    many: bool = False
    option: click.Option | None = None

    def from_text(self, texts: list[str], where: str) -> Any:
        """The value that texts mean; several only where it is a list. Raises UsageError saying ``where``."""
        if len(texts) > 1 and not self.many:
            raise click.UsageError(f"{where} takes one value, and {len(texts)} were given")
        return self._converted(texts, where)

    def from_toml(self, value: Any, where: str) -> Any:
        """A value as the file has it. Raises UsageError saying ``where``."""
        if self.option is not None:
            check_shape(value, self.option, where)
        elif isinstance(value, (dict, list)) or (isinstance(value, bool) and self.type is not click.BOOL):
            raise click.UsageError(f"{where} must be one value, and neither true nor false")
        elif isinstance(value, str) and isinstance(self.type, (click.types.IntParamType, click.types.FloatParamType)):
            raise click.UsageError(f"{where} must be a number, without quotes")
        return self._converted(value if self.many else [value], where)

    def _converted(self, values: list[Any], where: str) -> Any:
        try:
            converted = [self.type.convert(each, None, None) for each in values]
        except click.BadParameter as error:
            raise click.UsageError(f"{where}: {error.message}") from None
        except (TypeError, ValueError):
            raise click.UsageError(f"{where}: {values[0]!r} has the wrong type") from None
        self._check_range(converted, where)
        kept = [each if isinstance(each, (bool, int, float, str)) else str(each) for each in converted]
        return kept if self.many else kept[0]

    def _check_range(self, values: list[Any], where: str) -> None:
        """Some numbers have ranges that their types do not know."""
        from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
        from leap_core.errors import LeapOptionsError

        if not isinstance(self.type, (click.types.FloatParamType, click.types.IntParamType)):
            return
        if any(isinstance(value, float) and math.isnan(value) for value in values):
            raise click.UsageError(f"{where}: nan is not a number")
        name = str(self.option.name) if self.option is not None else ""
        for kind in (GenerationOptions, ModelLoadingOptions):
            if hasattr(kind, name):
                try:
                    kind(**{name: values[0]})
                except LeapOptionsError as error:
                    raise click.UsageError(f"{where}: {error.message}") from None


@dataclass(frozen=True)
class Effective:
    """What a setting is now. ``origin``: a variable's name, the configuration file's path, or ``default``."""

    setting: KnownSetting
    value: Any
    origin: str

    @property
    def without_password(self) -> Any:
        """The value for people to see."""
        if self.value is not None and self.setting.key.endswith("_secret"):
            return "***"
        if not isinstance(self.setting.type, UrlType) or self.value is None:
            return self.value
        return masked(str(self.value))

    def to_json(self) -> dict[str, Any]:
        setting = self.setting
        return {
            "key": setting.key,
            "value": self.without_password,
            "origin": self.origin,
            "default": setting.default,
            "variable": setting.variable,
            "meaning": setting.meaning,
        }


def _type_of(setting: configuration.Setting) -> click.ParamType[Any]:
    if setting.kind is bool:
        return click.BOOL
    if setting.kind is int:
        low, high = (None if end is None else int(end) for end in (setting.low, setting.high))
        return click.IntRange(low, high)
    if setting.kind is float:
        return click.FloatRange(setting.low, setting.high, min_open=setting.above)
    if setting.choices:
        return click.Choice(setting.choices)
    return UrlType(setting.schemes) if setting.schemes else LengthOfTime() if setting.is_time else TextType()


def _of(setting: configuration.Setting) -> KnownSetting:
    return KnownSetting(setting.key, setting.meaning, _type_of(setting), setting.default, setting.variable)


GENERAL = tuple(map(_of, configuration.SETTINGS))
OF_A_TOOL = tuple(map(_of, configuration.TOOL_SETTINGS))


def find(key: str) -> KnownSetting:
    """The setting with this key. Raises UsageError with the keys that were probably meant."""
    parts = key.split(".")
    for setting in GENERAL:
        if setting.key == key:
            return setting
    if len(parts) == 3 and parts[0] == "tools" and parts[1]:
        for setting in OF_A_TOOL:
            if setting.key == parts[2]:
                return KnownSetting(key, setting.meaning, setting.type)
    canonical = key.replace("-", "_")
    if parts[0] == "aliases" and len(parts) > 1:
        return KnownSetting(key, "The model of this alias.", TextType())
    options = list(option_settings()) if parts[0] == TABLE or len(parts) > 1 else []
    for setting in options:
        if setting.key.replace("-", "_") == canonical:
            return setting
    if len(parts) == 2 and parts[0] == TABLE and (found := _of_every_command(parts[1], options)):
        return found
    raise click.UsageError(f"there is no setting {key!r}{_advice(key, [each.key for each in (*GENERAL, *options)])}")


def _advice(key: str, keys: Sequence[str]) -> str:
    """The keys that were probably meant, or where to find them all."""
    canonical = key.replace("-", "_")
    near = [each for each in keys if each.endswith(f".{canonical}")]
    meant = [f"{canonical.rpartition('.')[0]}.{each}" for each in other_spellings(key.rpartition(".")[2])]
    near = near or [each for each in meant if each in keys] or get_close_matches(key, keys, 3, 0.6)
    return f"; did you mean {' or '.join(near[:3])}?" if near else "; leap config list --all shows the keys"


def _of_every_command(name: str, options: Sequence[KnownSetting]) -> KnownSetting | None:
    """The setting of an option in every command that has it."""
    name = name.replace("-", "_")
    for setting in options:
        if setting.key.rpartition(".")[2] == name:
            meaning = f"{setting.meaning} For every command that has --{name.replace('_', '-')}."
            return KnownSetting(f"{TABLE}.{name}", meaning, setting.type, None, None, setting.many, setting.option)
    return None


def option_settings() -> Iterator[KnownSetting]:
    """Every option of every command."""
    for path, command in commands():
        for option in options_of(command):
            default = option.default if isinstance(option.default, (bool, int, float, str)) else None
            yield KnownSetting(
                option_key(path, option),
                option.help or "",
                click.BOOL if option.is_flag else option.type,
                default,
                option_variable(path, option),
                option.multiple,
                option,
            )


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its path: ``models list``."""
    from ..command_table import command_line

    context = click.Context(command_line, info_name="leap")

    def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield path, command
            return
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand is not None:
                yield from walk(subcommand, f"{path} {name}".strip())

    return walk(command_line, "")


def effective(setting: KnownSetting, env: Environment, table: Mapping[str, Any]) -> Effective:
    """Its value now: the variable's, else the file's, else the default. Raises UsageError for one that cannot be."""
    origin = origin_of(setting, env, table)
    if origin == DEFAULT:
        return Effective(setting, setting.default, DEFAULT)
    if origin == setting.variable:
        text = env.variables[origin]
        texts = split_variable(text, setting.option, origin) if setting.many and setting.option else [text]
        return Effective(setting, setting.from_text(texts, origin), origin)
    return Effective(setting, setting.from_toml(look_up(table, setting.key), f"{origin}: {setting.key}"), origin)


def origin_of(setting: KnownSetting, env: Environment, table: Mapping[str, Any]) -> str:
    """Where its value is, as ``Effective.origin`` says it."""
    if setting.variable and env.variables.get(setting.variable):
        return setting.variable
    return DEFAULT if look_up(table, setting.key) is MISSING else str(env.directories.config_file)


def look_up(table: Mapping[str, Any], key: str) -> Any:
    """The value at a key in dots, or MISSING."""
    value: Any = table
    for part in parts_of(key):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def keys_in(table: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """The keys of all values of a configuration, in dots."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from keys_in(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def problems_of(table: Mapping[str, Any], file: str) -> list[str]:
    """Everything that is wrong with a configuration: unknown keys, and values that cannot be."""
    problems = []
    for key in keys_in(table):
        try:
            setting = find(key)
        except click.UsageError as error:
            problems.append(f"{file}: {error.message}")
            continue
        try:
            setting.from_toml(look_up(table, key), f"{file}: {key}")
        except click.UsageError as error:
            problems.append(error.message)
    return problems
