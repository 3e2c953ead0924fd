"""The command line as a whole: help, version, usage errors, the way out."""

from __future__ import annotations

import re

import pytest

from leap_cli.command_table import COMMANDS, GROUPS, command_line
from leap_cli.framework.click_classes import LeapCommand
from leap_core import __version__


def test_version_is_printed(leap):
    assert leap("--version").stdout == f"leap {__version__}\n"


def test_the_overview_fits_a_terminal_of_80_by_24(leap):
    done = leap()
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 23 and max(map(len, lines)) <= 80, done.stdout  # and a line for the prompt
    assert all(re.search(rf"\b{name}\b", done.stdout) for name in COMMANDS)


@pytest.mark.parametrize("args", [["--help"], ["-h"]])
def test_help_is_no_wider_than_80(leap, args):
    done = leap(*args)
    assert (done.code, done.stderr) == (0, "") and max(map(len, done.stdout.splitlines())) <= 80


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
        (["genrate"], "Did you mean 'generate'?"),
        (["--frobnicate"], "No such option '--frobnicate'"),
        (["--frobnicate", "two words"], "No such option '--frobnicate'"),
        (["--versio"], "Did you mean '--version'?"),
        (["Hello"], "No such command 'Hello'. (hint: leap --help lists what can be given; leap generate Hello asks"),
        (["-m", "some", "genrate"], "No such command 'genrate'. Did you mean 'generate'?"),
        (["-m", "some", "chat"], "options come after the command: leap chat -m ..."),
        (["--temperature", "hot", "two words"], "'hot' is not a valid float"),
        (["-m"], "Option '-m' requires an argument"),
        (["-m", "some", "two words", "--frobnicate"], "No such option '--frobnicate'"),
        (["-"], "the prompt is empty"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(leap, args, says):
    done = leap(*args)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "stdin", "asked"),
    [
        (["What is it?"], "", "What is it?"),
        (["What is", "it?", "--temperature", "0"], "", "What is it?"),
        (["-m", "some", "What is it?"], "", "What is it?"),
        (["-msome", "What is it?"], "", "What is it?"),
        (["--model=some", "What is it?"], "", "What is it?"),
        (["-sBe brief.", "What is it?"], "", "What is it?"),
        (["--no-stream", "What is it?"], "", "What is it?"),
        (["Sum up:\n"], "one", "Sum up:\n\n\none"),
        (["-"], "What is it?", "What is it?"),
        (["-", "in short?"], "What is it", "What is it\n\nin short?"),
        (["-m", "some"], "What is it?", "What is it?"),
        (["-m", "some", "-"], "What is it?", "What is it?"),
        (["--", "What is it?"], "", "What is it?"),
        (["- what is this?"], "", "- what is this?"),
        (["--", "- what is this?"], "", "- what is this?"),
    ],
)
def test_a_prompt_alone_is_generated(leap, args, stdin, asked):
    runner = leap.script("It.")
    done = leap(*args, stdin=stdin)
    assert (done.code, done.stdout) == (0, "It.\n")
    assert runner.requests[0].messages[-1].text == asked


def test_a_prompt_alone_uses_the_settings_of_generate(leap):
    runner = leap.script("It.")
    leap.variables["LEAP_GENERATE_TEMPERATURE"] = "0.25"
    assert leap("What is it?").code == 0
    assert runner.requests[0].options.temperature == 0.25


@pytest.mark.parametrize("group", ["config", "jobs", "models", "saved", "sessions", "tools"])
def test_a_group_alone_lists(leap, group):
    alone, listed = leap(group), leap(group, "list")
    assert (alone.code, alone.stdout, alone.stderr) == (0, listed.stdout, listed.stderr)


def test_a_group_with_nothing_to_list_shows_its_help(leap):
    assert leap("models", "manifest").stdout == leap("models", "manifest", "--help").stdout != ""


@pytest.mark.parametrize("prompt", ["法国的首都是什么？", "Hello?", "2+2=", "¿Qué?", "C'est-à-dire…"])
def test_text_that_cannot_be_a_command_is_a_prompt(leap, prompt):
    leap.script("yes")
    assert leap(prompt).stdout == "yes\n"
    assert leap.runner.requests[0].messages[-1].text == prompt


@pytest.mark.parametrize("word", ["genrate", "--modle=x", "Hello"])
def test_a_mistyped_command_or_option_is_not_a_prompt(leap, word):
    assert leap(word).code == 2
