"""Docs, help, errors and docstrings use the terms of the field, in short sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from leap_cli.command_table import command_line
from leap_cli.framework.click_classes import LeapCommand
from tests.cli.test_help_search import STANDARD

ROOT = Path(__file__).parent.parent
PRIVATE = re.compile(
    r"\b(rooms?|doors?|shapes?|shaped|pictures? and sounds?|elsewhere|hears?|heard|hearing|tells|told|telling|stands?|"
    r"stood|standing|(?:go|goes|going|went|gone) on|(?:is|are) none of|wish(?:es)?|wished|rungs?)\b",
    re.IGNORECASE,
)
"""Words of leap's former idiom: use structured output, image, audio, remote, continue, means, step and the like."""
RIGHT = re.compile(
    r"(has|have|of|claims)( the)? shape\b|\bshapes? [\[(]|float32, shape\b|shapes, its notes", re.IGNORECASE
)
"""Right uses: the shape of a tensor, and the shapes of a slide."""
OLD_DOCSTRINGS = {"leap_cli": 10, "leap_core": 83, "jobs": 5}
"""Private words that are left in docstrings. These numbers only get smaller."""
TEXT = re.compile(r'f?"((?:[^"\\\n]|\\.)*)"')
RAISED = re.compile(rf"raise [\w.]+\((?:\s*(?:{TEXT.pattern.replace('((', '(?:(', 1)}|[\w.]+=?|,))+")
DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
LONGEST = 35
"""Words of a sentence."""


def private_words(text: str) -> list[str]:
    return [match[0] for match in PRIVATE.finditer(RIGHT.sub("", text))]


def long_sentences(text: str) -> list[str]:
    text = re.sub(r"\bNames: [a-z0-9, -]+\.", "", text)  # a list, not a sentence
    sentences = (each for paragraph in text.split("\n\n") for each in re.split(r"(?<=[.!?])\s+", paragraph))
    return [each for each in sentences if len(each.split()) > LONGEST]


def prose(page: Path) -> str:
    """The page without code, tables, headings and the targets of links; an item of a list is a paragraph."""
    text = re.sub(r"^```(?s:.*?)^```$|^\|.*$|^#.*$", "", page.read_text("utf-8"), flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "`x`", text))
    return re.sub(r"^\s*([-*]|\d+\.) ", "\n", text, flags=re.MULTILINE)


PAGES = {path.stem: path for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_in_plain_words(name):
    assert len(prose(PAGES[name]).split()) > 80
    assert private_words(prose(PAGES[name])) == []
    assert long_sentences(prose(PAGES[name])) == []


def helps(command: click.Command, path: str = "leap") -> Iterator[tuple[str, str]]:
    """Each text of help, with the command and option that it is of."""
    assert isinstance(command, LeapCommand)
    yield path, command.help or ""
    yield path, command.short_help or ""
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            yield f"{path} {max(option.opts, key=len)}", option.help or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from helps(member, f"{path} {name}")


def test_help_is_in_plain_words():
    texts = [*helps(command_line), *((f"leap {name}", each.summary) for name, each in command_line.table.items())]
    assert len(texts) > 1000
    assert [(path, words) for path, text in texts if (words := private_words(text))] == []
    assert [(path, long) for path, text in texts if (long := long_sentences(text))] == []


def sources(package: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")


@pytest.mark.parametrize("package", OLD_DOCSTRINGS)
def test_errors_are_in_plain_words(package):
    """The texts in ``raise`` statements: what is wrong, and the hint."""
    texts = [
        (path, text)
        for path, source in sources(package)
        for raised in RAISED.findall(source)
        for text in TEXT.findall(re.sub(r"\{[^{}]*\}", "…", raised))
    ]
    assert len(texts) > 50
    assert [each for each in texts if " " in each[1] and private_words(each[1])] == []


@pytest.mark.parametrize("package", OLD_DOCSTRINGS)
def test_docstrings_are_in_plain_words(package):
    found = [
        f"{path}: {word}"
        for path, source in sources(package)
        for docstring in DOCSTRING.findall(source)
        for word in private_words(docstring)
    ]
    assert len(found) <= OLD_DOCSTRINGS[package], found


def test_there_are_forty_standard_terms():
    """tests/cli/test_help_search.py checks that each leads to its page."""
    assert len(STANDARD) >= 40
