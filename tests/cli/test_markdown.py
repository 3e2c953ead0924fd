"""Markdown on a terminal, the same however the text is cut into pieces."""

from __future__ import annotations

import re

import pytest

from leap_cli.answers.markdown import BOLD, CODE, ITALIC, NOT_BOLD, NOT_CODE, NOT_ITALIC, MarkdownStream
from leap_cli.framework.output import DIM, PLAIN
from leap_core.conversation.responses import ReasoningChunk

CODES = {BOLD: "<b>", NOT_BOLD: "</b>", ITALIC: "<i>", NOT_ITALIC: "</i>", CODE: "<c>", NOT_CODE: "</c>"}


def shown(*pieces: str) -> str:
    stream = MarkdownStream()
    text = "".join(map(stream.feed, pieces)) + stream.end()
    for code, name in CODES.items():
        text = text.replace(code, name)
    assert "\x1b" not in text
    return re.sub("</c><c>", "", text)  # a line of code may come in pieces


CASES = {
    "plain text\n\n": "plain text\n\n",
    "a **bold** word": "a <b>bold</b> word",
    "an *italic* and _another_ one": "an <i>italic</i> and <i>another</i> one",
    "**with `code`**": "<b>with <c>code</c></b>",
    "call `f(*a, **b)` now": "call <c>f(*a, **b)</c> now",
    "``a ` b``": "<c>a ` b</c>",
    "# A **big** heading\nText": "<b>A big heading</b>\nText",
    "### Third": "<b>Third</b>",
    "#hashtag": "#hashtag",
    "- one\n* two\n  + three\n": "• one\n• two\n  • three\n",
    "1. first\n2. second": "1. first\n2. second",
    "```python\na = **b\n# no heading\n```\nafter": "<c>a = **b</c>\n<c># no heading</c>\nafter",
    "~~~\n```\n~~~\n": "<c>```</c>\n",
    "```\nnever closed": "<c>never closed</c>",
    "2 * 3 * 4 = 24 and 2*3*4": "2 * 3 * 4 = 24 and 2*3*4",
    "snake_case_name and __init__.py": "snake_case_name and __init__.py",
    "an **unclosed marker\nnext": "an **unclosed marker\nnext",
    "a lone ` and *": "a lone ` and *",
    "** not bold **": "** not bold **",
    "\\*no italics\\*": "*no italics*",
    "C:\\new\\": "C:\\new\\",
    "---\n": "---\n",
    "-5 degrees": "-5 degrees",
    "ends with **bold**": "ends with <b>bold</b>",
    "***": "***",
    "- ": "- ",
    "": "",
}


@pytest.mark.parametrize(("text", "expected"), CASES.items())
def test_markdown_looks_the_same_however_it_is_cut(text, expected):
    assert shown(text) == expected
    assert shown(*text) == expected, "character by character"
    for size in (2, 3, 5):
        assert shown(*(text[n : n + size] for n in range(0, len(text), size))) == expected


def test_text_is_shown_as_soon_as_it_is_decided():
    stream = MarkdownStream()
    assert stream.feed("Hello, ") == "Hello, "
    assert stream.feed("this is **bo") == "this is "
    assert stream.feed("ld** ") == f"{BOLD}bold{NOT_BOLD} "
    assert stream.feed("`x") == ""
    assert stream.feed("` y") == f"{CODE}x{NOT_CODE} y"


def test_a_marker_that_is_never_closed_does_not_hold_a_long_line_back():
    stream = MarkdownStream()
    stream.feed("**")
    text = "".join(stream.feed("word ") for _ in range(200))
    assert text.startswith("**word ") and text.count("word") == 200


def test_answers_are_rendered_on_a_terminal_only(leap):
    for arguments in (("chat", "-m", "some"), ("generate", "-m", "some", "x")):
        for terminal, expected in ((True, f"a {BOLD}word{NOT_BOLD}\n"), (False, "a **word**\n")):
            leap.script(["a **wo", "rd**"])
            done = leap(
                *arguments, stdin="x\n" if arguments[0] == "chat" else "", terminal=terminal, stdin_terminal=True
            )
            assert done.stdout == expected
    for variable, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        leap.variables = {variable: value}
        leap.script("a **word**")
        assert leap("generate", "-m", "some", "x", terminal=True).stdout == "a **word**\n"


def test_constrained_and_raw_answers_are_not_rendered(leap):
    leap.script("*a*")
    assert leap("generate", "-m", "some", "--regex", ".*", "x", terminal=True).stdout == "*a*\n"
    leap.script("*a*")
    assert leap("generate", "-m", "some", "--raw", "x", terminal=True).stdout == "*a*\n"


def test_control_characters_of_an_answer_stay_harmless(leap):
    leap.script("**\x1b]0;title\x07**")
    assert "\x1b]" not in leap("generate", "-m", "some", "x", terminal=True).stdout


def test_reasoning_is_dimmed_beside_the_answer(leap):
    leap.script([ReasoningChunk("*hm*"), "**well**"])
    done = leap("chat", "-m", "some", "--think", "show", stdin="x\n", terminal=True, stdin_terminal=True)
    assert f"{DIM}*hm*{PLAIN}" in done.stderr and done.stdout == f"{BOLD}well{NOT_BOLD}\n"
