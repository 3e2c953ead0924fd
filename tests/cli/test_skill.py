"""The page for coding agents: what it names exists, and it is short."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from leap_cli.command_table import COMMANDS, command_line
from leap_cli.help.skill import DESCRIPTION, NAME, skill

TEXT = skill({name: entry.summary for name, entry in COMMANDS.items()})

LINES = [
    line.split("   #")[0]
    for line in [*re.search(r"```sh\n(.*?)```", TEXT, re.S)[1].splitlines(), *re.findall(r"`(leap [^`]*)`", TEXT)]
]


def test_the_page_is_a_valid_skill(leap):
    assert re.fullmatch("[a-z0-9-]{1,64}", NAME) and len(DESCRIPTION) <= 1024
    assert TEXT.startswith(f"---\nname: {NAME}\ndescription: ") and TEXT.count("\n") < 300
    assert leap("help", "--skill").stdout == TEXT
    assert all(f"| `leap {name}` |" in TEXT for name in COMMANDS)


@pytest.mark.parametrize("line", LINES)
def test_every_command_and_option_in_it_exists(line):
    for part in re.split(r"&&|\||\$\(|;", line.replace("\\|", "|")):
        plain = part.replace("'\\\\n'", "").rstrip(")")
        words = shlex.split(plain) if plain.count("'") % 2 == 0 else plain.split()
        if not words or words[0] != "leap":
            continue
        command, context, rest = command_line, click.Context(command_line), words[1:]
        while rest and isinstance(command, click.Group) and not rest[0].startswith("-"):
            following = command.get_command(context, rest[0])
            if following is None:
                break
            command, rest = following, rest[1:]
        assert command is not command_line or not rest or rest[0].isupper() or " " in rest[0], line
        options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
        for word in rest:
            if re.fullmatch("--[a-z][a-z-]+|-[a-z]", word) and command is not command_line:
                assert word in options, (line, word)


def test_the_skill_is_installed_where_agents_look(leap, tmp_path):
    leap.variables["HOME"] = str(tmp_path)
    (tmp_path / ".claude").mkdir()
    done = leap("help", "--install-skill")
    places = [tmp_path / folder / "skills/leap/SKILL.md" for folder in (".agents", ".claude")]
    assert done.stdout.splitlines() == [str(place) for place in places]
    assert all(place.read_text() == TEXT for place in places)
