"""Help as a stranger reads it: whole sentences, words for values, lines that fit however narrow the terminal is."""

from __future__ import annotations

import re

import click
import pytest

from leap_cli.config.settings import commands
from leap_cli.framework.click_classes import HelpContext
from leap_cli.framework.help_text import broken_shell, meaning, names_and_value
from leap_cli.framework.option_defaults import options_of
from leap_cli.framework.options import FEWEST
from leap_cli.help.rare_options import RARE, is_rare

EVERY = dict(commands())
OPTIONS = [(path, option) for path, command in EVERY.items() for option in options_of(command) if not option.hidden]
RAW = re.compile(r"INTEGER|FLOAT|RANGE|BOOLEAN|PATH$|<=|\d{16}")
FRAGMENT = re.compile(r"(Of|Only|At most|Most|Those|No|With|Without|As in|How|What|Where|Which|Who) ")
UNBREAKABLE = re.compile(r"""['"].{20,}['"]|\S{36,}""")
"""A quoted prompt is one word of the shell, and is left to the terminal."""


def test_an_option_is_explained_by_a_sentence():
    for path, option in OPTIONS:
        context = HelpContext(EVERY[path])
        row = f"{path}: {names_and_value(option, context)}  {meaning(option, context)}"
        assert not RAW.search(row), row
        assert option.help and option.help[0].isupper() and option.help.endswith("."), row
        assert len(option.help.split()) >= 4 and not FRAGMENT.match(option.help), row
        assert "(or human" not in option.help and "may be repeated" not in option.help.lower(), row


@pytest.mark.parametrize("width", [40, 80])
def test_every_help_fits(leap, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    groups = {path.rpartition(" ")[0] for path in EVERY} - {""}
    for path in ["", *groups, *EVERY]:
        done = leap(*path.split(), "--help")
        assert done.code == 0
        long = [line for line in done.stdout.splitlines() if len(line) > width and not UNBREAKABLE.search(line)]
        assert not long, (path, long)
    assert max(map(len, leap().stdout.splitlines())) <= width


DETAILS = {"--kv-type-k", "--webhook-data", "--batch-size", "--missed", "--top-k"}
TASKS = ("extract", "translate", "summarize", "redact", "classify", "decide", "transcribe", "ask", "talk", "say")


def flags_in(help: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", help))


@pytest.mark.parametrize("path", ["generate", "chat", "batch", *TASKS])
def test_help_fits_a_screen_and_shows_an_example_with_its_output(leap, path):
    shown = leap(path, "--help").stdout
    assert shown.count("\n") <= 60 and shown.startswith(f"Usage: leap {path} ")
    assert "--model" in flags_in(shown) and not flags_in(shown) & DETAILS
    assert f"leap {path} --help-all shows " in shown and "\nExample:\n" in shown
    if path in ("generate", "chat", "batch"):
        assert re.search(r"\nExample:\n  .*\bleap (.*\n)+?  \w.*\n\nMore: leap help", shown)


@pytest.mark.slow
@pytest.mark.parametrize("path", EVERY)
def test_help_all_shows_every_option(leap, path):
    shown_by_all = [each for each in options_of(EVERY[path]) if not each.hidden]
    options = [set(each.opts) for each in shown_by_all]
    shown, everything = flags_in(leap(*path.split(), "--help").stdout), leap(*path.split(), "--help-all")
    assert everything.code == 0 and all(names & flags_in(everything.stdout) for names in options)
    has_many = len(options) >= FEWEST
    assert ("--help-all" in shown) == has_many
    left_out = [each for each in shown_by_all if not shown & set(each.opts)]
    assert all(has_many and is_rare(each) for each in left_out)


def test_the_options_that_only_help_all_shows_exist():
    assert {name for _, option in OPTIONS for name in option.opts} >= RARE


def test_a_group_and_leap_itself_take_help_all(leap):
    assert leap("--help-all").stdout == leap("--help").stdout != ""
    assert leap("sessions", "--help-all").stdout == leap("sessions", "--help").stdout


def test_an_unknown_option_points_to_the_whole_list(leap):
    assert "leap generate --help-all lists what can be given" in leap("generate", "--frobnicate", "x").stderr


def test_a_misspelled_option_has_no_nested_brackets_in_its_error(leap):
    done = leap("jobs", "list", "--limt", "3")
    assert done.stderr == (
        "leap: error: No such option '--limt'. Did you mean '--limit'? (hint: leap jobs list --help lists what can be "
        "given)\n"
    )


def test_examples_go_on_after_a_backslash():
    line = "leap generate --json-schema 'name, age int' 'Ada Lovelace was 36 years old.' -o ada.json"
    pieces = broken_shell(line, 38)
    assert " ".join(piece.removesuffix(" \\") for piece in pieces) == line
    assert all(piece.endswith(" \\") for piece in pieces[:-1]) and max(map(len, pieces)) <= 38
    assert broken_shell(line, 200) == [line]


def test_a_range_is_described_in_words(leap):
    command = click.Command("x", params=[click.Option(["-n"], type=click.IntRange(1, 2**63 - 1), help="Do it.")])
    assert meaning(command.params[0], HelpContext(command)) == "Do it.  [1 or more]"  # type: ignore[arg-type]
    assert "[default: 5; 1 to 1000]" in " ".join(leap("search", "--help").stdout.split())


@pytest.mark.parametrize(
    ("size", "expected"),
    [("5", 5 * 1024**2), ("500MB", 500_000_000), ("1.5 GB", 1_500_000_000), ("8GiB", 8 * 1024**3)],
)
def test_a_size_has_units_and_its_old_option_has_none(leap, size, expected):
    from leap_cli.framework.options import Size

    assert Size(bare="MiB").convert(size, None, None) == expected
    leap.script("a")
    assert leap("generate", "-m", "some", "--option", f"prompt-cache-size={size}", "x").code == 0
    for wrong in ("5 apples", "0MB", "-3"):
        done = leap("generate", "-m", "some", "--option", f"prompt-cache-size={wrong}", "x")
        assert done.code == 2 and "--option prompt-cache-size" in done.stderr and wrong in done.stderr


def test_a_length_of_audio_is_a_duration_and_its_old_option_seconds(leap):
    (leap.home.parent / "a.wav").write_bytes(b"")
    for length in (["--chunk-length", "0.5m"], ["--chunk-length", "20s"]):
        assert "a.wav" in leap("transcribe", *length, "a.wav").stderr
    for wrong in ("30", "2m", "0s", "soon"):
        done = leap("transcribe", "--chunk-length", wrong, "a.wav")
        assert done.code == 2 and "--chunk-length" in done.stderr


def test_help_of_a_group_lists_the_options_of_its_default_verb(leap):
    assert leap("eval", "--help-all").stdout == leap("eval", "run", "--help-all").stdout
    assert leap("eval", "--help").stdout.startswith("Usage: leap eval [OPTIONS] COMMAND")
