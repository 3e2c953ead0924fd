"""Writes docs/reference.md from the code: every command, argument, option, variable, setting and exit code.

python scripts/make_reference.py
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from leap_cli.command_table import COMMANDS, GROUPS  # noqa: E402
from leap_cli.config.settings import GENERAL, OF_A_TOOL, commands  # noqa: E402
from leap_cli.exit_codes import ExitCode  # noqa: E402
from leap_cli.framework.option_defaults import option_key, option_variable, options_of  # noqa: E402
from leap_cli.help.examples import EXAMPLES  # noqa: E402

PAGE = ROOT / "docs" / "reference.md"

EXAMPLES = {
    "generate": "leap generate 'What is the capital of Italy?'",
    "chat": "printf 'My name is Ada.\\nWhat is my name?\\n' | leap chat",
    "say": "leap say -m LFM2.5-Audio-1.5B 'Good morning.' -o morning.wav",
    "batch": "leap batch prompts.jsonl -o answers.jsonl --output-format plain",
    "download": "leap download LFM2.5-350M:Q8_0 --dry-run",
    "models import": "leap models import model.gguf --name Mine --quant Q8_0",
    "models list": "leap models list",
    "models catalogue": "leap models catalogue --format quiet",
    "models info": "leap models info Mine-Q8_0 --format json",
    "models path": "leap models path Mine-Q8_0",
    "models verify": "leap models verify Mine-Q8_0",
    "models check": "leap models check Mine-Q8_0",
    "models manifest create": "leap models manifest create model.gguf --temperature 0.3 -o model.json",
    "models manifest check": "leap models manifest check model.json",
    "models gc": "leap models gc --dry-run",
    "models remove": "leap models remove Mine-Q8_0",
    "load": "leap load builtin --keep-alive 5m",
    "ps": "leap ps --format jsonl",
    "unload": "leap unload --all",
    "serve": "leap serve builtin --port 8080",
    "tools add": "leap tools add greet --command 'echo hello'",
    "tools list": "leap tools list --tools-file tools.py",
    "tools show": "leap tools show calculate",
    "tools check": "leap tools check greet",
    "tools call": 'leap tools call calculate \'{"expression": "6 * 7"}\'',
    "tools remove": "leap tools remove greet",
    "schema show": "leap schema show 'name, age int'",
    "schema check": "leap schema check 'name, age int' --format json",
    "sessions list": "leap sessions list",
    "sessions show": 'leap sessions show "$(leap sessions list -n 1 --format quiet)"',
    "sessions search": "leap sessions search Ada",
    "sessions rename": 'leap sessions rename "$(leap sessions list -n 1 --format quiet)" ada',
    "export": "leap export ada --format markdown",
    "sessions remove": "leap sessions remove ada",
    "sessions prune": "leap sessions prune --older-than 30d",
    "templates add": "leap templates add capital 'What is the capital of {input}?' --temperature 0",
    "templates list": "leap templates list",
    "templates show": "leap templates show capital --format json",
    "templates remove": "leap templates remove capital",
    "jobs wait": "leap jobs wait \"$(leap generate --background 'Say hello.')\"",
    "jobs list": "leap jobs list --state succeeded",
    "jobs status": 'leap jobs status "$(leap jobs list -n 1 --format quiet)"',
    "jobs logs": 'leap jobs logs "$(leap jobs list -n 1 --format quiet)"',
    "jobs cancel": "leap jobs cancel \"$(leap generate --background 'Count to 300.')\"",
    "jobs retry": 'leap jobs retry "$(leap jobs list --state cancelled -n 1 --format quiet)"',
    "jobs stats": "leap jobs stats --format json",
    "jobs worker": "leap jobs worker --status",
    "jobs remove": 'leap jobs remove "$(leap jobs list --state succeeded -n 1 --format quiet)"',
    "jobs prune": "leap jobs prune --older-than 7d",
    "config set": "leap config set options.generate.temperature 0.2",
    "config list": "leap config list --format jsonl",
    "config get": "leap config get options.generate.temperature",
    "config unset": "leap config unset options.generate.temperature",
    "config path": "leap config path",
    "config edit": "EDITOR=true leap config edit",
    "doctor": "leap doctor",
    "completion": "leap completion zsh > _leap",
}
"""A line for each command. Run in this order, in one home, each of them works; tests/end_to_end does."""


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
    rows = [_option_row(path, option, context) for option in options_of(command)]
    if rows:
        yield from ("| option | default | variable | meaning |", "|---|---|---|---|", *rows)


def _option_row(path: str, option: click.Option, context: click.Context) -> str:
    flags = " / ".join(", ".join(names) for names in (option.opts, option.secondary_opts) if names)
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
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
    source = inspect.getsource(ExitCode)
    for code in ExitCode:
        meaning = re.search(rf"{code.name} = {code.value}\n +\"\"\"(.*?)\"\"\"", source, re.DOTALL)
        assert meaning is not None, code
        yield f"| {code.value} | {_cell(meaning[1])} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
