"""Documents of all kinds, made by libraries: text, order and places; and what is no document."""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import tempfile
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

from leap_core.documents import kinds
from leap_core.documents.blocks import TABLE, Document, UnreadableDocumentError
from leap_core.documents.reading import pictures_of, read_document
from tests.pdf_bytes import pdf_bytes

pytest.importorskip("docx")
pytest.importorskip("openpyxl")
pytest.importorskip("pptx")
pytest.importorskip("pypdfium2")


def docx_bytes() -> bytes:
    from docx import Document as Word

    document, data = Word(), io.BytesIO()
    document.sections[0].header.paragraphs[0].text = "Acme Ltd"
    document.sections[0].footer.paragraphs[0].text = "Page foot"
    document.add_heading("Report", 0)
    document.add_paragraph("The total is 42 euros.")
    table = document.add_table(rows=2, cols=2)
    for row, words in zip(table.rows, (("Name", "Sum"), ("Ann", "7")), strict=True):
        for cell, word in zip(row.cells, words, strict=True):
            cell.text = word
    document.add_heading("After the table", 2)
    document.add_paragraph("Zoë agrees.")
    document.save(data)
    return data.getvalue()


def xlsx_bytes() -> bytes:
    from openpyxl import Workbook

    book, data = Workbook(), io.BytesIO()
    sheet = book.active
    sheet.title = "Orders"
    for row in (["Item", "Price", None], ["Tea", 3.5, None], ["Cups", 12.0, "new"]):
        sheet.append(row)
    hidden = book.create_sheet("Secret")
    hidden.append(["hidden word"])
    hidden.sheet_state = "hidden"
    book.create_sheet("More").append(["last", True])
    book.save(data)
    return data.getvalue()


def pptx_bytes() -> bytes:
    from pptx import Presentation

    deck, data = Presentation(), io.BytesIO()
    for n in (1, 2):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = f"Slide {n}"
        slide.placeholders[1].text = f"Point {n}"
    deck.slides[1].notes_slide.notes_text_frame.text = "Say this."
    deck.save(data)
    return data.getvalue()


def epub_bytes() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
        )
        items = "".join(f'<item id="c{n}" href="part%20{n}.xhtml"/>' for n in (1, 2))
        spine = '<itemref idref="c2"/><itemref idref="c1"/>'
        archive.writestr(
            "OPS/book.opf",
            f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>',
        )
        for n in (1, 2):
            archive.writestr(
                f"OPS/part {n}.xhtml", f"<html><body><h1>Chapter {n}</h1><p>Words of {n}.</p></body></html>"
            )
    return data.getvalue()


def eml_bytes() -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "ann@example.org", "bob@example.org", "Lunch à deux"
    message.set_content("At noon?")
    message.add_attachment(b"\x00\x01", maintype="application", subtype="octet-stream", filename="map.bin")
    return bytes(message)


def notebook_bytes() -> bytes:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Words."]},
        {"cell_type": "code", "source": "print(1)", "outputs": [{"text": ["1\n"]}]},
    ]
    return json.dumps({"cells": cells, "nbformat": 4}).encode()


SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
    for name, space in (
        ("office", "office"),
        ("text", "text"),
        ("table", "table"),
        ("draw", "drawing"),
        ("style", "style"),
    )
)


def open_document(kind: str, body: str) -> bytes:
    styles = (
        '<office:automatic-styles><style:style style:name="gone"><style:table-properties table:display="false"/>'
        '</style:style><text:list-style style:name="L1"><text:list-level-style-number/></text:list-style>'
        "</office:automatic-styles>"
    )
    data, name = io.BytesIO(), {"text": "text", "spreadsheet": "spreadsheet", "presentation": "presentation"}[kind]
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("mimetype", f"application/vnd.oasis.opendocument.{name}")
        whole = f"{styles}<office:body><office:{kind}>{body}</office:{kind}></office:body>"
        archive.writestr("content.xml", f"<office:document-content {SPACES}>{whole}</office:document-content>")
    return data.getvalue()


