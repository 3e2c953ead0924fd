"""Texts under names of other formats, as programs export them, and damage that costs a part of a document only."""

from __future__ import annotations

import io
import zipfile

import pytest

from leap_core.documents.blocks import UnreadableDocumentError
from leap_core.documents.reading import read_document

from .here import read_here
from .office_files import xlsx

HTML = "<html><head><meta charset=utf-8></head><body><table><tr><td>Tea</td><td>3,50 €</td></tr></table></body></html>"
EXCEL_2003 = """<?xml version="1.0"?>
<?mso-application progid="Excel.Sheet"?>
<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet" xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet">
 <Worksheet ss:Name="Orders"><Table>
  <Row><Cell ss:MergeAcross="1"><Data ss:Type="String">Title</Data></Cell></Row>
  <Row ss:Index="3"><Cell><Data ss:Type="String">Item</Data><Comment><Data>a remark</Data></Comment></Cell>
   <Cell ss:Index="3"><Data ss:Type="String">Price</Data></Cell><Cell><Data ss:Type="String">When</Data></Cell></Row>
  <Row><Cell ss:MergeDown="1"><Data ss:Type="String">Tea &amp; milk</Data></Cell>
   <Cell ss:Index="3"><Data ss:Type="Number">3.5</Data></Cell>
   <Cell><Data ss:Type="DateTime">2026-03-04T00:00:00.000</Data></Cell></Row>
  <Row><Cell ss:Index="3" ss:Formula="=R[-1]C*2"/><Cell><Data ss:Type="Boolean">1</Data></Cell></Row>
 </Table></Worksheet><Worksheet ss:Name="More"><Table><Row><Cell><Data ss:Type="Number">7</Data></Cell></Row></Table>
 </Worksheet></Workbook>"""
WORD = "http://schemas.microsoft.com/office/word/2003/wordml"
WORD_2003 = f"""<?xml version="1.0" encoding="UTF-8"?><?mso-application progid="Word.Document"?>
<w:wordDocument xmlns:w="{WORD}"><w:styles><w:style w:type="paragraph" w:styleId="H"><w:name w:val="heading 1"/>
</w:style></w:styles><w:body><w:p><w:pPr><w:pStyle w:val="H"/></w:pPr><w:r><w:t>Terms</w:t></w:r></w:p>
<w:p><w:r><w:t>Grüße</w:t>
</w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc>
</w:tr></w:tbl></w:body></w:wordDocument>"""
OPEN = "http://schemas.openxmlformats.org"
FLAT = f"""<?xml version="1.0"?><pkg:package xmlns:pkg="http://schemas.microsoft.com/office/2006/xmlPackage">
<pkg:part pkg:name="/_rels/.rels"><pkg:xmlData><Relationships xmlns="{OPEN}/package/2006/relationships"><Relationship
Id="a" Type="{OPEN}/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>
</pkg:xmlData></pkg:part><pkg:part pkg:name="/word/document.xml"><pkg:xmlData><w:document xmlns:w="{OPEN}/w"><w:body>
<w:p><w:r><w:t>One file.</w:t></w:r></w:p></w:body></w:document></pkg:xmlData></pkg:part></pkg:package>"""
ARCHIVE = """From: <Saved by a browser>
Subject: Prices
MIME-Version: 1.0
Content-Type: multipart/related; boundary="x"

--x
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: quoted-printable

<html><body><p>Tea costs 3,50 =E2=82=AC</p></body></html>
--x--
"""
SHEET = (
    "# Orders\n\nTitle\n\nItem |  | Price | When\nTea & milk |  | 3.5 | 2026-03-04\nTea & milk |  | =R[-1]C*2 | TRUE"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "kind", "has"),
    [
        *(
            (f"export.{ending}", HTML, "html", "Tea | 3,50 €")
            for ending in ("xls", "xlsx", "doc", "docx", "ppt", "xlsb")
        ),
        ("orders.xls", EXCEL_2003, "excel xml", SHEET),
        ("orders.xml", EXCEL_2003, "excel xml", "# More\n\n7"),
        ("terms.doc", WORD_2003, "word xml", "# Terms\n\nGrüße\n\na | b"),
        ("terms.xml", FLAT, "word xml", "One file."),
        ("prices.mht", ARCHIVE, "eml", "Tea costs 3,50 €"),
        ("prices.doc", ARCHIVE, "eml", "Tea costs 3,50 €"),
        ("prices.htm", ARCHIVE, "eml", "Tea costs 3,50 €"),
        ("table.xls", "Item\tPrice\nTea\t3,50 €\n", "text", "Tea\t3,50 €"),
        ("notes.doc", "Plain words.\n", "text", "Plain words."),
        ("page.xml", "<?xml version='1.0'?><a>not of an office</a>", "code", "<a>not of an office</a>"),
    ],
)
@pytest.mark.parametrize("charset", ["utf-8", "utf-16"])
def test_formats_are_detected_despite_a_wrong_name(name, text, kind, has, charset):
    if charset == "utf-16" and kind.endswith("xml"):
        text = text.replace('encoding="UTF-8"', "")
    document = read_document(text.encode(charset), name)
    assert document.kind == kind and has in document.text.replace("\f", "")


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.xlsx", "a.epub", "a.odt"])
def test_plain_text_with_a_document_suffix_is_refused(name):
    with pytest.raises(UnreadableDocumentError, match="despite its name"):
        read_document(b"Plain words.", name)


