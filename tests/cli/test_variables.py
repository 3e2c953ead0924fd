"""Variables of leap: each that the source reads is known, documented and warned about by no command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leap_cli.framework.option_defaults import GIVEN, MEANT, VARIABLES

ROOT = Path(__file__).parent.parent.parent


def test_every_variable_that_the_source_reads_is_known():
    files = [file for room in ("leap_core", "leap_cli", "jobs") for file in (ROOT / room).rglob("*.py")]
    named = {name for file in files for name in re.findall(r"""["'](LEAP_[A-Z_]+)["']""", file.read_text("utf-8"))}
    assert named - {*GIVEN} - MEANT.keys() == set(VARIABLES)


def test_exactly_the_known_variables_are_documented():
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8").partition("## Other variables")[2]
    listed = {name for row in re.findall(r"(?m)^\|(.*?)\|", page) for name in re.findall(r"`(LEAP_\w+)`", row)}
    assert listed == set(VARIABLES)


@pytest.mark.parametrize("name", sorted((*VARIABLES, *GIVEN)))
def test_no_command_warns_about_a_known_variable(leap, name):
    leap.variables[name] = str(leap.home) if name == "LEAP_HOME" else "0"
    leap.script("ok")
    assert "variable" not in leap("generate", "-m", "x", "hi").stderr