def odt_bytes() -> bytes:
    return open_document(
        "text",
        '<text:tracked-changes><text:p>taken out</text:p></text:tracked-changes><text:h text:outline-level="2">Terms'
        '</text:h><text:list text:style-name="L1"><text:list-item><text:p>pay <text:s/>soon<text:note>'
        "<text:note-citation>1</text:note-citation><text:note-body><text:p>within a week</text:p></text:note-body>"
        "</text:note></text:p></text:list-item><text:list-item><text:p>or <text:span>late</text:span></text:p>"
        "</text:list-item></text:list><table:table><table:table-header-rows><table:table-row><table:table-cell>"
        "<text:p>Name</text:p></table:table-cell><table:table-cell><text:p>Sum</text:p></table:table-cell>"
        "</table:table-row></table:table-header-rows></table:table><text:p>a &lt; b</text:p>",
    )


def ods_bytes() -> bytes:
    def row(*cells: str, repeated: int = 1) -> str:
        inner = "".join(
            f"<table:table-cell>{f'<text:p>{each}</text:p>' * bool(each)}</table:table-cell>" for each in cells
        )
        rest = '<table:table-cell table:number-columns-repeated="16000"/>'
        return f'<table:table-row table:number-rows-repeated="{repeated}">{inner}{rest}</table:table-row>'

    rows = row("Item", "Price") + row(repeated=2) + row("Tea", "", "3.50 €") + row(repeated=1_048_000)
    hidden = f'<table:table table:name="Secret" table:style-name="gone">{row("hidden word")}</table:table>'
    return open_document("spreadsheet", f'<table:table table:name="Orders">{rows}</table:table>{hidden}')


def odp_bytes() -> bytes:
    slide = "<draw:page><draw:frame><draw:text-box><text:p>Slide {0}</text:p></draw:text-box></draw:frame></draw:page>"
    return open_document("presentation", slide.format(1) + slide.format(2))


