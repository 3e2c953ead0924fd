"""E-books, notebooks and RTF."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from leap_core.documents.blocks import TABLE, UnreadableDocumentError
from leap_core.documents.reading import read_document

from .here import read_here

XHTML = '<html xmlns="http://www.w3.org/1999/xhtml"><head>{}</head><body>{}</body></html>'


def book(
    chapters: dict[str, str | bytes], *, missing: tuple[str, ...] = (), more: dict[str, str] | None = None
) -> bytes:
    """A book of these files in their order; ``missing`` are in its spine only."""
    data = io.BytesIO()
    kinds = {"jpg": "image/jpeg", "xhtml": "application/xhtml+xml"}
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        root = '<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/>'
        space = "urn:oasis:names:tc:opendocument:xmlns:container"
        archive.writestr(
            "META-INF/container.xml", f'<container xmlns="{space}"><rootfiles>{root}</rootfiles></container>'
        )
        names = [*chapters, *missing]
        items = "".join(
            f'<item id="i{n}" href="{name}" media-type="{kinds[name.rpartition(".")[2]]}"/>'
            for n, name in enumerate(names)
        )
        items += '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
        spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(names)))
        archive.writestr(
            "OEBPS/content.opf",
            f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>',
        )
        for name, content in {**{f"OEBPS/{name}": text for name, text in chapters.items()}, **(more or {})}.items():
            archive.writestr(name, content)
    return data.getvalue()


def chapter(name: str, head: str = "") -> str:
    return XHTML.format(head, f"<h1>{name}</h1><p>Words of {name}.</p>")


def test_no_chapter_is_lost_to_an_empty_title():
    document = read_here(
        "epub", book({"a.xhtml": chapter("One"), "b.xhtml": chapter("Two", "<title/>"), "c.xhtml": chapter("Three")})
    )
    assert [section.title for section in document.sections] == ["One", "Two", "Three"]
    assert document.text == "".join(f"# {name}\n\nWords of {name}.\n\f" for name in ("One", "Two", "Three"))


def test_a_missing_chapter_is_reported_and_the_rest_is_read():
    document = read_here("epub", book({"a.xhtml": chapter("One")}, missing=("b.xhtml",)))
    assert document.text == "# One\n\nWords of One.\n\f[b.xhtml is missing from the book]\n\f"
    assert document.notes == ("chapter 2 of 2: b.xhtml is missing from the book",)


def test_an_image_in_the_spine_is_named():
    picture = bytes(range(256)) * 4
    document = read_here(
        "epub", book({"p.jpg": picture, "a.xhtml": chapter("One"), "c.xhtml": XHTML.format("", "<img/>")})
    )
    assert document.text == "[picture: p.jpg]\n\f# One\n\nWords of One.\n\f[picture: c.xhtml]\n\f"


LOCK = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData xmlns="http://www.w3.org/2001/04/'
    'xmlenc#"><EncryptionMethod Algorithm="{}"/><CipherData><CipherReference URI="OEBPS/{}"/></CipherData>'
    "</EncryptedData></encryption>"
)


def test_an_encrypted_book_is_refused_and_encrypted_fonts_do_not_matter():
    aes, fonts = "http://www.w3.org/2001/04/xmlenc#aes128-cbc", "http://www.idpf.org/2008/embedding"
    whole = {"a.xhtml": bytes(range(128, 256)) * 4}
    with pytest.raises(UnreadableDocumentError, match=r"a\.epub is protected \(DRM\): its text is encrypted"):
        read_document(book(whole, more={"META-INF/encryption.xml": LOCK.format(aes, "a.xhtml")}), "a.epub")
    part = book({**whole, "b.xhtml": chapter("Two")}, more={"META-INF/encryption.xml": LOCK.format(aes, "a.xhtml")})
    document = read_here("epub", part)
    assert "[a.xhtml is protected (DRM)]\n\f# Two" in document.text and len(document.notes) == 1
    free = book({"a.xhtml": chapter("One")}, more={"META-INF/encryption.xml": LOCK.format(fonts, "a.otf")})
    assert not read_here("epub", free).notes


def test_titles_come_from_the_table_of_contents():
    nav = XHTML.format(
        "", '<nav><ol><li><a href="b.xhtml#x">The <i>second</i></a></li><li><a href="a.xhtml">First</a></li></ol></nav>'
    )
    document = read_here(
        "epub", book({"a.xhtml": chapter("One"), "b.xhtml": chapter("Two")}, more={"OEBPS/nav.xhtml": nav})
    )
    assert [section.title for section in document.sections] == ["First", "The second"]


def notebook(*cells: dict) -> str:
    return read_here("ipynb", json.dumps({"cells": cells, "nbformat": 4}).encode()).text


def test_a_cell_without_outputs_is_read():
    assert (
        notebook({"cell_type": "code", "source": "x=1"}, {"cell_type": "markdown", "source": ["# T\n", "a"]})
        == "```\nx=1\n```\n\n# T\na"
    )


def test_errors_and_colors_and_pictures_of_a_notebook():
    error = {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": []}
    printed = {"output_type": "stream", "text": ["\x1b[31mred\x1b[0m\n"]}
    table = {"output_type": "execute_result", "data": {"text/html": "<table><tr><td>a<td>b</table>", "image/png": "x"}}
    text = notebook({"cell_type": "code", "source": "1/0", "outputs": [error, printed, table]})
    assert text == (
        "```\n1/0\n```\n\n```output\nZeroDivisionError: division by zero\n```\n\n"
        "```output\nred\n```\n\na | b\n\n[picture: output]"
    )


def test_a_fence_is_longer_than_those_within():
    assert notebook({"cell_type": "code", "source": "s = '''\n```\n'''"}).startswith("````\ns = '''\n```\n'''\n````")


def rtf(body: str) -> str:
    return read_here(
        "rtf",
        rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}{\f1\fcharset204 A;}{\f2\fcharset128 B;}}"
        + body.encode()
        + b"}",
    ).text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            r"Caf\'e9 \u8364? 5\par \b bold\b0  text\tab tabbed\line newline\par",
            "Café € 5\n\nbold text\ttabbed\nnewline",
        ),
        (r"a{\v hidden}b \v hidden\v0 c{\deleted gone}", "ab c"),
        (r"word{\footnote \chftn  NOTE}, more\par next", "word[^1], more\n\n[^1]: NOTE\n\nnext"),
        (r"a{\*\annotation why}b{\footnote N}\par", "a[comment]b[^1]\n\n[comment]: why\n\n[^1]: N"),
        (r"\uc1\u-10179?\u-8704? \uc2\u12354 \'82\'a0x", "😀 あx"),
        (r"\f1 \'cf\'f0\'e8\'e2\'e5\'f2 \f2 \'93\'8c\'8b\'9e", "Привет 東京"),
        (
            r"{\listtext\'95\tab}one\par{\listtext 2.\tab}\ilvl1 two\par\pard\outlinelevel1 Title\par",
            "- one\n  2. two\n\n## Title",
        ),
        (r"{\info{\title HIDDEN}}{\*\generator GEN;}{\field{\*\fldinst HYPERLINK x}{\fldrslt link}}", "link"),
        (r"{\shp{\*\shpinst{\sp{\sn x}{\sv y}}{\shptxt box\par}}}text", "box\n\ntext"),
        (r"{\header Acme}{\footer page}text", "text\n\nAcme\n\npage"),
        (r"{\pict\bin5 }}}}}0a}text{\mmath{\*\moMath x}}", "text[equation]"),
    ],
)
def test_rtf_is_read(body, text):
    assert rtf(body) == text


def test_tables_of_rtf_have_cells():
    body = rb"{\rtf1\trowd\cellx1\cellx2 c1\cell c2\cell\row\trowd\intbl a\par b\cell | d\cell\row\pard end\par}"
    table, end = read_here("rtf", body).sections[0].blocks
    assert (table.kind, table.rows, end.text) == (TABLE, (("c1", "c2"), ("a\nb", "| d")), "end")


def test_unclosed_rtf_groups_are_refused():
    with pytest.raises(UnreadableDocumentError, match="nested too deeply"):
        read_document(b"{\\rtf1" + b"{" * 1_000_000, "a.rtf")
