"""One meaning a name and one name a meaning, over the options of all commands."""

from __future__ import annotations

from collections import defaultdict

import pytest

from leap_cli.config.settings import commands
from leap_cli.framework.option_defaults import options_of
from leap_cli.help.words import WORDS

OPTIONS = [(path, option) for path, command in commands() for option in options_of(command) if not option.hidden]
OTHER_KINDS = {"--file", "--tools-file", "--output", "--system", "--schema", "-f", "-o", "--chat-template"}
"""Names whose values are paths or texts that click types differently; what they mean is the same."""


def test_a_name_takes_the_same_kind_of_value_everywhere():
    kinds = defaultdict(set)
    for _path, option in OPTIONS:
        for name in option.opts:
            kinds[name].add("flag" if option.is_flag else option.type.name.removesuffix(" range"))
    assert {name: found for name, found in kinds.items() if len(found) > 1 and name not in OTHER_KINDS} == {}


def test_a_short_name_stands_for_one_long_name():
    long_names = defaultdict(set)
    for _path, option in OPTIONS:
        for name in option.opts:
            if not name.startswith("--"):
                long_names[name].add(next(each for each in option.opts if each.startswith("--")))
    assert {name: found for name, found in long_names.items() if len(found) > 1} == {}


def test_every_name_of_several_commands_has_one_meaning():
    users = defaultdict(set)
    for path, option in OPTIONS:
        for name in option.opts:
            if name.startswith("--"):
                users[name].add(path)
    sampling = {"--temperature", "--top-p", "--min-p", "--top-k", "--repetition-penalty", "--frequency-penalty"}
    sampling |= {"--presence-penalty", "--repeat-last-n", "--schema", "--tools"}
    assert {name for name, paths in users.items() if len(paths) > 1} - set(WORDS) - sampling == set()
    assert len(set(WORDS.values())) == len(WORDS), "a meaning with two names"


@pytest.mark.parametrize(
    "line",
    [
        "batch in.jsonl --output-format plain --template {x} --overwrite --tools t.json --retries 1 --help",
        "sessions list -n 1 -q",
        "jobs list -n 1 -q",
        "sessions ls",
        "jobs ls",
        "models ls",
        "models show builtin",
        "generate --schema 'a int' --tools x.py --help",
        "tools call calculate --allow --help",
        "jobs worker --stop --help",
    ],
)
def test_former_spellings_are_still_taken(leap, line):
    import shlex

    assert leap(*shlex.split(line)).code == 0


def test_a_former_name_in_the_configuration(leap):
    leap.home.mkdir(exist_ok=True)
    (leap.home / "config.toml").write_text('[options.batch]\noutput_format = "plain"\n')
    (leap.home.parent / "in.jsonl").write_text('{"prompt": "a"}\n')
    leap.script("b")
    done = leap("batch", "in.jsonl", "-m", "builtin", "-q")
    assert done.code == 0 and '"text": "b"' in done.stdout.replace('":"', '": "')
