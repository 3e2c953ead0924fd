"""Citations that an answer gets by its words and numbers."""

from __future__ import annotations

import random

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import Chunk, Complete, GenerationFinishReason
from leap_core.conversation.streams import last_of
from leap_core.tasks.search.citing import MOST_PENDING, UNSUPPORTED, Citations, CitedStream
from leap_core.tasks.search.index_file import Passage
from leap_core.tasks.search.searching import Hit, Source

QUESTION = "What colour are bananas?"
PASSAGES = {
    1: "Fruit > Bananas\nBananas are yellow.",
    2: "Fruit > Apples\nApples are red. They cost 5,000 euros. Mr. Sato sells them.",
    3: "Accounting\nThe head of Accounting is Ann Lindberg.",
}
CASES = {
    "Yellow.": "Yellow [1].",
    "They are yellow [1]": "They are yellow [1]",
    "Yellow. [1] Apples are red [1].": "Yellow. [1] Apples are red [2].",
    "Apples are sold by Mr. Sato for 5000 euros.\nParis is in France.": (
        "Apples are sold by Mr. Sato for 5000 euros [2].\nParis is in France."
    ),
    "They cost 6000 euros.": "They cost 6000 euros.",
    "The head is Tom Becker.": "The head is Tom Becker.",
    "- yellow\n- red\n": "- yellow [1]\n- red [2]\n",
    "`a[1]` is code": "`a[1]` is code",
    "```\nyellow [1]\n```\nYellow": "```\nyellow [1]\n```\nYellow [1]",
    "Here is what is yellow:\nBananas": "Here is what is yellow:\nBananas [1]",
    "Yellow[1]. Red [2, 1].": "Yellow[1]. Red [2].",
    "| yellow | red |": "| yellow | red |",
    "": "",
    "Mr. Sato sells red apples.": "Mr. Sato sells red apples [2].",
    "1. Bananas are yellow.\n2. Apples are red.": "1. Bananas are yellow [1].\n2. Apples are red [2].",
    "_Yellow._ Red": "_Yellow [1]._ Red [2]",
    "yellow\u3002\u3002 [1]\nred\u3002[1] [2]": "yellow\u3002\u3002 [1]\nred\u3002[2]",
    "Yellow.\n[1] Red.\n    [1]\n": "Yellow [1].\n Red [2].\n    [1]\n",
    "arr[1] = 2": "arr[1] = 2",
    "arr [1] = 2 and [1]= 3": "arr [1] = 2 and [1]= 3",
    "x = a[1] + b[2]": "x = a[1] + b[2]",
    "Link: [1](http://x) here.": "Link: [1](http://x) here.",
    "[1]: http://x": "[1]: http://x",
    "Blue as in [12] or [1, 7].": "Blue as in [12] or.",
    "Red[1], yellow (see `a[1]`).": "Red[1], yellow (see `a[1]`).",
    "Then:\n\n    print [1]\n    yellow\n    - yellow\n": "Then:\n\n    print [1]\n    yellow\n    - yellow [1]\n",
    "````py\nx [1]\n```\nyellow [1]. Red\n````\nRed": "````py\nx [1]\n```\nyellow [1]. Red\n````\nRed [2]",
    "The ` is blue.\nYellow.": "The ` is blue.\nYellow [1].",
    "`a. Yellow`. Red": "`a. Yellow` [1]. Red [2]",
}


@pytest.mark.parametrize("answer", CASES)
def test_each_sentence_gets_the_passage_that_says_it(answer: str) -> None:
    assert Citations(QUESTION, PASSAGES).cited(answer) == CASES[answer]


def test_of_passages_that_say_the_same_the_one_that_is_asked_about_is_cited() -> None:
    passages = {1: "Purchasing\nIt is led by Ann Lindberg.", 2: "Accounting\nIt is led by Ann Lindberg."}
    assert Citations("Who leads Accounting?", passages).cited("Ann Lindberg.") == "Ann Lindberg [2]."


