"""The manual pages: written from the commands, shown as they are meant, installed where man finds them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from leap_cli.command_table import command_line
from leap_cli.config.settings import commands
from leap_cli.framework.option_defaults import options_of
from leap_cli.help.examples import EXAMPLES
from leap_cli.reference.man_pages import code, escaped, install, pages, prose

REQUESTS = {".TH", ".SH", ".SS", ".PP", ".TP", ".br", ".RS", ".RE", ".EX", ".EE", '.\\"'}
ESCAPES = re.compile(r"\\(e|-|&|fB|fI|fR|\((aq|ga|dq|ha|ti)|\[u[0-9A-F]{4,6}\])")


@cache
def manual() -> dict[str, str]:
    """The pages by the names of their files, as the code makes them."""
    return pages(command_line)


def rendered(text: str) -> str:
    """What a reader sees, as far as words and signs go."""
    signs = {"e": "\\", "-": "-", "&": "", "(aq": "'", "(ga": "`", "(dq": '"', "(ha": "^", "(ti": "~"}
    return ESCAPES.sub(lambda match: signs.get(match[1], ""), text)


def test_every_option_and_example_is_in_its_page():
    for path, command in commands():
        page = rendered(manual()[f"leap-{path.partition(' ')[0]}.1"])
        for option in options_of(command):
            names = (*option.opts, *option.secondary_opts)
            assert option.hidden or all(f"{name}" in page for name in names), (path, option)
        assert all(line in page for line in EXAMPLES[path]), path
    assert all(name in rendered(manual()["leap.1"]) for name in ("leap-generate(1)", "130", "LEAP_HOME", "config.toml"))


def test_only_intended_roff_requests_are_interpreted():
    for name, page in manual().items():
        assert page.isascii() and page.endswith("\n") and "\n\n" not in page
        for line in page.splitlines():
            assert not line.startswith("'"), (name, line)
            assert not line.startswith(".") or line.split(" ")[0] in REQUESTS, (name, line)
            assert line.startswith('.\\"') or "\\" not in ESCAPES.sub("", line), (name, line)


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        (".hidden", r"\&.hidden"),
        (r"a\nb", r"a\enb"),
        ("'quoted' `and` \"so\"", r"\(aqquoted\(aq \(gaand\(ga \(dqso\(dq"),
        ("--no-stream ~ ^", r"\-\-no\-stream \(ti \(ha"),
        ("é…", r"\[u00E9]\[u2026]"),
    ],
)
def test_text_that_roff_would_interpret_is_escaped(text, roff):
    assert escaped(text) == roff


def test_code_in_prose_is_bold_and_a_leading_dot_is_text():
    assert prose("Use `leap load`\nfirst.") == r"Use \fBleap load\fR first."
    assert prose(".toml files") == r"\&.toml files"
    assert code((".x 'y'",))[3] == r"\&.x \(aqy\(aq"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_gives_no_warning_and_shows_hyphens_and_quotes(tmp_path):
    install(manual(), tmp_path)
    command = ["groff", "-man", "-ww", "-Tascii", "-P-cbou", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ""
    for line in (
        "--json-schema, --schema SCHEMA",
        "echo 'What is the capital of Japan?' | leap generate -",
        r"'My name is Ada.\n",
    ):
        assert line in done.stdout
    assert not [line for line in done.stdout.splitlines() if len(line) > 100 and "leap" not in line]


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_gives_no_warning(tmp_path):
    install(manual(), tmp_path)
    command = ["mandoc", "-Tlint", "-Wwarning", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


@pytest.mark.slow
def test_the_pages_are_printed_and_installed(leap, tmp_path):
    assert leap("help", "--man").stdout == manual()["leap.1"]
    assert leap("help", "--man", "jobs").stdout == manual()["leap-jobs.1"]
    wrong = leap("help", "--man", "jbos")
    assert wrong.code == 2 and "jobs" in wrong.stderr and wrong.stderr.count("\n") == 1
    leap.variables |= {"HOME": str(tmp_path / "user"), "PATH": "/usr/bin"}
    directory = tmp_path / "user" / ".local" / "share" / "man" / "man1"
    for again in (False, True):
        done = leap("help", "--install-man")
        assert (done.code, done.stdout) == (0, f"{directory}\n") and f"man -M {directory.parent} leap" in done.stderr
        assert {path.name: path.read_text() for path in directory.iterdir()} == manual(), again
        (directory / "leap-gone.1").write_text(manual()["leap-jobs.1"])
    (directory / "leap-mine.1").write_text("another's\n")
    leap.variables["PATH"] = str(tmp_path / "user" / ".local" / "bin")
    done = leap("help", "--install-man")
    assert "man leap" in done.stderr and "-M" not in done.stderr
    assert {path.name for path in directory.iterdir()} == {*manual(), "leap-mine.1"}


@pytest.mark.skipif(shutil.which("man") is None or sys.platform == "win32", reason="man is not installed")
def test_man_finds_an_installed_page(leap, tmp_path):
    leap.variables["XDG_DATA_HOME"] = str(tmp_path)
    manual = Path(leap("help", "--install-man").stdout.strip()).parent
    found = subprocess.run(
        ["man", "-M", str(manual), "-w", "leap-generate"], capture_output=True, text=True, timeout=60, check=True
    )
    assert Path(found.stdout.strip()) == manual / "man1" / "leap-generate.1"


def test_an_unwritable_location_is_a_one_line_error(leap, tmp_path):
    (tmp_path / "file").write_text("")
    leap.variables["XDG_DATA_HOME"] = str(tmp_path / "file")
    done = leap("help", "--install-man")
    assert done.code == 1 and done.stderr.count("\n") == 1 and "leap help --man COMMAND prints a page" in done.stderr
