"""The manual: leap(1) and a page for each command, made from the same declarations as help, and its installation.

A group's page holds the commands of the group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from leap_core import __version__
from leap_core.errors import LeapError
from leap_core.system.files import replace_text

from ..exit_codes import exit_code_meanings
from ..framework.click_classes import CommandTable, HelpContext
from ..framework.help_text import meaning, metavar, text_of
from ..framework.option_defaults import option_variable, options_of
from ..framework.options import OPTIONS, under_headings
from ..framework.rare_names import is_by_name
from ..help.examples import EXAMPLES
from ..help.topics import GuideOfCommands, topics

MADE_BY = "Made from the code of leap"
"""What the first line of each page says, by which ``install`` recognizes its own."""

SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", '"': r"\(dq", "^": r"\(ha", "~": r"\(ti"}
"""Characters that roff would obey, or turn into their typographic siblings."""
_CODE = re.compile(r"`([^`]+)`")


def escaped(text: str) -> str:
    """One line of text. Characters beyond ASCII become the escapes that every roff knows."""
    line = "".join(
        SPECIAL.get(char, char if char.isascii() and char.isprintable() else f"\\[u{ord(char):04X}]") for char in text
    )
    return rf"\&{line}" if line.startswith(".") else line


def prose(text: str) -> str:
    """A paragraph on one line, what is in backticks bold."""
    parts = _CODE.split(" ".join(text.split()))
    line = "".join(bold(part) if number % 2 else escaped(part).removeprefix(r"\&") for number, part in enumerate(parts))
    return rf"\&{line}" if line.startswith((".", "'")) else line


def bold(text: str) -> str:
    """What is typed as it is."""
    return rf"\fB{escaped(text)}\fR"


def italic(text: str) -> str:
    """What represents something else."""
    return rf"\fI{escaped(text)}\fR"


def quoted(text: str) -> str:
    """An argument of a request such as ``.SH``."""
    return f'"{escaped(text)}"'


def code(lines: tuple[str, ...]) -> list[str]:
    """Lines, indented."""
    return [".PP", ".RS 4", ".EX", *(escaped(line) for line in lines), ".EE", ".RE"]


FILES = (
    ("config.toml", "The settings; `leap config path` prints where it is."),
    ("catalogue.json", "Models of your own by name, beside config.toml."),
)
VARIABLES = (
    ("LEAP_HOME", "One directory for settings, models, caches and logs, instead of the system's."),
    ("LEAP_MODEL", "The model that answers where none is named."),
    ("NO_COLOR", "Where it is set, nothing is coloured."),
    ("VISUAL, EDITOR", "The editor for prompts and settings."),
)


def pages(root: CommandTable) -> dict[str, str]:
    """The text of every page by its file's name, such as ``leap-generate.1``."""
    return {"leap.1": root_page(root)} | {f"leap-{name}.1": page_of(root, name) for name in root.table}


def root_page(root: CommandTable) -> str:
    """The page of leap itself."""
    return "\n".join(_root_page(root)) + "\n"


def page_of(root: CommandTable, name: str) -> str:
    """The page of one command. Raises KeyError for a name that is none."""
    summary = root.table[name].summary
    command = root.get_command(HelpContext(root, info_name="leap"), name)
    assert command is not None
    return "\n".join(_command_page(name, summary, command)) + "\n"


def _head(name: str, summary: str) -> Iterator[str]:
    yield f'.\\" {MADE_BY} {__version__}.'
    yield f'.TH {quoted(name.upper())} 1 "" {quoted(f"leap {__version__}")} "leap manual"'
    yield ".SH NAME"
    yield f"{escaped(name)} \\- {prose(summary.rstrip('.'))}"


def _root_page(root: CommandTable) -> Iterator[str]:
    yield from _head("leap", "Run Liquid's LFM2 models, and other GGUF models, on your own machine")
    yield from (".SH SYNOPSIS", f"{bold('leap')} {italic('COMMAND')} [{italic('ARGUMENT')}]...", ".br")
    yield f"{bold('leap')} {italic('PROMPT')}"
    yield from (".SH DESCRIPTION", *_paragraphs(text_of(root)))
    yield from (".PP", prose("A prompt alone, in quotes, is answered as by `leap generate`."))
    yield ".SH COMMANDS"
    for group in root.groups:
        yield f".SS {quoted(group)}"
        for name, entry in root.table.items():
            if entry.group == group:
                yield from (".TP", f"{bold(f'leap-{name}')}(1)", prose(entry.summary))
    yield ".SH OPTIONS"
    context = HelpContext(root, info_name="leap")
    for option in root.get_params(context):
        if isinstance(option, click.Option):
            yield from _option(option, context)
    yield ".SH EXIT STATUS"
    for value, words in exit_code_meanings():
        yield from (".TP", bold(str(value)), prose(words))
    yield ".SH ENVIRONMENT"
    yield prose("Every option of a command has a variable: `leap generate --top-p` has `LEAP_GENERATE_TOP_P`.")
    for names, words in VARIABLES:
        yield from (".TP", bold(names), prose(words))
    yield ".SH FILES"
    for names, words in FILES:
        yield from (".TP", italic(names), prose(words))
    yield from (".SH SEE ALSO", prose(f"`leap help` TOPIC prints a guide: {', '.join(topics())}."))