@pytest.mark.parametrize("name", ["a.doc", "a.xls", "a.rtf"])
def test_binary_data_with_a_document_suffix_is_refused(name):
    with pytest.raises(UnreadableDocumentError):
        read_document(bytes(range(256)) * 4, name)


@pytest.mark.parametrize(
    ("page", "text", "has"),
    [
        ("\\ansicpg10000", b"Z\x9frich", "Zürich"),
        ("\\ansicpg10007", "Привет".encode("mac-cyrillic"), "Привет"),
        ("\\ansicpg0", b"Z\xfcrich", "Zürich"),
        ("\\ansicpg708", "مرحبا".encode("iso8859-6"), "مرحبا"),
        ("\\ansicpg28592", "Łódź".encode("iso8859-2"), "Łódź"),
        ("\\ansicpg1361", "한국".encode("johab"), "한국"),
        ("\\ansicpg65001", "Łódź".encode(), "Łódź"),
        ("\\ansicpg54321", b"Z\xfcrich", "Zürich"),
    ],
)
def test_code_pages_of_rtf(page, text, has):
    escaped = b"".join(b"\\'%02x" % byte for byte in text)
    document = read_here("rtf", b"{\\rtf1\\ansi" + page.encode() + b" " + escaped + b"\\par}")
    assert document.text == has
    assert bool(document.notes) == (page == "\\ansicpg54321")


@pytest.mark.slow
def test_mail_in_utf_16():
    mail = "Subject: Größe\nContent-Type: text/plain; charset=utf-16\n\nDie Größe ist 5 m².\n"
    for charset in ("utf-16", "utf-16-le"):
        assert "Die Größe ist 5 m²." in read_document(mail.encode(charset), "mail.eml").text


def test_a_cell_with_a_wrong_index_does_not_fail_the_workbook():
    rows = (
        '<row r="1"><c r="A1" t="s"><v>99</v></c><c r="B1" t="inlineStr"><is><t>Price</t></is></c></row>'
        '<row r="2"><c r="A2" t="s"><v>-1</v></c><c r="B2" s="x"><v>7</v></c></row>'
        '<row r="3"><c r="A3" t="s"><v>no</v></c><c r="B3"><v>3.5</v></c></row>'
    )
    document = read_here("xlsx", xlsx(rows))
    assert document.text.split("\n")[2:5] == ["[damaged] | Price", "[damaged] | [damaged]", "[damaged] | 3.5"]
    assert "sheet Sheet: damaged cells: 4" in document.notes


def test_parts_above_the_size_limit_are_reported(monkeypatch):
    from leap_core.documents import ooxml

    data = xlsx('<row r="1"><c r="A1"><v>1</v></c></row>')
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = max(each.file_size for each in archive.infolist() if each.filename.endswith("styles.xml"))
    monkeypatch.setattr(ooxml, "SMALL_PART", size - 1)
    assert any("xl/styles.xml is larger than" in note for note in read_here("xlsx", data).notes)


def test_footers_and_dates_of_slides_are_written_once():
    pptx = pytest.importorskip("pptx")
    deck, data = pptx.Presentation(), io.BytesIO()
    for day in ("4 March 2026", "4 March 2026", "5 March 2026"):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = "Plan"
        for kind, text in (("dt", day), ("ftr", "ACME confidential"), ("sldNum", "7")):
            shape = slide.shapes.add_textbox(0, 0, 100, 100)
            shape.text_frame.text = text
            shape._element.nvSpPr.nvPr.get_or_add_ph().set("type", kind)
    deck.save(data)
    text = read_here("pptx", data.getvalue()).text
    assert [text.count(word) for word in ("4 March", "5 March", "ACME", "7")] == [1, 1, 1, 0]
