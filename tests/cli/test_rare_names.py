"""Options without a flag of their own: `--option NAME=VALUE`."""

from __future__ import annotations

import click

from leap_cli.command_table import COMMANDS, command_line
from leap_cli.config.settings import commands
from leap_cli.framework.rare_names import NAMES, is_by_name

from ..support.tables import check_each


def options_by_name() -> set[str]:
    return {
        name
        for _, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and is_by_name(option)
        for name in (*option.opts, *option.secondary_opts)
    }


def test_every_rare_name_belongs_to_a_command():
    assert {name for name in NAMES.values() if " no-" not in name} <= options_by_name()
    assert COMMANDS and command_line


def test_option_sets_a_value(leap):
    def check(case):
        given, name, value = case
        runner = leap.script("Yes.")
        done = leap("generate", "-m", "some", *given, "Hi")
        assert done.code == 0, done.stderr
        assert getattr(runner.requests[-1].options, name) == value

    cases = [
        (["--option", "repeat-last-n=32"], "repeat_last_n", 32),
        (["--option=repeat_last_n=32"], "repeat_last_n", 32),
        (["--option", "repetition-detection=false"], "repetition_detection", False),
        (["--option", "no-repetition-detection"], "repetition_detection", False),
        (["--option", "repetition-detection"], "repetition_detection", True),
        (["--option", "repetition-detection=FALSE"], "repetition_detection", False),
    ]
    check_each(cases, check)


def test_option_refuses_unknown_names_and_bad_values(leap):
    for given, told in (
        (["--option", "nosuch=1"], "--option takes NAME=VALUE, not 'nosuch=1'; the names are "),
        (["--option"], "--option takes NAME=VALUE, not None"),
        (["--option", "typical-p=x"], "Invalid value for '--option typical-p'"),
        (["--option", "mmap=7"], "--option mmap takes true or false, not '7'"),
        (["--option", "typical-p=9"], "--option typical-p: 9.0 must be between 0 and 1"),
        (["--typical-p", "0.5"], "No such option '--typical-p': --option typical-p sets it."),
    ):
        done = leap("generate", "-m", "some", "Hi", *given)
        assert (done.code, done.stdout) == (2, "") and told in done.stderr, done


def test_the_manual_page_explains_them_and_help_all_names_them(leap):
    assert "typical\\-p" in leap("help", "--man", "generate").stdout
    assert "typical-p" not in leap("generate", "--help").stdout
    shown = " ".join(leap("generate", "--help-all").stdout.split())
    assert "--option NAME=VALUE" in shown and "any-whitespace, audio-temperature, " in shown
    assert "installed." in " ".join(leap("models", "catalogue", "--help").stdout.split())


def test_the_hint_of_a_former_flag_leads_to_its_name(leap):
    done = leap("generate", "Hi", "--typical-p", "0.5")
    assert "leap generate --help-all lists what can be given" in done.stderr
    assert " typical-p," in " ".join(leap("generate", "--help-all").stdout.split())
    done = leap("download", "x", "--read-timeout", "5")
    assert "Did you mean '--option stall-timeout'?" in done.stderr


def test_a_command_without_such_options_has_no_option(leap):
    done = leap("models", "list", "--option", "x=1")
    assert done.code == 2 and "No such option" in done.stderr and "--option" in done.stderr
