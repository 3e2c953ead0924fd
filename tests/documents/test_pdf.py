"""PDF files: text as it is read aloud, forms, notes, and pages that are pictures of their text."""

from __future__ import annotations

import io

import pytest

from leap_core.documents.reading import pictures_of, read_document
from tests.pdf_bytes import pdf_bytes

from .here import read_here

canvas = pytest.importorskip("reportlab.pdfgen.canvas")
pytest.importorskip("pypdfium2")


def pdf(draw) -> bytes:
    data = io.BytesIO()
    page = canvas.Canvas(data, (400, 300))
    draw(page)
    page.save()
    return data.getvalue()


def lines(*texts: str) -> bytes:
    def draw(page) -> None:
        for n, text in enumerate(texts):
            page.drawString(30, 250 - 14 * n, text)

    return pdf(draw)


def test_hyphenated_words_are_joined():
    data = lines("a well-known inter-", "national treaty costs 10-", "20 euros, as is well-", "known")
    words = " ".join(read_here("pdf", data).text.split())
    assert words == "a well-known international treaty costs 10-20 euros, as is well-known"


@pytest.mark.slow
def test_form_values_are_read_and_rendered():
    def draw(page) -> None:
        page.drawString(30, 250, "Name:")
        page.acroForm.textfield(name="name", value="Jane Roe", x=90, y=240, width=200, height=20)
        page.acroForm.checkbox(name="agree", checked=True, x=90, y=200)
        page.acroForm.checkbox(name="call", checked=False, x=90, y=170)
        page.acroForm.choice(name="size", value="Large", options=["Small", "Large"], x=90, y=130, width=99, height=20)

    data = pdf(draw)
    document = read_document(data, "form.pdf")
    assert document.text.split("\n\n")[1:] == ["name: Jane Roe", "agree: yes", "call: no", "size: Large\n\f"]
    ((_, filled),) = pictures_of(document, [1])
    empty = lines("Name:")
    ((_, without),) = pictures_of(read_document(empty, "empty.pdf"), [1])
    assert len(filled) > len(without) + 1000, "the picture has the values, too"


def test_annotations_are_read():
    def draw(page) -> None:
        page.drawString(30, 250, "Body words")
        page.freeTextAnnotation("pay by Friday", "/Helv 10 Tf", Rect=[30, 100, 200, 130])
        page.textAnnotation("a remark", Rect=[30, 60, 50, 80])

    assert read_here("pdf", pdf(draw)).text == "Body words\n\nNote: pay by Friday\n\nNote: a remark\n\f"


def picture(page, width: int, height: int) -> None:
    from PIL import Image
    from reportlab.lib.utils import ImageReader

    page.drawImage(ImageReader(Image.new("RGB", (40, 30), "gray")), 0, 0, width, height)


def test_a_scan_with_a_stamp_is_a_scan_and_a_page_with_a_small_image_is_not():
    def draw(page) -> None:
        picture(page, 400, 300)
        page.drawString(150, 10, "Page 1 of 2 - scanned")
        page.showPage()
        picture(page, 100, 100)
        page.drawString(150, 10, "A letter with a logo")
        page.showPage()
        picture(page, 400, 300)
        for n in range(12):
            page.drawString(30, 250 - 14 * n, "Text that was recognized over its picture.")

    document = read_here("pdf", pdf(draw))
    assert document.blank == [1] and "scanned" in document.text
    assert document.with_texts({1: "what it says"}).blank == []


def test_a_page_whose_font_has_no_unicode_is_a_scan():
    from reportlab.pdfbase.pdfmetrics import registerFont
    from reportlab.pdfbase.ttfonts import TTFont

    registerFont(TTFont("Vera", "Vera.ttf"))

    def draw(page) -> None:
        page.setFont("Vera", 12)
        page.drawString(30, 250, "Grüße — für 900 €")

    data = pdf(draw)
    assert read_here("pdf", data).blank == [] and b"/ToUnicode" in data
    data = data.replace(b"/ToUnicode", b"/ToNothing")
    document = read_here("pdf", data)
    assert document.blank == [1] and "characters of its fonts have no Unicode" in document.notes[0]


def test_pages_are_limited_and_the_limit_is_reported(monkeypatch):
    monkeypatch.setattr("leap_core.documents.output.SECTIONS", 2)
    document = read_here("pdf", pdf_bytes(["one"], ["two"], ["three"]))
    assert document.text == "one\n\ftwo\n\f"
    assert document.notes == ("page 2 of 3: the rest is cut off at 2 pages",)


def test_two_columns_are_read_one_after_the_other_and_tables_by_rows():
    def draw(page) -> None:
        page.setFont("Helvetica", 9)
        page.drawString(120, 270, "A title over both columns")
        for n in range(8):
            page.drawString(30, 250 - 12 * n, f"Left line {n} of the first one.")
            page.drawString(220, 250 - 12 * n, f"Right line {n} of the second.")
        page.showPage()
        for n in range(8):
            page.drawString(30, 250 - 12 * n, f"Part {n}")
            page.drawString(220, 250 - 12 * n, f"{n}.50")

    columns, table = (section.text.split("\n") for section in read_here("pdf", pdf(draw)).sections)
    assert columns[0] == "A title over both columns" and columns[8].startswith("Left line 7")
    assert columns[9].startswith("Right line 0") and columns[-1].startswith("Right line 7")
    assert table[:2] == ["Part 0 | 0.50", "Part 1 | 1.50"]