def _command_page(name: str, summary: str, command: click.Command) -> Iterator[str]:
    yield from _head(f"leap-{name}", summary)
    context = HelpContext(command, info_name=name, parent=HelpContext(click.Command("leap"), info_name="leap"))
    verbs = command.commands if isinstance(command, click.Group) else {}
    yield ".SH SYNOPSIS"
    if not verbs:
        yield _synopsis(name, command, context)
    for number, (path, verb, inner) in enumerate(_leaves(name, command, context)):
        yield from ([".br"] if number else [])
        yield _synopsis(path, verb, inner)
    yield from (".SH DESCRIPTION", *_paragraphs(text_of(command)))
    if not verbs:
        yield from _options(name, command, context, ".SS")
        yield from _examples(".SH", (name,))
    else:
        yield ".SH COMMANDS"
        for path, verb, inner in _leaves(name, command, context):
            yield from (f".SS {quoted(f'leap {path}')}", *_paragraphs(text_of(verb)))
            yield from _options(path, verb, inner, "")
        yield from _examples(".SH", tuple(path for path, _, _ in _leaves(name, command, context)))
    topic = GuideOfCommands().topic(name)
    yield from (".SH SEE ALSO", f"{bold('leap')}(1); {prose(f'`leap help {topic}` prints the guide.')}")


def _leaves(
    path: str, command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """The commands of a group, and of the groups in it."""
    if not isinstance(command, click.Group):
        return
    for verb, inner in command.commands.items():
        below = HelpContext(inner, info_name=verb, parent=context)
        if isinstance(inner, click.Group):
            yield from _leaves(f"{path} {verb}", inner, below)
        elif not inner.hidden:
            yield f"{path} {verb}", inner, below


def _synopsis(path: str, command: click.Command, context: click.Context) -> str:
    return f"{bold(f'leap {path}')} {escaped(' '.join(command.collect_usage_pieces(context)))}"


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
        if number:
            yield ".PP"
        yield prose(paragraph)


def _options(path: str, command: click.Command, context: click.Context, heading: str) -> Iterator[str]:
    """The options under their headings; those of a command in a group have its own heading."""
    shown = [option for option in options_of(command) if not option.hidden or is_by_name(option)]
    if not shown:
        return
    if heading:
        yield ".SH OPTIONS"
    for group, options in under_headings(shown):
        if heading and group != OPTIONS:
            yield f"{heading} {quoted(group)}"
        for option in options:
            yield from _option(option, context, option_variable(path, option))


def _option(option: click.Option, context: click.Context, variable: str = "") -> Iterator[str]:
    names = [bold(name) for name in sorted(option.opts, key=lambda name: name.startswith("--"))]
    line = ", ".join(names)
    if option.secondary_opts:
        line += " / " + ", ".join(bold(name) for name in option.secondary_opts)
    if value := metavar(option, context):
        line += f"{'=' if is_by_name(option) else ' '}{italic(value)}"
    yield from (".TP", line, prose(meaning(option, context) + (f" (${variable})" if variable else "")))


def _examples(heading: str, paths: tuple[str, ...]) -> Iterator[str]:
    lines = tuple(line for path in paths for line in EXAMPLES.get(path, ()))
    if lines:
        yield from (f"{heading} EXAMPLES", *code(lines)[1:])


def man_directory(variables: Mapping[str, str]) -> Path:
    """``man1`` of this user: man(1) finds it where ``~/.local/bin`` is on the path."""
    home = Path(variables.get("HOME") or variables.get("USERPROFILE") or Path.home())
    return Path(variables.get("XDG_DATA_HOME") or home / ".local" / "share") / "man" / "man1"


def is_searched(directory: Path, variables: Mapping[str, str]) -> bool:
    """Whether man finds pages there, as far as the variables say: through MANPATH, or beside a directory of PATH."""
    manual = directory.parent
    if variables.get("MANPATH"):
        return str(manual) in variables["MANPATH"].split(os.pathsep)
    places = [Path(place) for place in variables.get("PATH", "").split(os.pathsep) if place]
    return any(manual in (place.parent / "share" / "man", place.parent / "man") for place in places)


def install(pages: Mapping[str, str], directory: Path) -> None:
    """Write the pages, each in one step; pages of commands that leap no longer has go. Raises LeapError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            replace_text(directory / name, text)
        for page in directory.glob("leap-*.1"):
            if page.name not in pages and MADE_BY in page.read_text("utf-8", "replace")[:200]:
                page.unlink()
    except OSError as error:
        raise LeapError(
            f"cannot write {error.filename or directory}: {error.strerror}",
            hint="leap help --man COMMAND prints a page, to be put where you like",
        ) from None
