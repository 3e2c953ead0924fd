"""The command reference: a page for each command, for options that commands share, for settings and exit codes.

The pages are made from the code when ``leap help`` prints or searches them and when the site is built.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import click

from leap_core.errors import LeapError
from leap_core.system import files

from ..command_table import command_line
from ..config.settings import GENERAL, OF_A_TOOL, commands
from ..exit_codes import exit_code_meanings
from ..framework.help_text import meaning, metavar, with_value
from ..framework.option_defaults import option_key, option_variable, options_of
from ..framework.options import OPTIONS, under_headings
from ..framework.rare_names import is_by_name
from ..help.examples import EXAMPLES
from ..help.topics import REFERENCE, text_of

INDEX, SETTINGS, EXIT_CODES = "README", "settings", "exit-codes"
FEWEST_USERS = 3
"""Commands that have an option with the same meaning under the same heading: from here on a page of its own has it."""


@cache
def pages() -> Mapping[str, str]:
    """The Markdown of each page by its name, such as ``generate``; INDEX lists them."""
    texts = {INDEX: _index(), SETTINGS: _settings(), EXIT_CODES: _exit_codes()}
    texts |= {_slug(heading): _shared_page(heading, rows) for heading, rows in _shared().items()}
    texts |= {name: _command_page(name) for name in command_line.table}
    return {name: text.rstrip() + "\n" for name, text in texts.items()}


def kept_pages(directory: Path) -> Mapping[str, str]:
    """``pages``, kept in a directory as the same code last made them: making them imports every command."""
    packages = (Path(__file__).parents[1], Path(files.__file__).parents[1])
    paths = sorted(path for package in packages for kind in ("*.py", "*.txt") for path in package.rglob(kind))
    code = [(str(path), path.stat().st_mtime_ns) for path in paths]
    state, kept = hashlib.sha256(repr(code).encode()).hexdigest(), directory / "reference.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        texts: dict[str, str] = json.loads(kept.read_text("utf-8"))[state]
        return texts
    with suppress(LeapError):  # a search needs no place
        files.replace_text(kept, json.dumps({state: pages()}))
    return pages()


def page(topic: str) -> str:
    """The Markdown of a guide, of the reference's index, or of another page of the reference than a command's.

    Raises FileNotFoundError where this installation came without the guides.
    """
    if topic == REFERENCE:
        return pages()[INDEX]
    return pages()[topic] if is_of_no_command(topic) else text_of(topic)


def is_of_no_command(topic: str) -> bool:
    """Whether it names a page of the reference on something else: all commands, options that commands share, such as
    ``options-model``, settings or exit codes."""
    return topic in (REFERENCE, SETTINGS, EXIT_CODES) or (topic.startswith("options-") and topic in pages())


def _index() -> str:
    top_p = next(option for option in options_of(dict(commands())["generate"]) if option.name == "top_p")
    lines = [
        "# Command reference",
        "",
        "One page for each command. Options that several commands share are described once, on pages of their own.",
        "[The command line](../command-line.md) says what the commands have in common.",
        "",
        "Every option has an environment variable and a key in `config.toml`: `leap generate --top-p` is",
        f"`{option_variable('generate', top_p)}` and `{option_key('generate')}.top_p`.",
        "See [configuration](../configuration.md).",
        "",
    ]
    for group in command_line.groups:
        rows = [(name, each.summary) for name, each in command_line.table.items() if each.group == group]
        lines += [f"## {group}", "", *(f"- [leap {name}]({name}.md): {summary}" for name, summary in rows), ""]
    lines += ["## Shared options", ""]
    lines += [f"- [{_name(heading)} options]({_slug(heading)}.md)" for heading in _shared()]
    lines += ["", "## Settings and exit codes", "", "- [Settings of config.toml](settings.md)"]
    return "\n".join([*lines, "- [Exit codes](exit-codes.md)"])


def _command_page(name: str) -> str:
    lines = [f"# leap {name}", ""]
    paths = [(path, command) for path, command in commands() if path.partition(" ")[0] == name]
    if len(paths) > 1:
        group = command_line.get_command(click.Context(command_line), name)
        lines += [*inspect.cleandoc((group and group.help) or "").replace("\b", "").strip().splitlines(), ""]
    for path, command in paths:
        if len(paths) > 1:
            lines += [f"## leap {path}", ""]
        lines += [*_command(path, command), ""]
    return "\n".join(lines)


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"leap {path}")
    yield from inspect.cleandoc(command.help or "").replace("\b", "").strip().splitlines()
    if path in EXAMPLES:
        yield from ("", "```sh", *EXAMPLES[path], "```")
    yield ""
    yield f"Usage: `leap {path} {' '.join(command.collect_usage_pieces(context))}`"
    shown = [option for option in options_of(command) if not option.hidden or is_by_name(option)]
    links = []
    for heading, options in under_headings(shown):
        shared = _shared().get(heading, {})
        own = [option for option in options if not _is_shared(option, shared)]
        if own:
            yield from ("", f"### {heading}", "")
            yield from _rows(own, context)
        if len(own) < len(options):
            some = [option.opts[0] for option in options if option not in own]
            names = "" if len(some) == len(shared) else ": " + ", ".join(f"`{name}`" for name in some)
            links.append(f"[{_name(heading)}]({_slug(heading)}.md){names}")
    if links:
        yield from ("", f"Shared options: {'; '.join(links)}.")


def _rows(options: list[click.Option], context: click.Context) -> Iterator[str]:
    for option in options:
        flags = " / ".join(", ".join(names) for names in (option.opts, option.secondary_opts) if names)
        yield f"- `{with_value(flags, metavar(option, context), option)}`: {meaning(option, context)}"


@cache
def _shared() -> Mapping[str, Mapping[str, click.Option]]:
    """By heading, the options that several commands have with one meaning, by their first names."""
    users: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    found: dict[str, dict[str, click.Option]] = defaultdict(dict)
    for _path, command in commands():
        for heading, options in under_headings(
            each for each in options_of(command) if not each.hidden or is_by_name(each)
        ):
            for option in options:
                users[heading][option.opts[0], _same(option)] += 1
                if users[heading][option.opts[0], _same(option)] == FEWEST_USERS:
                    found[heading].setdefault(option.opts[0], option)
    return {heading: options for heading, options in found.items() if len(options) > 1}


def _name(heading: str) -> str:
    return "Common" if heading == OPTIONS else heading


def _is_shared(option: click.Option, shared: Mapping[str, click.Option]) -> bool:
    return option.opts[0] in shared and _same(shared[option.opts[0]]) == _same(option)


def _same(option: click.Option) -> str:
    """What two options with one meaning have in common: listings differ in what quiet prints."""
    return (option.help or "").partition(" quiet:")[0]


def _shared_page(heading: str, options: Mapping[str, click.Option]) -> str:
    users = [path for path, command in commands() if {*options} & {each.opts[0] for each in options_of(command)}]
    links = ", ".join(f"[{name}]({name}.md)" for name in dict.fromkeys(path.partition(" ")[0] for path in users))
    context = click.Context(click.Command("leap"))
    lines = [f"# {_name(heading)} options", "", f"Options of {links}.", "", *_rows(list(options.values()), context)]
    return "\n".join(lines)


def _slug(heading: str) -> str:
    return "options-" + _name(heading).lower().replace(" ", "-")


def _settings() -> str:
    lines = ["# Settings", "", "What `config.toml` may hold besides the options of commands, which are"]
    lines.append(f"`{option_key('COMMAND')}.NAME`, such as `{option_key('generate')}.top_p`.")
    lines += ["", "| key | default | variable | meaning |", "|---|---|---|---|"]
    for setting in (*GENERAL, *OF_A_TOOL):
        key = f"tools.NAME.{setting.key}" if setting in OF_A_TOOL else setting.key
        default = "" if setting.default is None else f"`{setting.default}`"
        variable = f"`{setting.variable}`" if setting.variable else ""
        lines.append(f"| `{key}` | {default} | {variable} | {_cell(setting.meaning)} |")
    return "\n".join(lines)


def _exit_codes() -> str:
    rows = [f"| {code} | {_cell(words)} |" for code, words in exit_code_meanings()]
    return "\n".join(["# Exit codes", "", "| code | meaning |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
