"""What holds for every command, whoever wrote it: it is in the reference, speaks to programs, refuses what is wrong."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import click
import pytest

from leap_cli.config.settings import commands
from leap_cli.framework.arguments import FileName
from leap_cli.framework.click_classes import LeapCommand
from leap_cli.framework.option_defaults import option_variable, options_of
from leap_cli.framework.options import Duration
from leap_cli.help.examples import EXAMPLES
from leap_cli.reference.pages import pages

from ..support.tables import check_each

ROOT = Path(__file__).parent.parent.parent

EVERY = dict(commands())
NOUNS = {word: [path for path in EVERY if path.split()[0] == word] for word in (path.split()[0] for path in EVERY)}
of_each_noun = pytest.mark.parametrize("paths", NOUNS.values(), ids=NOUNS)
WRONG = "!wrong!"

WITHOUT_FORMAT = {
    "chat": "a dialogue",
    "say": "sound",
    "talk": "a dialogue",
    "translate": "a text",
    "summarize": "a text",
    "redact": "a text",
    "saved recipes show": "a file",
    "saved recipes add": "nothing",
    "eval make": "cases, a line each",
    "saved recipes edit": "nothing",
    "saved recipes remove": "nothing",
    "models add-endpoint": "nothing",
    "index make": "its name",
    "index update": "names, a line each",
    "index remove": "names, a line each",
    "models import": "one path",
    "models convert": "one path",
    "models merge": "one path",
    "models path": "one path",
    "models default": "one name",
    "help": "a guide",
    "models remove": "names, a line each",
    "engine remove": "names, a line each",
    "engine use": "nothing",
    "models manifest create": "a manifest, which is JSON",
    "unload": "names, a line each",
    "models cache clear": "nothing",
    "mcp": "speaks its own protocol",
    "serve": "one URL",
    "jobs page": "one URL",
    "tools add": "nothing",
    "tools remove": "nothing",
    "tools call": "what the tool puts out",
    "tools show": "one JSON document",
    "saved schemas add": "nothing",
    "saved schemas edit": "nothing",
    "saved schemas remove": "nothing",
    "saved schemas show": "one JSON document",
    "saved templates add": "nothing",
    "saved templates edit": "nothing",
    "saved templates remove": "nothing",
    "config set": "nothing",
    "sessions log on": "nothing",
    "sessions log off": "nothing",
    "sessions log clear": "nothing",
    "config unset": "nothing",
    "config edit": "nothing",
    "config path": "one path",
    "completion": "a script",
}
"""Commands without --format, and what they print instead of data with fields."""

OTHER_FORMATS = {
    "batch": {"openai", "plain", "text", "csv"},
    "export": {"openai", "jsonl", "markdown"},
    "extract": {"jsonl", "json", "csv"},
}
"""Commands whose --format is that of a file."""


def has_format(command: click.Command) -> bool:
    return any("--format" in option.opts for option in options_of(command))


def typed_options() -> list[tuple[str, click.Option]]:
    """Every option whose value can be of the wrong type."""
    loose = (click.types.StringParamType, click.Path, click.types.UnprocessedParamType, FileName)
    return [
        (path, option)
        for path, command in EVERY.items()
        for option in options_of(command)
        if not option.is_flag and not isinstance(option.type, loose) and refuses(option.type)
    ]


def text_options() -> list[tuple[str, click.Option]]:
    """Every option that takes a text, and not a file's name."""
    return [
        (path, option)
        for path, command in EVERY.items()
        for option in options_of(command)
        if isinstance(option.type, click.types.StringParamType)
    ]


def refuses(kind: click.ParamType) -> bool:
    try:
        kind.convert(WRONG, None, None)
    except click.BadParameter:
        return True
    return False


def arguments_of(path: str, but: click.Option | None = None) -> list[str]:
    """A command line with a value for all that the command demands."""
    line = path.split()
    for parameter in EVERY[path].params:
        if parameter.required and parameter is not but:
            choices = isinstance(parameter.type, click.Choice) and parameter.type.choices
            typed = "1s" if isinstance(parameter.type, Duration) else "1"
            value = choices[0] if choices else typed if isinstance(parameter.type, (Duration, click.IntRange)) else "x"
            line += [value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]
    return line


def test_the_walk_finds_commands_and_typed_options():
    assert len(EVERY) >= 40 and len(typed_options()) >= 60


