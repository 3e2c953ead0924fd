"""Documents cut into chunks."""

from __future__ import annotations

import random

import pytest

from leap_core.documents.blocks import TextLine
from leap_core.documents.kinds import CODE, MARKDOWN, TEXT
from leap_core.tasks.search.chunking import LONGEST_TITLE, count_words, cut


def lines_of(text: str) -> list[TextLine]:
    return [TextLine(number, line) for number, line in enumerate(text.splitlines(), 1)]


def test_sections_become_chunks_with_their_titles() -> None:
    text = "# A\n\nfirst\n\n## B\n\nsecond\nthird\n\n# C\n\nfourth\n"
    chunks = cut(MARKDOWN, lines_of(text))
    assert [(c.heading, c.text, c.first, c.last) for c in chunks] == [
        ("A", "first", 3, 3),
        ("A > B", "second\nthird", 7, 8),
        ("C", "fourth", 12, 12),
    ]


def test_a_heading_in_a_fence_is_not_a_heading() -> None:
    (chunk,) = cut(MARKDOWN, lines_of("# A\n\n```sh\n# not a title\nls\n```\n"))
    assert "# not a title" in chunk.text


def test_a_heading_is_as_long_as_a_title_may_be() -> None:
    for length, heading in ((LONGEST_TITLE, "t" * LONGEST_TITLE), (LONGEST_TITLE + 1, "")):
        assert cut(MARKDOWN, lines_of(f"# {'t' * length}\n\ntext\n"))[-1].heading == heading


def test_code_has_no_headings() -> None:
    (chunk,) = cut(CODE, lines_of("# a comment\nx = 1\n"))
    assert chunk.heading == "" and chunk.text.startswith("# a comment")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_line_is_lost_and_no_chunk_too_large(seed: int) -> None:
    chance = random.Random(seed)
    lines = []
    for _ in range(chance.randrange(1, 300)):
        words = [f"w{chance.randrange(10**6)}" for _ in range(chance.choice((0, 1, 8, 20, 600)))]
        lines.append(" ".join(words))
    kind = chance.choice((TEXT, CODE))
    tokens, overlap = chance.choice(((64, 8), (256, 32), (40, 20), (64, 0)))
    chunks = cut(kind, lines_of("\n".join(lines)), tokens=tokens, overlap=overlap)
    assert all(sum(count_words(chunk.text.split("\n"))) <= tokens for chunk in chunks)
    found = {word for chunk in chunks for word in chunk.text.split()}
    assert found == {word for line in lines for word in line.split()}
    assert [chunk.first for chunk in chunks] == sorted(chunk.first for chunk in chunks)
    assert all(chunk.first <= chunk.last for chunk in chunks)


def test_neighbours_overlap() -> None:
    text = "\n".join(f"line {n} of many" for n in range(100))
    chunks = cut(TEXT, lines_of(text), tokens=64, overlap=16)
    assert all(after.first <= before.last for before, after in zip(chunks, chunks[1:], strict=False))


def test_paragraphs_stay_whole_where_they_can() -> None:
    text = "\n\n".join(" ".join(f"p{p}w{n}" for n in range(20)) for p in range(12))
    chunks = cut(TEXT, lines_of(text), tokens=64, overlap=0)
    for chunk in chunks:
        for paragraph in chunk.text.split("\n\n"):
            assert len(paragraph.split()) == 20


def test_text_without_spaces_is_cut_too() -> None:
    chunks = cut(TEXT, [TextLine(1, "日本語" * 3000)], count=lambda texts: [len(text) for text in texts], tokens=100)
    assert "".join(dict.fromkeys(chunk.text for chunk in chunks)) and all(len(c.text) <= 110 for c in chunks)