class Answer:
    """A stream of these pieces."""

    def __init__(self, pieces: list[str]) -> None:
        whole = ChatMessage("assistant", "".join(pieces))
        self._responses = iter([*map(Chunk, pieces), Complete(whole, GenerationFinishReason.STOP)])

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._responses)

    def stop(self) -> None: ...

    def close(self) -> None: ...


def cited_stream(pieces: list[str]) -> CitedStream:
    passages = {n: Passage(n, "a.md", "text", 1, 1, *text.split("\n")) for n, text in PASSAGES.items()}
    return CitedStream(Answer(pieces), QUESTION, [Source(n, Hit(each, 1.0, 1, 1)) for n, each in passages.items()])


def check_pieces(answer: str, cuts: list[int], right: str) -> None:
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    shown: list[str] = []
    complete = last_of(cited_stream(pieces), shown.append)
    assert complete.full_message.text == "".join(shown) == right, pieces
    assert "" not in shown
    assert (complete.warnings == ()) == Citations(QUESTION, PASSAGES).checked(answer)[1]


@pytest.mark.parametrize("answer", CASES)
def test_a_stream_in_any_pieces_has_the_text_of_the_whole(answer: str) -> None:
    for cut in range(len(answer) + 1):
        check_pieces(answer, [cut], CASES[answer])
    check_pieces(answer, list(range(1, len(answer))), CASES[answer])
    draw = random.Random(answer)
    for _ in range(4):
        cuts = draw.sample(range(len(answer) + 1), min(len(answer), draw.randint(0, 12)))
        check_pieces(answer, sorted(cuts), CASES[answer])


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_of_mixed_signs_has_the_text_of_the_whole(seed: int) -> None:
    draw = random.Random(seed)
    signs = [
        *"`.:_ \n\t[]()=#|*3A\u3002",
        " ",
        ". ",
        "\n",
        "    ",
        "```",
        "[1]",
        " [2]",
        "[1, 3]",
        "Mr",
        "yellow ",
        "Red",
    ]
    for _ in range(100):
        answer = "".join(draw.choices(signs, k=draw.randint(1, 30)))
        right = Citations(QUESTION, PASSAGES).cited(answer)
        check_pieces(answer, list(range(1, len(answer))), right)
        check_pieces(answer, sorted(draw.sample(range(len(answer) + 1), min(len(answer), 3))), right)


@pytest.mark.parametrize("distance", [-60, -20, 0, 20, 60])
def test_a_marker_in_a_very_long_sentence_is_the_same_in_pieces(distance: int) -> None:
    answer = f"Red [1]{' x' * ((MOST_PENDING + distance) // 2)}. Yellow"
    right = Citations(QUESTION, PASSAGES).cited(answer)
    assert ("Red [1]" in right) == (distance > -40)
    for step in (17, 1000):
        check_pieces(answer, list(range(step, len(answer), step)), right)


def test_an_answer_that_no_passage_supports_has_a_warning() -> None:
    assert last_of(cited_stream(["Blue."])).warnings == (UNSUPPORTED,)
    assert last_of(cited_stream(["Yellow."])).warnings == ()
    assert last_of(CitedStream(Answer(["Blue."]), QUESTION, [])).warnings == ()
    for no_citation in ("`a[1]` is code.", "```\nyellow [1]\n```\n", "x = a[1] + b[2]", "[1](http://x) is blue."):
        assert last_of(cited_stream([no_citation])).warnings == (UNSUPPORTED,)


@pytest.mark.parametrize("piece", ["a. ", " ", ".", "[", "yellow [1]", "x", "1.", "\n", "[1, 2", "`"])
def test_a_hostile_answer_takes_no_time_that_grows_with_its_square(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    Citations(QUESTION, PASSAGES).cited(text)  # would take minutes
    last_of(cited_stream(list(text[:1000])))