def test_a_dataclass_of_arguments_has_a_field_for_each() -> None:
    for command in EVERY.values():
        if isinstance(command, LeapCommand) and command.into is not None:
            grouped = {name for _, names in command.option_groups for name in names}
            own = {str(each.name) for each in command.params if each.expose_value} - grouped
            fields = {each.name for each in dataclasses.fields(command.into)}
            assert fields == own | {group.name for group, _ in command.option_groups}, command.name


@of_each_noun
def test_every_command_has_help_for_everything(leap, paths):
    def check(path):
        command = EVERY[path]
        assert isinstance(command, LeapCommand) and command.help
        done = leap(*path.split(), "--help")
        assert (done.code, done.stderr) == (0, "")
        assert done.stdout.startswith(f"Usage: leap {path}") and max(map(len, done.stdout.splitlines())) <= 80

    check_each(paths, check)


def test_every_command_has_a_format_for_programs():
    def check(path):
        assert has_format(EVERY[path]) != (path in WITHOUT_FORMAT)
        if has_format(EVERY[path]):
            kind = next(option.type for option in options_of(EVERY[path]) if "--format" in option.opts)
            assert isinstance(kind, click.Choice) and OTHER_FORMATS.get(path, {"text", "json"}) <= set(kind.choices)
            if path not in OTHER_FORMATS:
                assert kind.convert("human", None, None) == "text"

    check_each(EVERY, check)


@of_each_noun
def test_every_command_refuses_unknown_options(leap, paths):
    def check(path):
        done = leap(*arguments_of(path), "--frobnicate")
        assert (done.code, done.stdout) == (2, "")
        assert done.stderr.startswith("leap: error: ") and done.stderr.count("\n") == 1
        assert "frobnicate" in done.stderr or path == "config set"

    check_each(paths, check)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="arguments are always text there")
@pytest.mark.parametrize("path", dict.fromkeys(path for path, _ in text_options()))
def test_every_command_refuses_bytes_that_are_not_utf8(leap, path):
    def check(option):
        done = leap(*arguments_of(path, but=option), option.opts[0], *["\udcff"] * option.nargs)
        assert (done.code, done.stdout) == (2, "")
        named = f"{max(option.opts, key=len)} is not valid UTF-8" in done.stderr
        assert named or "cannot name a template" in done.stderr
        assert done.stderr.count("\n") == 1

    check_each([option for each, option in text_options() if each == path], check, lambda option: option.opts[-1])


@pytest.mark.slow
@pytest.mark.parametrize("path", dict.fromkeys(path for path, _ in typed_options()))
def test_every_command_refuses_an_invalid_value_from_any_source(leap, leap_home, path):
    def check(option):
        joined = option._flag_needs_value and isinstance(option.type, click.IntRange)  # a word after it is another one
        given = [f"{option.opts[-1]}={WRONG}"] if joined else [option.opts[-1], WRONG]
        done = leap(*arguments_of(path, but=option), *given)
        assert (done.code, done.stdout) == (2, "")
        assert option.opts[-1] in done.stderr and WRONG in done.stderr and done.stderr.count("\n") == 1
        variable = option_variable(path, option)
        leap.variables = {variable: WRONG}
        done = leap(*arguments_of(path, but=option))
        leap.variables = {}
        assert (done.code, done.stdout) == (2, "")
        assert variable in done.stderr and WRONG in done.stderr and done.stderr.count("\n") == 1
        assert not leap_home.exists(), "something was done"

    check_each([option for each, option in typed_options() if each == path], check, lambda option: option.opts[-1])


def test_the_reference_has_every_command_option_and_example():
    shared = "".join(text for name, text in pages().items() if name.startswith("options-"))
    for path, each in EVERY.items():
        page = pages()[path.split()[0]]
        assert all(f"`{option.opts[0]}" in page + shared or option.hidden for option in options_of(each)), path
        assert all(line in page for line in EXAMPLES[path])
    assert set(EXAMPLES) == set(EVERY)
    for path, examples in EXAMPLES.items():
        assert all(f"leap {path}" in example for example in examples)


def test_commands_that_the_builtin_model_names_exist():
    text = (ROOT / "scripts" / "builtin" / "builtin_data" / "phrases" / "leap.txt").read_text("utf-8")
    told = [line.split() for line in re.findall(r"`leap ([^`]*)`", text)]
    assert len(told) > 8
    for words in told:
        name = words[0]
        options = EVERY[name].params if name in EVERY else []
        flags = {"--help"} | {flag for each in options for flag in each.opts}
        assert name in EVERY or name == "--help" or any(path.startswith(f"{name} ") for path in EVERY), words
        assert {word for word in words if word.startswith("--")} <= flags, words
