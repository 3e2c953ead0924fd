"""Pages of HTML and XHTML as blocks."""

from __future__ import annotations

import pytest

from leap_core.documents.blocks import TABLE, TextLine
from tests.support.growth import check_growth

from .here import read_here


def lines_of(page: str) -> list[str]:
    return [line.text for line in read_here("html", page.encode()).lines]


PAGES = [
    ("<table><tr><th>A</th><th><p>B</p></th></tr><tr><td></td><td>2</td></tr></table>c", ["A | B", " | 2", "", "c"]),
    ("<ul><li>a<ul><li>b</ul><li><p>c</ul><ol start=3><li>d</ol>e", ["- a", "  - b", "- c", "3. d", "", "e"]),
    ("<pre>def f():\n    <b>return</b> 1\n</pre>", ["```", "def f():", "    return 1", "```"]),
    ("<table><tr><td><p>One.</p><p>Two.</p></td><td>side</td></tr></table>", ["One. Two. | side"]),
    ("<table><tr><td><h1>t</h1><ol><li>x</ol></td></tr></table>", ["# t", "", "1. x"]),
    ("<table><tr><td><table><tr><td>a<td>b</table><tr><td>1<td>2</table>", ["a | b", "", "1 | 2"]),
    ("a <code>57u8</code>, (<kbd>x</kbd>) 2<sup>7</sup>", ["a 57u8, (x) 2^7"]),
    ("<h2></h2><p>text</p><li>no list</li>", ["text", "", "no list"]),
    ("one<br>two<br/>three", ["one", "two", "three"]),
    ("<p hidden>no<p>yes<div style='display: none'>no<div>no</div></div>too", ["yes", "", "too"]),
    ("a\u00adb <img alt='A chart'> c <img alt=''>", ["ab [picture: A chart] c"]),
    ("<math><msup><mi>x</mi><mn>2</mn></msup></math> and <math alttext='a^2'/>", ["[equation: x 2] and"]),
    ("<math><semantics><mi>E</mi><annotation encoding='application/x-tex'>E=mc^2</annotation></math>", ["$E=mc^2$"]),
    ("a <![<![x> b", ["a b"]),
    ("<p>one<p>two <b>bold</b>", ["one", "", "two bold"]),
    ("<a title='x>y' href=\"a'b\">link</a> end", ["link end"]),
    ("<head><title>no</title><body>yes", ["yes"]),
    ("<script>if (a</b>c) x</script>shown", ["shown"]),
    ("1 < 2 &amp; 3 &lt; 4 &#" + "9" * 5000 + ";", ["1 < 2 & 3 < 4 \ufffd"]),
    ("<!-- a > b --> c <!-- open", ["c"]),
    ('<h2>Title</h2>text <a href="open>gone', ["## Title", "", "text gone"]),
    ("<textarea><b>raw</textarea>", ["<b>raw"]),
    ("<p><a>Home</a><a>About</a><td>Ann</td><td>31</td></p>", ["Home About Ann 31"]),
    ("<p>J<i>o</i>hn is <b>1</b>9<!-- -->, $<span>12</span>.<span>50</span></p>", ["John is 19, $12.50"]),
]


@pytest.mark.parametrize(("page", "lines"), PAGES)
def test_html_elements_become_blocks(page, lines):
    assert lines_of(page) == lines


MERGED = [
    (
        "<table><tr><th>Region<th>City<th>N</tr><tr><td rowspan=2>North<td>Kiel<td>3</tr>"
        "<tr><td>Bremen<td>5</tr><tr><td colspan=2>Total<td>8</tr></table>",
        [("Region", "City", "N"), ("North", "Kiel", "3"), ("North", "Bremen", "5"), ("Total", "Total", "8")],
    ),
    (
        "<table><tr><td>a<td rowspan=2 colspan=2>b<td>c<tr><td>d<td>e<tr><td>f<td>g<td>h<td>i</table>",
        [("a", "b", "b", "c"), ("d", "b", "b", "e"), ("f", "g", "h", "i")],
    ),
    ("<table><tr><td colspan=2>Title<tr><td>a<td>b</table>", [("Title",), ("a", "b")]),
    ("<table><tr><td>a<td rowspan=2>b<tr><td>c</table>", [("a", "b"), ("c", "b")]),
]


@pytest.mark.parametrize(("page", "rows"), MERGED)
def test_merged_cells_keep_the_columns(page, rows):
    (block,) = read_here("html", page.encode()).sections[0].blocks
    assert (block.kind, block.rows) == (TABLE, tuple(rows))


@pytest.mark.parametrize("empty", ["<title/>", "<script/>", "<style/>", "<svg/>", "<div hidden='hidden'/>"])
def test_elements_of_xhtml_that_close_themselves_hide_nothing(empty):
    page = f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head>{empty}</head><body>{empty}<p>Two'
    assert lines_of(page + "</p><p><![CDATA[ <three> ]]></p></body></html>") == ["Two", "", "<three>"]


def test_a_title_without_an_end_hides_nothing():
    assert lines_of("<title/><p>Words.</p>") == ["Words."]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("<meta charset=windows-1251><p>Привет".encode("cp1251"), "Привет"),
        ("<meta charset=shift_jis><p>東京①".encode("cp932"), "東京①"),
        ("<meta charset=utf-16><p>Zoë".encode(), "Zoë"),
        ("<meta charset=ascii><p>Zoë".encode(), "Zoë"),
        ("<p>Grüße aus Köln".encode("cp1252"), "Grüße aus Köln"),
        ('<?xml version="1.0" encoding="koi8-r"?><p>Привет</p>'.encode("koi8-r"), "Привет"),
        ("<p>Zoë".encode("utf-16"), "Zoë"),
    ],
)
def test_charsets_of_html(data, text):
    assert read_here("html", data).text == text


def test_lines_have_the_numbers_of_the_file():
    document = read_here("html", b"<p>one\n<p>\n\n two\nthree<!-- \n\n --><p>four<table>\n<tr><td>five</table>")
    assert [line for line in document.lines if line.text] == [
        TextLine(1, "one"),
        TextLine(4, "two three"),
        TextLine(7, "four"),
        TextLine(8, "five"),
    ]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (b"<nav>Home</nav><main><p>Words.</p></main><footer>2026</footer>", "Words."),
        (b"<nav>Home</nav><article>Words.</article>", "Words."),
        (b"<article>One.</article><article>Two.</article>", "One.\n\nTwo."),
        (b"<main></main><p>Words.</p>", "Words."),
    ],
)
def test_the_main_part_of_a_page_is_read(page, text):
    assert read_here("html", page, main_only=True).text == text


UNITS = [
    *(
        '<a b="',
        "<a b='c\"",
        '<a b= "',
        "<!--",
        "<![<![x",
        "<a\n",
        "<",
        "</template",
        "<svg><template></svg>",
        "<script",
    ),
    *(
        "</script ",
        "<title>",
        "<title/>",
        "&#1234567890",
        "<p>x</p>\n",
        "<math>",
        "<math><annotation tex ",
        "<div hidden>",
    ),
    *("<table><tr><td>", "<td>x", "<tr><td colspan=1000>", "<table><tr><td rowspan=60000>x", "<ul><li>", "x<br>"),
]


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_hostile_html_takes_linear_time(unit):
    """What is quadratic takes many times as long."""
    check_growth(lambda size: read_here("html", b"<table><tr>" + (unit * (size // len(unit))).encode()), 48_000)
