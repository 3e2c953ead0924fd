"""A call that is only quoted is text, in every format and however the reply arrives; one beside a quotation is made."""

from __future__ import annotations

import random

import pytest

from leap_core.conversation.calls import LeapFunctionCall, parser_named
from leap_core.conversation.calls.quotes import LONGEST_PREFIX, PART, Quotes
from scripts.torture_calls import MARKERLESS, PARSER_NAMES, QUOTATIONS, outcome, quoted_reply, random_pieces

from ...support.lengths import lengths, usually
from ...support.tables import check_each

NAMES = [name for name in PARSER_NAMES if name not in MARKERLESS]
EACH = pytest.mark.parametrize("name", usually(["lfm", "hermes", *NAMES[::5]], NAMES))
CALL = LeapFunctionCall("f", {"a": "it is", "n": 1})
MADE = ("f", {"a": "it is", "n": 1})
BEFORE_CALLS = [
    *(
        "I look it up. ",
        "Done.\n\n",
        "It's 5\" long: ",
        "The user's file, the dogs' food. ",
        'Search "Oslo" now: ',
        "> cited\n\n",
    ),
    *(
        "Use `f`.\n",
        "Like ``this``: ",
        "```\ncode\n```\n",
        '```python\ns = "```"\n```\n',
        "See:\n````\n```\n````  \n",
        "Use ```x``` here: ",
        "- item\n\n  ```\n  code\n  ```\n",
        "> ```\n> code\n\n",
        "> ```\n> code\n> ```\n\n",
        "~~~\n```\n~~~\n",
        "So:\n\n    code\n\n",
        "« oui »\n",
        "„Ja“, ‚ja‘: ",
    ),
    *("`not closed\n\n", '"not closed\n', "a ```` b ```` ", "- item\n- item\n", "5 > 3: ", "‘70s’ "),
    *("Say ‘it’s’ or 'don't': ", "Get 'em: ", "“a\n\n", "The dogs’ food, it’s there: "),
]
"""Texts after which a call is made."""


def letters(text: str) -> list[list[str]]:
    return [[text], list(text)]


@EACH
def test_a_quoted_call_is_text(name: str):
    written = parser_named(name).dump([CALL])

    def check(quotation: str) -> None:
        text = quotation.replace("{}", written)
        for pieces in letters(text):
            assert not any(isinstance(each, tuple) for each in outcome(name, pieces))
            if "\n" not in written or "    " not in quotation:
                assert outcome(name, pieces) == [text, []]

    check_each([each for each in QUOTATIONS if "> " not in each], check, repr)


@EACH
def test_a_call_after_a_quotation_is_read(name: str):
    written = parser_named(name).dump([CALL])

    def check(before: str) -> None:
        for pieces in letters(before + written):
            assert outcome(name, pieces) == [before, MADE, []]

    check_each(BEFORE_CALLS, check, repr)


@EACH
def test_a_call_after_a_quoted_one_is_read(name: str):
    if "```" in parser_named(name).start_marker:
        return  # a quoted marker that opens a code block quotes what follows
    written = parser_named(name).dump([CALL])

    def check(quotation: str) -> None:
        start = parser_named(name).start_marker
        for before in (quotation.replace("{}", written), quotation.replace("{}", start)):
            for pieces in letters(f"{before}\n\n{written}"):
                assert outcome(name, pieces) == [f"{before}\n\n", MADE, []]

    check_each([each for each in QUOTATIONS if "\n" not in each], check, repr)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@lengths(40, 2000, "count")
def test_no_quoted_call_is_read_in_any_pieces(name: str, count: int):
    draw = random.Random(name)

    def check(text: str) -> None:
        assert outcome(name, random_pieces(draw, text)) == [text, []]

    check_each([quoted_reply(draw, name) for _ in range(count)], check, repr)


def test_a_quoted_tag_of_reasoning_is_text():
    for pieces in letters("Models write `<think>` and\n```\n<think>\n```\nbefore they answer."):
        assert outcome("hermes", pieces) == ["".join(pieces), []]


@pytest.mark.parametrize("part", ["`", "``a", "~", '"', "'a", "> ", "\n", "    a\n", "```\n", "«", "<"])
def test_endless_text_is_scanned_once(part: str):
    """The parts that the text is cut into are as many whole as in pieces, and each is looked at once."""
    text = part * 200
    whole, pieces = Quotes(), Quotes()
    whole.add(text)
    for char in text:
        pieces.add(char)
    assert whole.are_open == pieces.are_open
    assert sum(map(len, PART.findall(text))) == len(text)
    assert max(len(value) for value in vars(pieces).values() if isinstance(value, str)) <= LONGEST_PREFIX + 1
