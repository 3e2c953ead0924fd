"""The command line as a whole: help, version, usage errors, the way out."""

from __future__ import annotations

import re

import pytest

from leap_cli.command_line import LeapCommand
from leap_cli.main import COMMANDS, GROUPS, command_line
from leap_core import __version__


def test_version(leap):
    assert leap("--version").stdout == f"leap {__version__}\n"


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"]])
def test_help_fits_a_terminal_of_80_by_24(leap, args):
    done = leap(*args)
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80, done.stdout


def test_help_names_every_command_under_its_group(leap):
    help = leap("--help").stdout
    for name, entry in COMMANDS.items():
        assert entry.group in GROUPS
        assert re.search(rf"^({entry.group})? +{name} +{re.escape(entry.summary)}$", help, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_leap_command_with_help(leap, name):
    context = command_line.make_context("leap", [], obj=leap.environment(b"", terminal=False, stdin_terminal=False))
    assert isinstance(command_line.get_command(context, name), LeapCommand)
    done = leap(name, "--help")
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: leap {name}")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["generat"], "Did you mean 'generate'?"),
        (["--frobnicate"], "No such option '--frobnicate'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(leap, args, says):
    done = leap(*args)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
