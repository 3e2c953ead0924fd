"""From bytes to text: whole characters, reasoning apart, stop strings; split anywhere, the result is the same."""

from __future__ import annotations

import pytest

from leap_core.inference.template.reply import ReasoningSplitter, StopStrings, utf8_decoder


def joined(pieces: list[tuple[str, str]]) -> dict[str, str]:
    found = {"text": "", "reasoning": ""}
    for kind, text in pieces:
        found[kind] += text
    return found


@pytest.mark.parametrize("text", ["plain", "naïve – 日本語 🎉", "👩‍👩‍👧"])
def test_characters_are_delivered_complete(text: str) -> None:
    raw = text.encode()
    for size in (1, 2, 3):
        decoder = utf8_decoder()
        pieces = [decoder.decode(raw[n : n + size]) for n in range(0, len(raw), size)]
        assert "".join(pieces) == text
        assert "\ufffd" not in "".join(pieces)


def test_invalid_utf8_becomes_a_replacement_character() -> None:
    decoder = utf8_decoder()
    assert decoder.decode(b"a\xff") == "a\ufffd"
    assert decoder.decode("é".encode()[:1]) == "", "it is not whole yet"


CASES = [
    ("no tags at all", False, {"text": "no tags at all", "reasoning": ""}),
    ("<think>hm</think>yes", False, {"text": "yes", "reasoning": "hm"}),
    ("<think>\nhm\n</think>\n\nyes", False, {"text": "yes", "reasoning": "hm\n"}),
    ("hm</think>yes", True, {"text": "yes", "reasoning": "hm"}),
    ("a <thinking> b", False, {"text": "a <thinking> b", "reasoning": ""}),
    ("a < b and <th", False, {"text": "a < b and <th", "reasoning": ""}),
    ("<think>never closed", False, {"text": "", "reasoning": "never closed"}),
    ("<think></think>x", False, {"text": "x", "reasoning": ""}),
    ("one<think>r</think>two<think>s</think>three", False, {"text": "onetwothree", "reasoning": "rs"}),
]


@pytest.mark.parametrize(("text", "inside", "expected"), CASES, ids=[case[0] for case in CASES])
def test_reasoning_is_separated_wherever_the_pieces_break(text: str, inside: bool, expected: dict[str, str]) -> None:
    for cut in range(len(text) + 1):
        splitter = ReasoningSplitter(inside=inside)
        pieces = [*splitter.feed(text[:cut]), *splitter.feed(text[cut:]), *splitter.finish()]
        assert joined(pieces) == expected
    single = ReasoningSplitter(inside=inside)
    assert joined([*(piece for char in text for piece in single.feed(char)), *single.finish()]) == expected


def test_a_quoted_tag_is_text():
    splitter = ReasoningSplitter()
    pieces = [*splitter.feed('f("<think>', lambda: True), *splitter.feed('")<think>why</think>', lambda: False)]
    assert joined(pieces) == {"text": 'f("<think>")', "reasoning": "why"}


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("hello world", ["wor"], "hello "),
        ("hello world", ["xyz"], "hello world"),
        ("aab", ["ab", "b"], "a"),
        ("one\n\ntwo", ["\n\n"], "one"),
        ("ab", ["abc"], "ab"),
        ("stop", ["stop"], ""),
        ("xabcd", ["abcd", "bc"], "xa"),
    ],
)
def test_the_text_ends_before_the_first_stop_string(text: str, stops: list[str], expected: str) -> None:
    for cut in range(len(text) + 1):
        stopper = StopStrings(stops)
        found = stopper.feed(text[:cut]) + stopper.feed(text[cut:])
        if not stopper.met:
            found += stopper.finish()
        assert found == expected
        assert (stopper.met is not None) == (expected != text)
