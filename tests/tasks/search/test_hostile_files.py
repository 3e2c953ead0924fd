"""Files that were made to stop an index, or came about so: each is read, or left out with its reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leap_core.documents.blocks import TextLine
from leap_core.documents.reading import read_document
from leap_core.tasks.search.chunking import LONGEST_LINE, cut
from tests.documents.here import read_here
from tests.support.growth import check_growth

LINES = ["\n", " \n", "# a\n", "a\n\n", "```\n", "a b. ", "# a # ", "x", "\t", "- x\n"]


def lines_of(page: str) -> list[str]:
    return [line.text for line in read_here("html", page.encode()).lines if line.text]


@pytest.mark.slow
@pytest.mark.parametrize("unit", LINES)
def test_hostile_files_take_linear_time(unit):
    """400 kB took minutes."""

    def cut_text(length: int) -> None:
        lines = (unit * (length // len(unit))).split("\n")
        cut("markdown", [TextLine(n, line) for n, line in enumerate(lines, 1)])

    check_growth(cut_text, 200_000)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("a <![<![x> b", ["a b"]),
        ("<p>one<p>two <b>bold</b>", ["one", "two bold"]),
        ("<a title='x>y' href=\"a'b\">link</a> end", ["link end"]),
        ("<head><title>no</title><body>yes", ["yes"]),
        ("<script>if (a</b>c) x</script>shown", ["shown"]),
        ("1 < 2 &amp; 3 &lt; 4 &#" + "9" * 5000 + ";", ["1 < 2 & 3 < 4 \ufffd"]),
        ("<!-- a > b --> c <!-- open", ["c"]),
        ('<h2>Title</h2>text <a href="open>gone', ["## Title", "text gone"]),
        ("<textarea><b>raw</textarea>", ["<b>raw"]),
    ],
)
def test_what_is_text_in_a_page(page, words):
    assert lines_of(page) == words


def test_markup_within_a_word_or_a_number_does_not_cut_it():
    page = "<p>J<i>o</i>hn is <b>1</b>9<!-- -->, pays $<span>12</span>.<span>50</span>10<sup>th</sup></p>"
    page += "<p><a>Home</a><a>About</a><td>Ann</td><td>31</td><del>3</del><ins>4</ins>"
    page += "<i></i>&#0;<a>&#1;</a><b>&nbsp;</b></p>"
    assert lines_of(page) == ["John is 19, pays $12.50 10 th", "Home About Ann 31 3 4 \ufffd"]


def test_a_long_heading_is_text():
    (chunk,) = cut("markdown", [TextLine(1, "# " + "word " * 100)])
    assert chunk.text.startswith("# word word")


def test_a_long_line_is_cut_however_few_words_it_has():
    chunks = cut("text", [TextLine(1, "x" * (3 * LONGEST_LINE))])
    assert sum(len(chunk.text.replace("\n", "")) for chunk in chunks) == 3 * LONGEST_LINE


def test_links_to_themselves_and_out_of_the_directory_are_left_out(folder, update, tmp_path):
    secret = tmp_path / "secret.md"
    secret.write_text("The password is swordfish.")
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "out.md").symlink_to(secret)
    (folder / "gone.md").symlink_to("nowhere.md")
    (folder / "within.md").symlink_to("fruit.md")
    (folder / "up").symlink_to(tmp_path)
    done = update()
    assert done.added == 5
    assert {Path(path).name: "outside" in reason for path, reason in done.skipped.items()} == {
        "loop.md": False,
        "out.md": True,
    }


def test_a_link_that_is_named_is_read(folder, tmp_path):
    from leap_core.tasks.search.updating import files_below

    (tmp_path / "named.md").symlink_to(folder / "fruit.md")
    (path,) = files_below([tmp_path / "named.md"])
    assert read_document(path).kind == "markdown" and not os.path.isdir(path)
