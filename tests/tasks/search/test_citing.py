"""Citations that an answer gets by its words and numbers."""

from __future__ import annotations

import random

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import Chunk, Complete, GenerationFinishReason
from leap_core.conversation.streams import last_of
from leap_core.tasks.search.citing import UNSUPPORTED, Citations, CitedStream
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


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_in_any_pieces_has_the_text_of_the_whole(seed: int) -> None:
    draw = random.Random(seed)
    for answer, right in CASES.items():
        cuts = sorted(draw.sample(range(len(answer) + 1), min(len(answer), draw.randint(0, 12))))
        pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
        shown: list[str] = []
        complete = last_of(cited_stream(pieces), shown.append)
        assert complete.full_message.text == "".join(shown) == right
        assert "" not in shown


def test_an_answer_that_no_passage_supports_has_a_warning() -> None:
    assert last_of(cited_stream(["Blue."])).warnings == (UNSUPPORTED,)
    assert last_of(cited_stream(["Yellow."])).warnings == ()
    assert last_of(CitedStream(Answer(["Blue."]), QUESTION, [])).warnings == ()


@pytest.mark.parametrize("piece", ["a. ", " ", ".", "[", "yellow [1]", "x", "1.", "\n", "[1, 2", "`"])
def test_a_hostile_answer_takes_no_time_that_grows_with_its_square(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    Citations(QUESTION, PASSAGES).cited(text)  # would take minutes
