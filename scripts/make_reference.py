"""Writes docs/reference.md, docs/words.md and the pages in man/ from the code: every command, argument, option,
variable, setting and exit code.

python scripts/make_reference.py
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from leap_cli.command_table import COMMANDS, GROUPS, command_line  # noqa: E402
from leap_cli.config.settings import GENERAL, OF_A_TOOL, commands  # noqa: E402
from leap_cli.exit_codes import exit_code_meanings  # noqa: E402
from leap_cli.framework.click_classes import OTHER_VERBS, LeapGroup  # noqa: E402
from leap_cli.framework.help_text import metavar  # noqa: E402
from leap_cli.framework.option_defaults import option_key, option_variable, options_of  # noqa: E402
from leap_cli.help.examples import EXAMPLES  # noqa: E402
from scripts.man_pages import WORDS, pages  # noqa: E402

PAGE = ROOT / "docs" / "reference.md"
WORDS_PAGE = ROOT / "docs" / "words.md"
MANUAL = ROOT / "man"
MOST_PLACES = 3
"""Commands that are named one by one."""
WORDS_TEXT = (
    "Written by `python scripts/make_reference.py`. A name means the same in every command, and a thing has one name."
)


def page() -> str:
    """The whole reference."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield "# Command reference"
    yield ""
    yield "Written from the code by `python scripts/make_reference.py`. [command-line.md](command-line.md) says what"
    yield "the commands have in common. Every option can also be given by its variable, or in `config.toml`"
    yield "([configuration.md](configuration.md))."
    yield ""
    for group in GROUPS:
        paths = [path for path, _ in commands() if COMMANDS[path.partition(" ")[0]].group == group]
        links = [f"[{path}](#leap-{path.replace(' ', '-')})" for path in paths]
        yield f"- {group}: {', '.join(links)}"
    for path, command in commands():
        yield from _command(path, command)
    yield from _settings()
    yield from _exit_codes()


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"leap {path}")
    yield from ("", f"## leap {path}", "")
    yield from ("```sh", *EXAMPLES[path], "```", "")
    yield from inspect.cleandoc(command.help or "").splitlines()
    yield from ("", f"`leap {path} {' '.join(command.collect_usage_pieces(context))}`", "")
    rows = [_option_row(path, option, context) for option in options_of(command) if not option.hidden]
    if rows:
        yield from ("| option | default | variable | meaning |", "|---|---|---|---|", *rows)


def _option_row(path: str, option: click.Option, context: click.Context) -> str:
    value = f" {metavar(option, context)}".rstrip()
    flags = " / ".join(", ".join(names) for names in (option.opts, option.secondary_opts) if names)
    default = option.default
    shown = "" if option.is_flag or not isinstance(default, (int, float, str)) or default == "" else f"`{default}`"
    repeated = " May be repeated." if option.multiple else ""
    variable = f"`{option_variable(path, option)}`"
    return f"| `{_cell(flags + value)}` | {shown} | {variable} | {_cell(option.help or '')}{repeated} |"


def _settings() -> Iterator[str]:
    yield from ("", "## Settings", "", "What `config.toml` may hold besides the options of commands, which are")
    yield f"`{option_key('COMMAND')}.NAME`, such as `{option_key('generate')}.top_p` for `LEAP_GENERATE_TOP_P`."
    yield from ("", "| key | default | variable | meaning |", "|---|---|---|---|")
    for setting in (*GENERAL, *OF_A_TOOL):
        key = f"tools.NAME.{setting.key}" if setting in OF_A_TOOL else setting.key
        default = "" if setting.default is None else f"`{setting.default}`"
        variable = f"`{setting.variable}`" if setting.variable else ""
        yield f"| `{key}` | {default} | {variable} | {_cell(setting.meaning)} |"


def _exit_codes() -> Iterator[str]:
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    for code, words in exit_code_meanings():
        yield f"| {code} | {_cell(words)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def words_page() -> str:
    """The page of the names of options and verbs."""
    lines = ["# The words of the command line", "", *textwrap.wrap(WORDS_TEXT, 120), ""]
    lines += ["| option | meaning | in |", "|---|---|---|", *_option_words()]
    lines += ["", "## Verbs", "", "| command | verbs | also taken |", "|---|---|---|", *_verbs()]
    return "\n".join(lines) + "\n"


def _option_words() -> Iterator[str]:
    """A row for each long name: what it means, and the commands that have it; by number where there are many."""
    meanings: dict[str, str] = dict(WORDS)
    users: dict[str, list[str]] = {}
    for path, command in commands():
        for option in options_of(command):
            for name in () if option.hidden else (*option.opts, *option.secondary_opts):
                if name.startswith("--") and not (name.startswith("--no-") and name in option.secondary_opts):
                    users.setdefault(name, []).append(path)
                    meanings.setdefault(name, (option.help or "").rstrip("."))
    for name, paths in sorted(users.items()):
        places = ", ".join(f"`{path}`" for path in paths) if len(paths) <= MOST_PLACES else f"{len(paths)} commands"
        yield f"| `{name}` | {_cell(meanings[name])} | {places} |"


def _verbs() -> Iterator[str]:
    for name, entry in COMMANDS.items():
        group = getattr(import_module(entry.module), entry.attribute)
        if isinstance(group, LeapGroup):
            context = click.Context(group)
            verbs = [verb for verb in group.commands]
            others = [verb for verb in OTHER_VERBS if verb not in verbs and group.get_command(context, verb)]
            also = [f"`{verb}` for `{group.get_command(context, verb).name}`" for verb in others]  # type: ignore[union-attr]
            yield f"| `{name}` | {', '.join(f'`{verb}`' for verb in verbs)} | {', '.join(also)} |"


def write_manual() -> None:
    """Write the manual pages, and remove those of commands that are gone."""
    MANUAL.mkdir(exist_ok=True)
    texts = pages(command_line)
    for page in MANUAL.glob("*.1"):
        if page.name not in texts:
            page.unlink()
    for name, text in texts.items():
        (MANUAL / name).write_text(text, "utf-8")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    WORDS_PAGE.write_text(words_page(), "utf-8")
    write_manual()