def test_unread_parts_of_a_pdf_are_reported():
    def draw(page) -> None:
        page.drawString(30, 250, "10")
        text = page.beginText(42, 250)
        text.setRise(5)
        text.setFont("Helvetica", 7)
        text.textOut("6")
        page.drawText(text)

    assert read_here("pdf", pdf(draw)).notes == (
        "page 1 of 1: 1 raised digits are read as digits of the number before them",
    )
    xfa = objects(b"/AcroForm<</Fields[]/XFA 4 0 R>>", b"<</Length 5>>stream\n<x/>\n\nendstream")
    assert read_here("pdf", xfa).notes == ("the fields of its form (XFA) are not read: print it to a PDF",)
    named = b"/Names<</EmbeddedFiles<</Names[(d.csv) 4 0 R]>>>>"
    attached = objects(
        named, b"<</Type/Filespec/F(d.csv)/UF(d.csv)/EF<</F 5 0 R>>>>", b"<</Length 1>>stream\n1\nendstream"
    )
    assert read_here("pdf", attached).notes == ("attached files are not read: d.csv",)
    stamp = objects(b"", b"<</Type/Annot/Subtype/Stamp/Rect[1 1 9 9]>>", page=b"/Annots[4 0 R]")
    assert read_here("pdf", stamp).text.strip() == "Note: [a stamp without text]"


def objects(catalog: bytes, *more: bytes, page: bytes = b"") -> bytes:
    """A PDF of one empty page; further objects begin with number 4."""
    first = (b"/Type/Catalog/Pages 2 0 R" + catalog, b"/Type/Pages/Kids[3 0 R]/Count 1")
    first += (b"/Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]" + page,)
    data, places = b"%PDF-1.7\n", b""
    for number, content in enumerate([*(b"<<" + each + b">>" for each in first), *more], 1):
        places += b"%010d 00000 n \n" % len(data)
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    count = 4 + len(more)
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\n" % (count, places, count)
    return data + end + b"startxref\n%d\n%%%%EOF" % len(data)


def test_a_word_that_may_have_lost_its_hyphen_is_reported():
    data = lines("The long-term inter-", "national treaty of a well-", "known firm. International firms.")
    document = read_here("pdf", data)
    assert "well-known" in document.text
    (note,) = document.notes
    assert note.endswith("a compound word may have lost its own: international")
    assert "an e-mail by a colleague" in read_here("pdf", lines("an e-", "mail by a col-", "league")).text
    assert read_here("pdf", lines("a well-known treaty, as is well-", "known")).notes == ()
    divided = lines("with self-", "less help for its well-", "ness")
    assert "with selfless help for its wellness" in read_here("pdf", divided).text


def test_tables_are_named_by_page_and_text_columns_are_not_tables():
    def table(page, across: bool) -> None:
        places = [(n, side) for n in range(6) for side in range(5)]
        for n, side in places if across else sorted(places, key=lambda place: place[1]):
            page.drawString(20 + 75 * side, 250 - 14 * n, f"{n}.{side}")

    for across in (True, False):
        document = read_here("pdf", pdf(lambda page, across=across: table(page, across)))
        assert document.notes == ("page 1: text stands side by side, as in tables; check its order",)

    def columns(page) -> None:
        for left in (30, 220):
            for n in range(8):
                page.drawString(left, 250 - 12 * n, f"This is line {n} of a column.")

    assert read_here("pdf", pdf(columns)).notes == ()
    assert read_here("pdf", lines("One line", "and another", "and one more", "and the last")).notes == ()


def test_a_table_has_cells_and_keeps_its_empty_ones():
    rows = (("Item", "Qty", "Price"), ("bolt", "4", "1.50"), ("gear wheel", "", "12.00"), ("washer", "9", ""))
    places = [(n, side) for n in range(4) for side in range(3)]

    def draw(page, by_columns: bool) -> None:
        page.drawString(20, 280, "These are the parts that we ordered for the harbor in May.")
        for n, side in sorted(places, key=lambda place: place[1]) if by_columns else places:
            page.drawString(20 + 110 * side, 250 - 14 * n, rows[n][side])
        page.drawString(20, 170, "All prices are in euros and without tax, until June.")

    for by_columns in (False, True):
        document = read_here("pdf", pdf(lambda page, by_columns=by_columns: draw(page, by_columns)))
        above, table, below = document.text.strip().split("\n\n")
        assert above.startswith("These are") and below.startswith("All prices")
        assert table.split("\n") == ["Item | Qty | Price", "bolt | 4 | 1.50", "gear wheel |  | 12.00", "washer | 9"]
        assert "Item: gear wheel\nPrice: 12.00" in [text for _, text in document.rows]


def test_cells_of_several_lines_are_one_row_and_no_word_is_lost():
    def draw(page) -> None:
        for y, cells in (
            *(
                (250, ("Name", "Description", "Sum")),
                (232, ("", "A pump for water", "")),
                (220, ("Pump", "in ponds", "120")),
            ),
            *((202, ("", "Hose of ten", "")), (190, ("Hose", "meters", "15")), (172, ("Net", "of string", "7"))),
        ):
            for side, cell in enumerate(cells):
                page.drawString(20 + 110 * side, y, cell)
        for n in range(4):  # words that are drawn one by one
            for side, word in enumerate(("each", "word", "of", "this", "line")):
                page.drawString(20 + (40 + n) * side, 130 - 14 * n, f"{word}{n}")

    text = read_here("pdf", pdf(draw)).text
    assert "Pump | A pump for water in ponds | 120\nHose | Hose of ten meters | 15\nNet | of string | 7" in text
    assert all(f"{word}{n}" in text for n in range(4) for word in ("each", "of", "line"))


def test_ligatures_become_letters_and_names_keep_their_hyphen():
    from leap_core.documents.pdf import _joined

    assert (
        _joined("the o\ufb03ce \ufb01le of M\u00fcller-L\u00fcdenscheidt") == "the office file of Müller-Lüdenscheidt"
    )
    assert _joined("Baden\x02Baden and inter\x02\nnational") == "Baden-Baden and international"
