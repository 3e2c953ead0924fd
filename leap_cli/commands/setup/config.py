"""``leap config``: what is configured, and where each value comes from."""

from __future__ import annotations

from typing import Any

import click

from leap_core.errors import LeapSerializationError

from ...config.saved import edit_file
from ...config.settings import (
    DEFAULT,
    GENERAL,
    MISSING,
    effective,
    find,
    keys_in,
    look_up,
    option_settings,
    origin_of,
    problems_of,
)
from ...framework.click_classes import format_option, leap_group
from ...framework.environment import Environment
from ...framework.error_boundary import outcome_of
from ...framework.output import Format, Output

FORMAT = format_option("values")


@leap_group("config", repairs=True)
def command() -> None:
    """The configuration. The command line overrides environment variables, which override config.toml, which overrides
    the defaults."""


@command.command("list", short_help="Show what is configured, and where it comes from.")
@click.option("--all", "everything", is_flag=True, help="Show every option of every command too, set or not.")
@FORMAT
def list_settings(env: Environment, /, everything: bool, format: str) -> None:
    """Show the settings with the origin of each value: a variable, the file, or leap's default."""
    output = Output(env, format)
    table = _read(env)
    file = str(env.directories.config_file)
    for problem in problems_of(table, file):
        output.warning(problem)
    settings = {setting.key: setting for setting in (*GENERAL, *option_settings())}
    for key in keys_in(table):
        if key not in settings and _is_known(key):
            settings[key] = find(key)
    records = []
    general = {setting.key for setting in GENERAL}
    for setting in settings.values():
        try:
            now = effective(setting, env, table)
        except click.UsageError as error:
            if origin_of(setting, env, table) != file:  # the file's problems are listed above
                output.warning(error.message)
            continue
        if everything or now.origin != DEFAULT or setting.key in general:
            records.append(now.to_json())
    output.records(records, ["key", "value", "origin"], name="key")


@command.command("get", short_help="Print one value.")
@click.argument("key")
@FORMAT
def get(env: Environment, /, key: str, format: str) -> None:
    """Print the value of KEY from any source; nothing if it has none. A list prints one value per line."""
    output = Output(env, format)
    now = effective(find(key), env, _read(env))
    if output.format not in (Format.TEXT, Format.QUIET):
        output.record(now.to_json(), name="value")
        return
    for value in now.value if isinstance(now.value, list) else [] if now.value is None else [now.value]:
        output.text(f"{str(value).lower() if isinstance(value, bool) else value}\n")


@command.command("set", short_help="Set a value in config.toml.", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
def set_(env: Environment, /, key: str, values: tuple[str, ...]) -> None:
    """Set KEY to VALUE in config.toml, such as: leap config set default_model LFM2.5-350M

    An option's key is options.COMMAND.NAME: leap config set options.generate.temperature 0.2
    """
    from ...config.settings import set_value

    setting = find(key)
    value = setting.from_text(list(values), setting.key)
    set_value(env.directories.config_file, setting.key, value)
    if setting.key == "default_model":
        _warn_of_missing(env, str(value))
    if setting.variable and env.variables.get(setting.variable):
        Output(env).warning(f"${setting.variable} is set, and overrides the file")


def _warn_of_missing(env: Environment, model: str) -> None:
    """A model may be set before it is downloaded."""
    from leap_core.errors import LeapError
    from leap_core.models.resolving import Registry

    error = outcome_of(lambda: Registry(env.variables, env.cwd).find(model))
    if isinstance(error, LeapError):
        hint = f" ({error.hint})" if error.hint else ""
        Output(env).warning(f"no command can use it now: {error.message}{hint}")


@command.command("unset", short_help="Remove a value from config.toml.")
@click.argument("key")
def unset(env: Environment, /, key: str) -> None:
    """Remove KEY from config.toml, so that the default applies again. Unknown keys can be removed, too."""
    from ...config.settings import drop_broken_line, unset_value

    drop_broken_line(env.directories.config_file, key)
    table = _read(env)
    if look_up(table, key) is MISSING:
        key = find(key).key
    if look_up(table, key) is MISSING:
        Output(env).note(f"{key} is not set in {env.directories.config_file}")
        return
    unset_value(env.directories.config_file, key)


@command.command("path", short_help="Print where config.toml is.")
def path(env: Environment, /) -> None:
    """Print the path of config.toml, which may not exist yet."""
    Output(env).text(f"{env.directories.config_file}\n")


@command.command("edit", short_help="Open config.toml in your editor.")
def edit(env: Environment, /) -> None:
    """Open config.toml in $VISUAL, else $EDITOR. Your changes are saved only if the file is valid."""
    from leap_core.system.configuration import parse_toml

    def check(text: str, draft: str) -> None:
        problems = problems_of(parse_toml(text.encode(), draft), draft)
        if problems:
            raise click.UsageError(problems[0])

    edit_file(env, env.directories.config_file, check)


def _is_known(key: str) -> bool:
    try:
        find(key)
    except click.UsageError:
        return False
    return True


def _read(env: Environment) -> dict[str, Any]:
    """The file's content; where it is no TOML, a warning that names the line, and nothing."""
    from leap_core.system.configuration import table_or_error

    table = table_or_error(env.directories.config_file)
    if isinstance(table, LeapSerializationError):
        Output(env).warning(f"{table.message}; {table.hint}")
        return {}
    return table
