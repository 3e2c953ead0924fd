"""Texts, lists and comments as LibreOffice, pandoc and mail programs write them."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from .here import read_here


def packed(**parts: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return data.getvalue()


def open_document(body: str, kind: str = "text", styles: str = "", **parts: str) -> bytes:
    names = " ".join(f'xmlns:{each}="{each}"' for each in ("o", "s", "t", "table", "text", "d", "x", "dc", "meta"))
    content = f"<o:c {names}>%s</o:c>"
    content_xml = content % f"<o:body><o:{kind}>{body}</o:{kind}></o:body>"
    return packed(**{"styles.xml": content % styles, "content.xml": content_xml}, **parts)


def test_a_document_of_libreoffice():
    styles = '<s:style s:name="P1" s:parent-style-name="Title"/>'
    styles += '<s:style s:name="T1"><s:text-properties text:display="none"/></s:style>'
    for name, level, form in (("W1", 1, "1"), ("W2", 2, "a")):
        number = f'<text:list-level-style-number text:level="{level}" s:num-format="{form}" s:num-suffix="."/>'
        styles += f'<text:list-style s:name="{name}">{number}</text:list-style>'
    item = "<text:list-item><text:p>{}</text:p></text:list-item>".format
    body = f"""<text:p text:style-name="P1">Report</text:p>
<text:p>shown<text:span text:style-name="T1">HIDDEN</text:span></text:p>
<text:list x:id="l1" text:style-name="W1">{item("one")}{item("two")}</text:list>
<text:list text:style-name="W2"><text:list-item>
<text:list>{item("sub")}{item("sub2")}</text:list></text:list-item></text:list>
<text:list text:continue-list="l1" text:style-name="W1">{item("three")}</text:list>
<text:p>A<o:annotation><dc:creator>Ann</dc:creator>
<meta:creator-initials>A</meta:creator-initials><text:p>check</text:p></o:annotation></text:p>
<text:p>E: <d:object d:href="./Object 1"/> and <d:object d:href="./Object 2"/></text:p>"""
    parts = {"Object 1/content.xml": "<math><mi>E</mi><annotation>E</annotation></math>"}
    document = read_here("odt", open_document(body, styles=styles, **parts))
    assert document.text == (
        "# Report\n\nshown\n\n1. one\n2. two\n  a. sub\n  b. sub2\n3. three\n\nA\n\nComment: check\n\n"
        "E:  [equation: E]  and [embedded object]"
    )


def test_headings_of_rtf_are_styles():
    styles = rb"{\stylesheet{\s1 Heading 1;}{\s7\sbasedon0 Title;}{\s9\outlinelevel2 Own;}{\s8 Body;}}"
    text = rb"\pard\s7 T\par\pard\s1 One\par\pard\s8 words\par\pard\s9 Three\par}"
    assert read_here("rtf", rb"{\rtf1" + styles + text).text == "# T\n\n# One\n\nwords\n\n### Three"


def test_merged_cells_of_rtf():
    rows = rb"\trowd\clmgf\cellx1\clmrg\cellx2\cellx3\intbl A\cell\cell x\cell\row"
    rows += rb"\trowd\clvmgf\cellx1\cellx2\cellx3 N\cell 1\cell 2\cell\row"
    rows += rb"\trowd\clvmrg\cellx1\cellx2\cellx3\cell 3\cell 4\cell\row"
    assert read_here("rtf", rb"{\rtf1" + rows + b"}").text == "A | A | x\nN | 1 | 2\nN | 3 | 4"


def test_comments_of_sheets():
    cell = "<table:table-cell><o:annotation><dc:creator>Ann</dc:creator><text:p>check</text:p></o:annotation>"
    row = f"<table:table-row>{cell}<text:p>7</text:p></table:table-cell></table:table-row>"
    sheet = f'<table:table table:name="S">{row}</table:table>'
    assert read_here("ods", open_document(sheet, "spreadsheet")).text == "# S\n\n7\n\nComment in row 1: check\n\f"
    from .office_files import xlsx

    data = io.BytesIO(xlsx('<row r="1"><c r="A1"><v>7</v></c></row>'))
    with zipfile.ZipFile(data, "a") as archive:
        part = next(name for name in archive.namelist() if "worksheets/" in name).rpartition("/")
        link = '<R><Relationship Id="r" Type="x/comments" Target="../comments1.xml"/></R>'
        archive.writestr(f"{part[0]}/_rels/{part[2]}.rels", link)
        comment = '<c xmlns="c"><comment ref="A1"><text><r><t>check</t></r></text></comment></c>'
        archive.writestr("xl/comments1.xml", comment)
    assert "Comment on A1: check" in read_here("xlsx", data.getvalue()).text


def test_a_chapter_that_a_book_lists_but_lacks_is_reported():
    item = '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>'
    spine = '<itemref idref="a"/><itemref idref="gone"/>'
    parts = {
        "META-INF/container.xml": '<c xmlns="c"><rootfile full-path="p.opf"/></c>',
        "p.opf": f'<p xmlns="o"><manifest>{item}</manifest><spine>{spine}</spine></p>',
        "a.xhtml": "<html><body><p>Words</p></body></html>",
    }
    document = read_here("epub", packed(**parts))
    assert "Words" in document.text
    assert document.notes == ("chapters that the book lists and does not hold: gone",)


def test_an_invitation_is_read_beside_its_text():
    parts = "".join(
        f"--B\nContent-Type: {kind}\n\n{text}\n"
        for kind, text in (("text/plain", "Come."), ("text/html", "<p>Come."), ("text/calendar", "LOCATION:Room 4"))
    )
    mail = f"From: a@example.org\nContent-Type: multipart/alternative; boundary=B\n\n{parts}--B--\n"
    text = read_here("eml", mail.encode()).text
    assert "LOCATION:Room 4" in text and text.count("Come.") == 1


def test_outputs_of_notebook_cells_are_read():
    data = ({"text/latex": "$x$"}, {"text/markdown": ["**m**"]}, {"application/json": {"a": 1}})
    outputs = [{"output_type": "execute_result", "data": each} for each in data]
    cells = [
        {"cell_type": "heading", "level": 2, "source": "H"},
        {"cell_type": "code", "source": "x", "outputs": outputs},
    ]
    text = read_here("ipynb", json.dumps({"cells": cells}).encode()).text
    cells[0]["level"] = 10**9
    assert read_here("ipynb", json.dumps({"cells": cells}).encode()).text.startswith("###### H\n")
    assert text.startswith("## H\n") and all(each in text for each in ("$x$", "**m**", '{"a": 1}'))


def test_points_of_slides_have_their_roman_numbers():
    pptx = pytest.importorskip("pptx")
    from pptx.oxml import parse_xml

    deck = pptx.Presentation()
    frame = deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_textbox(0, 0, 9, 9).text_frame
    frame.text = "one\ntwo"
    mark = '<a:buAutoNum xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" type="romanUcParenR"/>'
    for paragraph in frame.paragraphs:
        paragraph._p.get_or_add_pPr().append(parse_xml(mark))
    data = io.BytesIO()
    deck.save(data)
    assert "I) one\nII) two" in read_here("pptx", data.getvalue()).text
