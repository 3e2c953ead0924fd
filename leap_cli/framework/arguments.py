"""What a command line gives a command: text in UTF-8, names of files, and no output that is an input; and the words
that run the same command again, such as in a job."""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from leap_core.system.dataclass import dataclass

from .environment import Environment

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


WRITTEN = {"--output", "--record", "--speak", "--errors", "--map", "--low-confidence", "--html", "--junit", "--review"}
"""Options that name a file which is written."""


class FileName(click.ParamType[str]):
    """The name of a file or directory, whose bytes need not be UTF-8. click.Path checks more."""

    name = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Within the block a file is read. Raises UsageError that names it where that cannot be done."""
    try:
        yield
    except UnicodeDecodeError:
        raise click.UsageError(f"{name} is not UTF-8 text") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise click.UsageError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None


def check_texts(context: click.Context) -> None:
    """See to it that what a command was given is text, and that its numbers are numbers: nan is in every range. Raises
    UsageError."""
    for parameter in context.command.params:
        name = parameter.name or ""
        value = context.params.get(name)
        if isinstance(value, float) and value != value:
            raise click.UsageError(f"{max(parameter.opts, key=len)}: nan is not a number", context)
        if isinstance(value, (str, tuple)) and value and not isinstance(parameter.type, (FileName, click.Path)):
            try:
                context.params[name] = _as_text(value, parameter)
            except click.UsageError as error:
                error.ctx = context
                raise


def keep_inputs(context: click.Context) -> None:
    """See to it that no output of a command is one of its inputs, by whatever name. Raises UsageError."""
    env = context.ensure_object(Environment)
    written: dict[tuple[int, int], str] = {}
    read: dict[tuple[int, int], str] = {}
    for parameter in context.command.params:
        values = context.params.get(parameter.name or "")
        if not values:
            continue
        flag = next((each for each in parameter.opts if each in WRITTEN), None)
        names_files = flag or isinstance(parameter.type, (FileName, click.Path)) or "FILE" in _place(parameter)
        for value in values if isinstance(values, tuple) else (values,):
            file = _regular_file(env, value) if names_files or str(value).startswith("@") else None
            if file is not None:
                label = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else str(value)
                (read if flag is None else written)[file] = label if flag is None else flag
    with suppress(OSError, ValueError):  # not every standard input is a file of this process
        file_status = os.fstat(env.stdin.fileno())
        read.setdefault((file_status.st_dev, file_status.st_ino), "standard input")
    for file, flag in written.items():
        if file in read:
            raise click.UsageError(
                f"{read[file]} and {flag} name the same file, which cannot be input and output at once: {flag} would "
                "overwrite it",
                context,
            )


def take_format_of_output(context: click.Context) -> None:
    """Where a command writes tables and no ``--format`` is given, the ending of its output says which form it has."""
    choices = next((each.type for each in context.command.params if each.name == "format"), None)
    target = next((each.name for each in context.command.params if "--output" in each.opts), None)
    if target is None or not isinstance(choices, click.Choice) or "csv" not in choices.choices:
        return
    ending = os.path.splitext(str(context.params.get(target) or ""))[1].lower().removeprefix(".")
    if ending == "csv" and context.get_parameter_source("format") is click.core.ParameterSource.DEFAULT:
        context.params["format"] = ending


def leave_out_effects(context: click.Context) -> None:
    """A dry run replaces no file and queues no job: what asks for one is named, and not done."""
    if not context.params.get("dry_run"):
        return
    left = []
    for parameter in context.command.params:
        value, name = context.params.get(str(parameter.name)), max(parameter.opts, key=len)
        if name in WRITTEN and value not in (None, "-"):
            context.params[str(parameter.name)] = None
        elif getattr(parameter, "implies", "") != "background" or value in (None, False, ()):
            continue
        values = value if isinstance(value, tuple) else (value,)
        left += [f"{name} {each}" if isinstance(each, str) else name for each in values]
    if left:
        from .output import Output

        note = f"a dry run writes no file and submits no job: {', '.join(left)}"
        Output(context.ensure_object(Environment)).note(note)


def _place(parameter: click.Parameter) -> str:
    return str(getattr(parameter, "metavar", None) or "")


def _regular_file(env: Environment, value: object) -> tuple[int, int] | None:
    """What identifies the file of that name, and of ``@name``; None where there is none."""
    if not isinstance(value, (str, os.PathLike)):
        return None
    for name in (os.fspath(value), os.fspath(value).removeprefix("@")):
        with suppress(OSError, ValueError):
            status = (env.cwd / name).stat()
            if stat.S_ISREG(status.st_mode):
                return status.st_dev, status.st_ino
    return None


def _as_text(value: Any, parameter: click.Parameter) -> Any:
    label = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else parameter.human_readable_name
    if isinstance(value, tuple):
        return tuple(text_argument(each, label) if isinstance(each, str) else each for each in value)
    return text_argument(value, label) if isinstance(value, str) else value


def text_argument(text: str, name: str) -> str:
    """An argument as text. Bytes that Python could not decode by the locale are taken as UTF-8, or refused."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # Python carries such bytes as lone surrogates
        try:
            return os.fsencode(text).decode("utf-8")
        except UnicodeError:
            raise click.UsageError(f"{name} is not valid UTF-8") from None
    return text


def absolute(name: str, env: Environment) -> str:
    """The name of a file as it is valid in any directory. Raises UsageError for one that is no text."""
    return text_argument(str((env.cwd / name).absolute()), "a file's name")


def absolute_if_file(name: str, env: Environment) -> str:
    """The same of a file that is there; other names stay."""
    return absolute(name, env) if os.path.isfile(env.cwd / name) else name


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
    return [word for each in given for word in _with_value(name, each)]


def _with_value(name: str, value: object) -> list[str]:
    if isinstance(value, tuple):  # an option of several values
        return [name, *map(str, value)]
    if not isinstance(value, str):  # its value was left out, which means the one of its flag
        return [name]
    return [f"{name}={value}"] if name.startswith("--") else [name, value]