MADE = {
    "a.odt": (odt_bytes, ["## Terms\n\n1. pay  soon[^1]\n\n[^1]: within a week\n\n2. or late\n\nName | Sum\n\na < b"]),
    "a.ods": (ods_bytes, ["# Orders\n\nItem | Price\n\nTea |  | 3.50 €\n\f"]),
    "a.odp": (odp_bytes, ["Slide 1\n\fSlide 2\n\f"]),
    "a.rtf": (lambda: rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}Caf\'e9 \b bold\b0 .\par Next}", ["Café bold.\n\nNext"]),
    "a.docx": (
        docx_bytes,
        ["Acme Ltd\n\n# Report", "\n\nName | Sum\nAnn | 7\n\n## After the table", "Zoë agrees.", "Page foot"],
    ),
    "a.xlsx": (xlsx_bytes, ["# Orders\n\nItem | Price\nTea | 3.5\nCups | 12 | new\n\f# More\n\nlast | TRUE\n\f"]),
    "a.pptx": (pptx_bytes, ["# Slide 1\n\n- Point 1\n\f# Slide 2\n\n- Point 2\n\nNotes: Say this.\n\f"]),
    "a.epub": (epub_bytes, ["# Chapter 2\n\nWords of 2.\n\f# Chapter 1\n\nWords of 1.\n\f"]),
    "a.eml": (eml_bytes, ["Subject: Lunch à deux", "At noon?", "[attached: map.bin]"]),
    "a.ipynb": (notebook_bytes, ["# Title\nWords.\n\n```\nprint(1)\n```"]),
    "a.pdf": (lambda: pdf_bytes(["One line", "and two"], ["Page two"]), ["One line\nand two\n\fPage two\n\f"]),
    "a.html": (lambda: b"<html><body><p>A page</p></body></html>", ["A page"]),
    "a.md": (lambda: b"# Head\n\nText", ["# Head\n\nText"]),
    "a.txt": (lambda: "caf\u00e9".encode("cp1252"), ["café"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_text_is_read_in_order(tmp_path, name):
    make, words = MADE[name]
    data = make()
    (tmp_path / name).write_bytes(data)
    document = read_document(tmp_path / name)
    at = 0
    for part in words:
        assert part in document.text[at:], document.text
        at = document.text.index(part, at)
    assert "hidden word" not in document.text
    assert read_document(data, name).text == document.text, "bytes are read as files are"


def test_words_of_a_docx_outside_of_its_paragraphs_are_read():
    """Of forms, accepted changes, text boxes and notes; not what was taken out."""
    inner = (
        "<w:sdt><w:sdtContent><w:p><w:r><w:t>in a form</w:t></w:r></w:p></w:sdtContent></w:sdt>"
        "<w:p><w:ins><w:r><w:t>put in</w:t></w:r></w:ins>"
        "<w:del><w:r><w:delText>taken out</w:delText></w:r></w:del></w:p>"
        '<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr></w:pPr>'
        "<w:r><w:t>an item</w:t></w:r></w:p>"
    )
    data = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(docx_bytes())) as whole, zipfile.ZipFile(data, "w") as archive:
        for each in whole.namelist():
            content = whole.read(each)
            if each == "word/document.xml":
                content = content.replace(b"<w:body>", b"<w:body>" + inner.encode())
            archive.writestr(each, content)
    text = read_document(data.getvalue(), "a.docx").text
    assert "in a form\n\nput in\n\n- an item\n\n# Report" in text
    assert "taken out" not in text


CONVERTERS = {name: shutil.which(name) for name in ("soffice", "pandoc")}
WRITTEN = """# Report

Alpha is **bold**.

- one
- two

| Name | Sum |
|------|-----|
| Ann  | 7   |

Omega, déjà vu.
"""


@pytest.mark.slow
@pytest.mark.skipif(not all(CONVERTERS.values()), reason="needs pandoc and LibreOffice (apt install both)")
@pytest.mark.long
def test_documents_of_other_programs_are_read(tmp_path):
    """A text that pandoc wrote in each format, and LibreOffice wrote again in each of its own and of pandoc's."""
    both = ("rtf", "html")
    (tmp_path / "a.md").write_text(WRITTEN, encoding="utf-8")
    for kind in ("docx", "odt", "epub", "html", "pptx", "ipynb", "rtf"):
        subprocess.run(["pandoc", "-s", "a.md", "-o", f"pandoc.{kind}"], cwd=tmp_path, check=True, capture_output=True)
    shutil.copy(tmp_path / "pandoc.docx", tmp_path / "office.docx")
    shutil.copy(tmp_path / "pandoc.pptx", tmp_path / "slides.pptx")
    home = f"-env:UserInstallation={(tmp_path / 'home').as_uri()}"
    for kind, source in (
        *((kind, "office.docx") for kind in ("odt", "pdf", "doc", *both)),
        *((kind, "slides.pptx") for kind in ("odp", "ppt")),
    ):
        convert = ["soffice", home, "--headless", "--convert-to", kind, source]
        subprocess.run(convert, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    paths = [*tmp_path.glob("pandoc.*"), *tmp_path.glob("office.*"), tmp_path / "slides.odp", tmp_path / "slides.ppt"]
    assert len(paths) == 13 + len(both)
    for path in paths:
        text, at = read_document(path).text, 0
        for word in ("Report", "Alpha is", "one", "two", "Name", "Sum", "Ann", "7", "Omega, déjà vu."):
            at = text.find(word, at)
            assert at >= 0, f"{path.name}: {word}\n{text}"
        rows = {"rtf", "pdf", "ipynb", "ppt"}
        assert path.suffix[1:] in rows or "Name | Sum\nAnn | 7" in text, text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a.pptx", "a.epub", "a.pdf", "a.odt", "a.ods", "a.odp", "a.rtf"])
def test_the_format_is_detected_from_the_content(tmp_path, name):
    (tmp_path / "letter.txt").write_bytes(MADE[name][0]())
    assert read_document(tmp_path / "letter.txt").kind == Path(name).suffix[1:]


def test_sections_and_rows_have_their_numbers(tmp_path):
    document = read_document(pptx_bytes(), "a.pptx")
    assert (document.unit, len(document.sections), document.sections[1].title) == ("slide", 2, "Slide 2")
    assert {line.number for line in document.lines} == {1, 2}
    sheet = read_document(xlsx_bytes(), "a.xlsx")
    assert [section.title for section in sheet.sections] == ["Orders", "More"]
    table = next(block for block in sheet.sections[0].blocks if block.kind == TABLE)
    assert table.rows[1] == ("Tea", "3.5") and table.numbers == (1, 2, 3)
    assert read_document(ods_bytes(), "a.ods").rows == [("Orders!4", "Item: Tea\n3.50 €")]
    assert sheet.rows == [("Orders!2", "Item: Tea\nPrice: 3.5"), ("Orders!3", "Item: Cups\nPrice: 12\nnew")]


def scan(*words: str, empty: bool = False) -> bytes:
    """A PDF whose pages are pictures of words; and an empty page at the end."""
    from PIL import Image, ImageDraw
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    data = io.BytesIO()
    canvas = Canvas(data, (400, 300))
    for word in words:
        picture = Image.new("RGB", (400, 300), "white")
        ImageDraw.Draw(picture).text((30, 100), word, fill="black", font_size=60)
        canvas.drawImage(ImageReader(picture), 0, 0, 400, 300)
        canvas.showPage()
    if empty:
        canvas.showPage()
    canvas.save()
    return data.getvalue()


@pytest.mark.slow
def test_pages_without_text_are_rendered_as_images(tmp_path):
    document = read_document(scan("one", "two", "three", empty=True), "scan.pdf")
    assert len(document.sections) == 4
    assert document.blank == [1, 2, 3]
    pictures = list(pictures_of(document, [1, 3]))
    assert [number for number, _ in pictures] == [1, 3] and all(data.startswith(b"\xff\xd8") for _, data in pictures)
    written = document.with_texts({2: "two\nlines"})
    assert written.blank == [1, 3] and written.sections[1].lines[1].text == "lines"


HOSTILE = {
    "locked.odt": "encrypted",
    "bomb.docx": "unpacks to",
    "old.doc": "compound file",
    "locked.pdf": "encrypted",
    "words.pdf": "is not PDF",
    "archive.docx": "no document that leap reads",
    "half.xlsx": "damaged",
    "entities.docx": "cannot be read",
    "broken.ipynb": "notebook",
    "deep.ipynb": "notebook",
}


def hostile(name: str) -> bytes:
    data = io.BytesIO()
    if name == "bomb.docx":
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", b"")
            for n in range(5):
                archive.writestr(f"word/{n}", bytes(3 * 1024**2))
        return data.getvalue()
    if name == "old.doc":
        return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    if name == "locked.pdf":
        import pypdf

        locked = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(pdf_bytes(["x"]))))
        locked.encrypt("secret", algorithm="RC4-128")
        locked.write(data)
        return data.getvalue()
    if name == "locked.odt":
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
            archive.writestr("META-INF/manifest.xml", "<manifest:encryption-data/>")
            archive.writestr("content.xml", b"\x93\x00")
        return data.getvalue()
    if name == "archive.docx":
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("a.txt", "text")
        return data.getvalue()
    if name == "half.xlsx":
        return xlsx_bytes()[:2000]
    if name == "entities.docx":
        entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
        body = f'<!DOCTYPE d [<!ENTITY e0 "lol">{entities}]><d>&e11;</d>'
        with zipfile.ZipFile(io.BytesIO(docx_bytes())) as whole, zipfile.ZipFile(data, "w") as archive:
            for each in whole.namelist():
                archive.writestr(each, body if each == "word/document.xml" else whole.read(each))
        return data.getvalue()
    return {"words.pdf": b"no such thing", "broken.ipynb": b"[1]", "deep.ipynb": b"[" * 100_000}[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_are_refused_in_one_line(tmp_path, monkeypatch, name):
    monkeypatch.setattr(kinds, "MOST_UNPACKED", 10 * 1024**2)
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    (tmp_path / name).write_bytes(hostile(name))
    with pytest.raises(UnreadableDocumentError, match=HOSTILE[name]) as caught:
        read_document(tmp_path / name)
    assert "\n" not in caught.value.message and str(tmp_path / name) in str(caught.value)
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_damaged_documents_are_read_or_refused():
    """Bytes changed or cut at random: whatever becomes of the child that reads them, here there is a line."""
    dice = random.Random(53)
    makers = [MADE[name][0]() for name in ("a.docx", "a.xlsx", "a.pptx", "a.epub", "a.pdf", "a.odt", "a.ods", "a.rtf")]
    for n in range(64):
        data = bytearray(makers[n % len(makers)])
        for _ in range(dice.randint(1, 20)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        cut = bytes(data[: dice.randrange(len(data))] if n % 3 == 0 else data)
        try:
            assert isinstance(read_document(cut, "damaged"), Document)
        except UnreadableDocumentError as error:
            assert "\n" not in error.message


def test_lines_of_a_batch_name_documents(tmp_path):
    from leap_core.batch.input.lines import RequestReader

    (tmp_path / "a.docx").write_bytes(docx_bytes())
    reader = RequestReader(directory=tmp_path)
    asked = reader.read(json.dumps({"prompt": "The total?", "file": "a.docx"}).encode()).messages[0]
    assert "The total is 42 euros." in asked.text and asked.text.endswith("The total?")
    task = reader.read(json.dumps({"task": "summarize", "file": "a.docx"}).encode())
    assert task.messages[0].text.startswith("Acme Ltd\n\n# Report")
