"""Writes docs/reference/ and the pages in man/ from the code: every command, argument, option, setting and exit code.

python scripts/make_reference.py
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from leap_cli.command_table import COMMANDS, GROUPS, command_line  # noqa: E402
from leap_cli.config.settings import GENERAL, OF_A_TOOL, commands  # noqa: E402
from leap_cli.exit_codes import exit_code_meanings  # noqa: E402
from leap_cli.framework.help_text import meaning, metavar  # noqa: E402
from leap_cli.framework.option_defaults import option_key, option_variable, options_of  # noqa: E402
from leap_cli.framework.options import OPTIONS, under_headings  # noqa: E402
from leap_cli.help.examples import EXAMPLES  # noqa: E402
from scripts.man_pages import pages as manual_pages  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
MANUAL = ROOT / "man"
INDEX = "README.md"
FEWEST_USERS = 3
"""Commands that have an option with the same meaning under the same heading: from here on a page of its own has it."""
FIRST_LINES = (
    "# Command reference",
    "",
    "One page for each command. Options that several commands share are described once, on pages of their own. The",
    "pages are generated from the code by `python scripts/make_reference.py`. [The command line](../command-line.md)",
    "says what the commands have in common.",
    "",
    "Every option has an environment variable and a key in `config.toml`: `leap generate --top-p` is",
    f"`{option_variable('generate', next(o for o in options_of(dict(commands())['generate']) if o.name == 'top_p'))}`"
    f" and `{option_key('generate')}.top_p`. See [configuration](../configuration.md).",
    "",
)


def pages() -> dict[str, str]:
    """The text of each page of docs/reference/ by its file's name."""
    texts = {INDEX: _index(), "settings.md": _settings(), "exit-codes.md": _exit_codes()}
    for heading, rows in _shared().items():
        texts[f"{_slug(heading)}.md"] = _shared_page(heading, rows)
    for name in COMMANDS:
        texts[f"{name}.md"] = _command_page(name)
    return {name: text.rstrip() + "\n" for name, text in texts.items()}


def _index() -> str:
    lines = list(FIRST_LINES)
    for group in GROUPS:
        lines += [f"## {group}", ""]
        lines += [
            f"- [leap {name}]({name}.md): {each.summary}" for name, each in COMMANDS.items() if each.group == group
        ]
        lines.append("")
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
    yield from ("", "```sh", *EXAMPLES[path], "```", "")
    yield f"Usage: `leap {path} {' '.join(command.collect_usage_pieces(context))}`"
    shown = [option for option in options_of(command) if not option.hidden]
    links = []
    for heading, options in under_headings(shown):
        shared = _shared().get(heading, {})
        own = [option for option in options if not _is_shared(option, shared)]
        if own:
            yield from ("", f"**{heading}**", "")
            yield from _rows(own, context)
        if len(own) < len(options):
            some = [option.opts[0] for option in options if option not in own]
            names = "" if len(some) == len(shared) else ": " + ", ".join(f"`{name}`" for name in some)
            links.append(f"[{_name(heading)}]({_slug(heading)}.md){names}")
    if links:
        yield from ("", f"Shared options: {'; '.join(links)}.")


def _rows(options: list[click.Option], context: click.Context) -> Iterator[str]:
    for option in options:
        value = f" {metavar(option, context)}".rstrip()
        flags = " / ".join(", ".join(names) for names in (option.opts, option.secondary_opts) if names)
        yield f"- `{flags}{value}`: {meaning(option, context)}"


@cache
def _shared() -> Mapping[str, Mapping[str, click.Option]]:
    """By heading, the options that several commands have with one meaning, by their first names."""
    users: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    found: dict[str, dict[str, click.Option]] = defaultdict(dict)
    for _path, command in commands():
        for heading, options in under_headings(each for each in options_of(command) if not each.hidden):
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


def write(directory: Path, texts: Mapping[str, str]) -> None:
    """Write the texts into a directory of generated pages, and remove those that are gone."""
    directory.mkdir(exist_ok=True)
    for page in directory.iterdir():
        if page.name not in texts:
            page.unlink()
    for name, text in texts.items():
        (directory / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write(REFERENCE, pages())
    write(MANUAL, manual_pages(command_line))
