"""Lines broken between words, tables that fit, the same however text is cut into pieces."""

from __future__ import annotations

import re

import pytest

from leap_cli.answers.markdown import MarkdownStream
from leap_cli.framework.output import table_lines
from leap_cli.framework.wrapping import WordWrap, columns, fitted_cell, fitting_widths, wrapped

TEXT = (
    "The quick brown fox jumps over the lazy dog and runs.\n\n- an item that is long enough to be wrapped here\n"
    "日本語のとても長い文章がここにあります。改行されますか\n10. a numbered thing to say at some length\n"
    "https://example.org/a/very/long/address/that/fits/no/line\n-5 degrees below zero in the north of it\n"
)
WRAPPED = """The quick brown fox
jumps over the lazy dog
and runs.

- an item that is long
  enough to be wrapped
  here
日本語のとても長い文章が
ここにあります。改行され
ますか
10. a numbered thing to
    say at some length
https://example.org/a/very/long/address/that/fits/no/line
-5 degrees below zero in
the north of it
"""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_words_are_not_broken_however_the_text_is_cut(size):
    wrap = WordWrap(24)
    pieces = [TEXT[start : start + size] for start in range(0, len(TEXT), size)]
    assert "".join(map(wrap.feed, pieces)) + wrap.end() == WRAPPED


def test_markdown_is_wrapped_but_not_its_code():
    text = "Some **bold words that go on** and on.\n```\nprint('a line of code that is long')\n```\nand so on it goes\n"
    stream = MarkdownStream(20)
    shown = "".join(stream.feed(char) for char in text) + stream.end()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).split("\n")
    assert [line for line in lines if len(line) > 20] == ["print('a line of code that is long')"]


def test_an_indented_line_keeps_its_indent():
    assert wrapped("leap: error: a b c dd", 14, "  ") == "leap: error: a\n  b c dd"


@pytest.mark.parametrize(
    ("widths", "width", "fitted"),
    [
        ([12, 30, 60, 5], 80, [12, 28, 28, 5]),
        ([12, 30, 60, 5, 9], 40, [9, 9, 9, 5]),
        ([3, 4], 80, [3, 4]),
        ([100], 40, [40]),
    ],
)
def test_tables_fit_the_terminal(widths, width, fitted):
    assert fitting_widths(widths, width) == fitted
    assert sum(fitted) + 2 * (len(fitted) - 1) <= width


def test_a_shortened_cell_ends_with_an_ellipsis():
    cells = [fitted_cell("abcdefgh", 5), fitted_cell("日本語", 5), fitted_cell("ab", 4), fitted_cell("日本語", 4)]
    assert cells == ["abcd…", "日本…", "ab  ", "日… "]


def test_a_table_in_a_narrow_terminal_names_omitted_columns(leap, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    done = leap("models", "catalogue", terminal=True)
    assert done.code == 0 and max(map(columns, done.stdout.splitlines())) <= 40
    assert "not shown for lack of space: " in " ".join(done.stderr.split())


def test_answers_notes_and_errors_are_wrapped_at_a_terminal_only(leap, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    long = "one two three four five six seven eight nine ten eleven twelve"
    leap.script(long)
    done = leap("generate", "--think", "hide", "x", terminal=True)
    assert done.stdout.split() == long.split() and max(map(columns, done.stdout.splitlines())) <= 30
    leap.script(long)
    assert leap("generate", "x").stdout == f"{long}\n"
    done = leap("jobs", "wait", "--timeout", "30", terminal=True)
    assert done.code == 2 and max(map(columns, done.stderr.splitlines())) <= 30


def test_the_last_column_of_a_table_is_wrapped():
    record = {"name": "a", "detail": "some words and /a/path/without/any/space"}
    lines, _ = table_lines([record], ["name", "detail"], 20, whole=True, wraps=True)
    assert max(map(len, lines)) <= 20 and lines[1].startswith("a     some words")
    assert "".join(line[6:] for line in lines[1:]).replace(" ", "") == record["detail"].replace(" ", "")
