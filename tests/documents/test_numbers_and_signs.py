"""What documents of many programs show beside plain words: marks of lists, superscripts, form fields, signs of symbol
fonts, drawings over sheets; and what is said where it cannot be read."""

from __future__ import annotations

import io
import json
import zipfile
from base64 import b64encode

import pytest

from leap_core.documents.kinds import kind_by_content
from leap_core.documents.number_formats import labeled, shown
from leap_core.documents.text import table_rows

from .here import read_here
from .office_files import WORD, archive, docx, paragraph, pptx, relationships, run, shape, xlsx
from .test_sheets import EPOCH

NUMBERED = [("n", "numbering", "numbering.xml"), ("s", "styles", "styles.xml")]


def level(number: int, form: str, text: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{number}"><w:numFmt w:val="{form}"/>{more}<w:lvlText w:val="{text}"/></w:lvl>'


def numbering(levels: str, more: str = "", override: str = "") -> str:
    numbers = "".join(
        f'<w:num w:numId="{n}"><w:abstractNumId w:val="1"/>{override if n == 2 else ""}</w:num>' for n in (1, 2)
    )
    return (
        f'<w:numbering {WORD}><w:abstractNum w:abstractNumId="1">{levels}</w:abstractNum>{more}{numbers}</w:numbering>'
    )


def items(*places: tuple[str, int, int]) -> str:
    return "".join(
        paragraph(text, f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr>')
        for text, depth, number in places
    )


LINKED = '<w:abstractNum w:abstractNumId="9"><w:styleLink w:val="L"/>{}</w:abstractNum>'.format(
    level(0, "upperLetter", "%1)")
)
OVERRIDE = f'<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/>{level(0, "lowerLetter", "%1)")}</w:lvlOverride>'


@pytest.mark.parametrize(
    ("xml", "body", "lines"),
    [
        (numbering('<w:numStyleLink w:val="L"/>', LINKED), items(("x", 0, 1), ("y", 0, 1)), ["A) x", "B) y"]),
        (
            numbering(level(0, "upperRoman", "Part %1") + level(1, "decimal", "%1.%2", "<w:isLgl/>")),
            items(("x", 0, 1), ("y", 1, 1)),
            ["Part I x", "  1.1 y"],
        ),
        (
            numbering(level(0, "decimal", "%1.") + level(1, "decimal", "(%2)", '<w:lvlRestart w:val="0"/>')),
            items(("x", 0, 1), ("y", 1, 1), ("z", 0, 1), ("on", 1, 1)),
            ["1. x", "  (1) y", "2. z", "  (2) on"],
        ),
        (numbering(level(0, "ordinal", "%1")), items(("x", 0, 1), ("y", 0, 1)), ["1st x", "2nd y"]),
        (
            numbering(level(0, "decimal", "%1."), override=OVERRIDE),
            items(("x", 0, 1), ("y", 0, 2)),
            ["1. x", "a) y"],
        ),
    ],
)
def test_list_numbers_in_docx(xml, body, lines):
    assert read_here("docx", docx(body, *NUMBERED, numbering_xml=xml)).text.split("\n") == lines


MATRIX = "".join(
    "<m:mr>" + "".join(f"<m:e><m:r><m:t>{n}</m:t></m:r></m:e>" for n in row) + "</m:mr>" for row in ("12", "34")
)
BRACKETS = f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val="]"/></m:dPr><m:e><m:m>{MATRIX}</m:m></m:e></m:d>'
INTEGRAL = "<m:nary><m:sub><m:r><m:t>0</m:t></m:r></m:sub><m:e><m:r><m:t>x</m:t></m:r></m:e></m:nary>"
SUM = '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:e><m:r><m:t>x</m:t></m:r></m:e></m:nary>'
CHECKED = "<w:r><w:fldChar><w:ffData><w:checkBox>{}</w:checkBox></w:ffData></w:fldChar></w:r>"
LISTED = '<w:r><w:fldChar><w:ffData><w:ddList>{}<w:listEntry w:val="Oslo"/><w:listEntry w:val="Bergen"/>'
LISTED += "</w:ddList></w:ffData></w:fldChar></w:r>"


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (run("10") + run("6", '<w:vertAlign w:val="superscript"/>') + run(" cells, 2") + run("nd"), "10^6 cells, 2nd"),
        (run("10") + run("6", '<w:position w:val="8"/>') + run("a", '<w:position w:val="0"/>'), "10^6a"),
        (run("1") + run("st", '<w:vertAlign w:val="superscript"/>'), "1st"),
        (run("H") + run("2", '<w:vertAlign w:val="subscript"/>') + run("O"), "H2O"),
        (f"<m:oMath>{BRACKETS}{INTEGRAL}{SUM}</m:oMath>", "[1, 2; 3, 4]∫_0x∑x"),
        (CHECKED.format('<w:default w:val="0"/><w:checked/>') + CHECKED.format('<w:default w:val="0"/>'), "☒☐"),
        (LISTED.format('<w:result w:val="1"/>') + LISTED.format(""), "BergenOslo"),
        ('<w:r><w:sym w:font="Symbol" w:char="F061"/><w:sym w:font="Symbol" w:char="F0B3"/></w:r>', "α≥"),
        ('<w:r><w:sym w:font="Webdings" w:char="F04A"/></w:r>', "[symbol]"),
        ('<w:r><w:pict><v:textpath string="OPEN"/></w:pict></w:r>', "OPEN"),
    ],
)
def test_symbols_and_fields_in_docx(inner, text):
    assert read_here("docx", docx(f"<w:p>{inner}</w:p>")).text == text


def test_cells_omitted_at_the_start_of_a_row():
    row = '<w:tr><w:trPr><w:gridBefore w:val="1"/></w:trPr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr>'
    body = f"<w:tbl>{row.format(paragraph('b'), paragraph('c'))}</w:tbl>"
    assert read_here("docx", docx(body)).sections[0].blocks[0].rows == (("", "b", "c"),)


def test_a_linked_document_is_reported():
    document = read_here("docx", docx(paragraph("Main") + '<w:subDoc r:id="r9"/>'))
    assert document.text.endswith("[linked document]")
    assert document.notes == ("a linked document is not read: its part is missing",)


def point(text: str, mark: str) -> str:
    return f"<a:p><a:pPr>{mark}</a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>"


def test_list_numbers_of_slides_restart_after_other_paragraphs():
    number, both = '<a:buAutoNum type="arabicPeriod"/>', '<a:buAutoNum type="romanLcParenBoth" startAt="3"/>'
    points = point("a", number) + point("b", number) + point("c", both) + point("d", "<a:buNone/>") + point("e", number)
    lines = read_here("pptx", pptx(f"<p:sp>{points}</p:sp>")).sections[0].text.split("\n")
    assert [each for each in lines if each] == ["1. a", "2. b", "(iii) c", "d", "1. e"]


def test_superscripts_and_objects_of_slides():
    power = '<p:sp><a:p><a:r><a:t>10</a:t></a:r><a:r><a:rPr baseline="30000"/><a:t>6</a:t></a:r></a:p></p:sp>'
    text = read_here("pptx", pptx(power + '<p:oleObj progId="Excel.Sheet.12"/>' + shape("end"))).text
    assert text.split() == ["10^6", "[object:", "Excel.Sheet.12]end"]


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        ("80", '[<50]"low";"high"', "high"),
        ("2", '[=1]"one";[=2]"two";0" many"', "two"),
        ("5", '[=1]"one";[=2]"two";0" many"', "5 many"),
        ("1500", '[>=1000]0.0,"k";0', "1.5k"),
        ("0.500001423611", "hh:mm:ss.000", "12:00:00.123"),
    ],
)
def test_formats_with_conditions_and_parts_of_seconds(value, code, text):
    assert shown(value, code, EPOCH) == text


def test_formats_of_texts():
    assert labeled("17", '"ID-"@') == "ID-17"
    assert labeled("kept", '0;-0;0;@" (text)"') == "kept (text)"
    assert labeled("kept", "0.00") == "kept"


ROW = '<row r="1"><c r="A1" t="inlineStr"><is><t>Grün</t></is></c><!-- <c><v>9</v></c> -->'
ROW += '<c r="B1"><v><![CDATA[7]]></v></c></row>'


@pytest.mark.parametrize(("charset", "codec"), [("UTF-8", "utf-8"), ("UTF-16", "utf-16"), ("ISO-8859-1", "latin-1")])
def test_xml_of_sheets_in_any_encoding_with_comments_and_cdata(charset, codec):
    with zipfile.ZipFile(io.BytesIO(xlsx(ROW))) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    sheet = f'<?xml version="1.0" encoding="{charset}"?>' + parts["xl/worksheets/sheet1.xml"].decode()
    data = archive({**parts, "xl/worksheets/sheet1.xml": sheet.encode(codec)})
    assert read_here("xlsx", data).sections[0].blocks[1].rows == (("Grün", "7"),)


def test_endless_comments_take_linear_time(monkeypatch):
    monkeypatch.setattr("leap_core.documents.sheets.CHUNK", 100)
    assert read_here("xlsx", xlsx("<!--" * 20_000)).sections[0].text == "# Sheet"


def test_superscripts_in_cells():
    string = '<si><r><t>10</t></r><r><rPr><vertAlign val="superscript"/></rPr><t>6</t></r><r><t> m</t></r></si>'
    data = xlsx('<row r="1"><c r="A1" t="s"><v>0</v></c></row>', strings=string)
    assert read_here("xlsx", data).sections[0].text.endswith("10^6 m")


def test_text_boxes_and_charts_over_a_sheet_are_read():
    with zipfile.ZipFile(io.BytesIO(xlsx('<row r="1"><c r="A1"><v>1</v></c></row>'))) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    box = f'<x:wsDr {WORD} xmlns:x="urn:x"><x:sp><a:p><a:r><a:t>Remark</a:t></a:r></a:p></x:sp>'
    box += '<c:chart r:id="c"/></x:wsDr>'
    chart = f"<c:chart {WORD}><c:title><a:t>Load</a:t></c:title></c:chart>"
    parts |= {"xl/worksheets/_rels/sheet1.xml.rels": relationships(("d", "drawing", "../drawings/d.xml")).encode()}
    parts |= {"xl/drawings/d.xml": box.encode(), "xl/drawings/c.xml": chart.encode()}
    parts |= {"xl/drawings/_rels/d.xml.rels": relationships(("c", "chart", "c.xml")).encode()}
    assert read_here("xlsx", archive(parts)).sections[0].text.split("\n\n")[1:] == ["1", "Remark", "Chart: Load"]


SPACES = " ".join(f'xmlns:{name}="urn:{name}"' for name in ("o", "x", "t", "s", "d", "f", "l"))


def open_document(kind: str, body: str, automatic: str = "", styles: str = "") -> bytes:
    content = f"<o:auto>{automatic}</o:auto><o:body><o:text>{body}</o:text></o:body>"
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "styles.xml": f"<o:styles {SPACES}>{styles}</o:styles>",
            "content.xml": f"<o:doc {SPACES}>{content}</o:doc>",
        }
    )


def odt(body: str, automatic: str = "", styles: str = "") -> list[str]:
    return [each for each in read_here("odt", open_document("text", body, automatic, styles)).text.split("\n") if each]


def test_numbers_of_several_levels_in_odt():
    numbers = "".join(
        f'<x:list-level-style-number x:level="{n}" s:num-format="1" s:num-suffix="." x:display-levels="{n}"/>'
        for n in (1, 2)
    )
    inner = "<x:list><x:list-item><x:p>b</x:p></x:list-item></x:list>"
    body = f'<x:list x:style-name="L"><x:list-item><x:p>a</x:p>{inner}</x:list-item></x:list>'
    assert odt(body, f'<x:list-style s:name="L">{numbers}</x:list-style>') == ["1. a", "  1.1. b"]
    outline = "".join(f'<x:outline-level-style x:level="{n}" s:num-format="1" x:display-levels="{n}"/>' for n in (1, 2))
    heads = "".join(f'<x:h x:outline-level="{n}">{text}</x:h>' for n, text in ((1, "A"), (2, "B"), (2, "C"), (1, "D")))
    lines = odt(heads, styles=f"<x:outline-style>{outline}</x:outline-style>")
    assert lines == ["# 1 A", "## 1.1 B", "## 1.2 C", "# 2 D"]


RAISED = '<s:style s:name="R"><s:text-properties s:text-position="super 58%"/></s:style>'


def test_superscripts_boxes_fields_and_comments_of_odt():
    assert odt('<x:p>10<x:span x:style-name="R">6</x:span> m</x:p>', RAISED) == ["10^6 m"]
    assert odt("<x:p>before <d:text-box><x:p>box</x:p></d:text-box>after</x:p>") == ["box", "before after"]
    fields = (
        '<o:forms><f:text f:id="c" f:current-value="Jane"/><f:checkbox f:id="d" f:current-state="checked"/></o:forms>'
    )
    assert odt(f'{fields}<x:p>Name: <d:control d:control="c"/> <d:control d:control="d"/></x:p>') == ["Name: Jane ☒"]
    assert odt("<x:p>Text<o:annotation><x:p>remark</x:p></o:annotation></x:p>") == ["Text", "Comment: remark"]


CODE = '<s:style s:name="P7" s:parent-style-name="Preformatted_20_Text"/>'


@pytest.mark.parametrize("style", ["Preformatted_20_Text", "P7", "Source_20_Code"])
def test_code_of_odt_keeps_its_indentation(style):
    lines = ["if a:", '<x:s x:c="4"/>b = 1', "", '<x:tab/>c<x:line-break/><x:s/>d  e<x:s x:c="2"/>f']
    code = "".join(f'<x:p x:style-name="{style}">{line}</x:p>' for line in lines)
    data = open_document("text", f'<x:p>Before</x:p>{code}<x:p>After</x:p><x:p x:style-name="{style}"> g</x:p>', CODE)
    written = "```\nif a:\n    b = 1\n\n\tc\n d  e  f\n```"
    assert read_here("odt", data).text.rstrip() == f"Before\n\n{written}\n\nAfter\n\n```\n g\n```"
    listed = f"<x:list><x:list-item>{code}</x:list-item></x:list><t:table><t:table-row><t:table-cell>{code}"
    data = open_document("text", f"{listed}</t:table-cell></t:table-row></t:table>", CODE)
    assert read_here("odt", data).text.count("\n    b = 1\n") == 2


def test_a_comment_within_code_and_code_within_prose_of_odt_keep_their_kinds():
    def line(text: str, style: str = "Preformatted_20_Text") -> str:
        return f'<x:p x:style-name="{style}">{text}</x:p>'

    commented = line('<x:s x:c="4"/>return 1<o:annotation><x:p>why</x:p></o:annotation>')
    data = open_document("text", line("def f():") + commented + line('<x:s x:c="4"/>pass'), CODE)
    assert "def f():\n    return 1\n    pass" in read_here("odt", data).text
    boxed = f"<x:p>See <d:text-box>{line('x = 1')}</d:text-box>here.</x:p>{line('y = 2')}"
    text = read_here("odt", open_document("text", boxed, CODE)).text
    assert "See here." in text and "```\nSee" not in text and "```\ny = 2\n```" in text


def test_text_boxes_objects_dates_and_superscripts_of_ods():
    cells = '<t:table-cell o:date-value="2024-02-29"><x:p>29/02/24</x:p></t:table-cell>'
    cells += '<t:table-cell><x:p>10<x:span x:style-name="R">6</x:span></x:p><d:object/></t:table-cell>'
    box = "<t:shapes><d:text-box><x:p>Remark</x:p></d:text-box></t:shapes>"
    body = f'<t:table t:name="S">{box}<t:table-row>{cells}</t:table-row></t:table>'
    document = read_here("ods", open_document("spreadsheet", body, RAISED))
    assert document.sections[0].text.split("\n\n")[1:] == ["2024-02-29 | 10^6", "Remark"]
    assert document.notes == ("sheet S: a chart or another object is not read",)


@pytest.mark.parametrize("said", ["text-web", "text-master", "text-template"])
def test_other_opendocument_texts_are_read_as_odt(said):
    data = open_document(said, "<x:p>a</x:p>")
    assert kind_by_content(data[:99], None, data, "a") == "odt"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<ol><li value=7>a<li>b</ol>", "7. a\n8. b"),
        ("<ol type=a><li>a<li>b</ol><ol type=I start=4><li>c</ol>", "a. a\nb. b\nIV. c"),
        ("<ol reversed start=9><li>a<li>b</ol><ol reversed><li>c<li>d</ol>", "9. a\n8. b\n2. c\n1. d"),
        ("<ol reversed><li>a<ul><li>b</ul></ol>", "- a\n  - b"),
        ("<ruby>東<rp>(</rp><rt>とう</rt><rp>)</rp></ruby>京 <ruby>漢<rt>かん</ruby>字", "東(とう)京 漢(かん)字"),
        ("10<sup>6</sup> and 10<sup>-3</sup>, 1<sup>st</sup>", "10^6 and 10^-3, 1 st"),
        ("Name <input value='Jane Roe'><input type=hidden value=t>", "Name Jane Roe"),
        ("<input type=checkbox checked> yes <input type=radio> no", "☒ yes ☐ no"),
        ("<select><option>Red<option selected>Blue</select>", "Red ☒ Blue"),
    ],
)
def test_numbers_and_fields_of_pages(page, text):
    assert read_here("html", page.encode()).text == text


def mail(headers: str, body: bytes) -> bytes:
    return f"From: a@b.org\n{headers}\n\n".encode() + body


def test_base64_in_several_parts_and_with_trailing_lines():
    header = "Content-Transfer-Encoding: base64"
    pieces = b64encode(b"Hello wor") + b64encode(b"ld! This") + b"\n" + b64encode(b" is it")
    assert read_here("eml", mail(header, pieces)).text.endswith("\n\nHello world! This is it")
    listed = b64encode(b"The body") + b"\n" + b"longwords " * 40 + b"A list, its footer\n"
    assert read_here("eml", mail(header, listed)).text.endswith("\n\nThe body")


def test_messages_of_a_mailbox_and_encodings_that_are_unknown():
    first, second = (
        mail("Subject: One", b"first"),
        mail("Subject: Two\nContent-Transfer-Encoding: x-uuencode", b"begin"),
    )
    begin = b"From a@b.org Mon Jan  1 00:00:00 2024\n"
    document = read_here("eml", begin + first + b"\n\n" + begin + second)
    assert [section.title for section in document.sections] == ["One", "Two"]
    assert document.notes == ("the transfer encoding x-uuencode is not read",)
    assert read_here("eml", mail("Subject: One", b"a\n\nFrom Kiel at 10:30 on\nthe road")).text.endswith("the road")


def test_all_sheets_of_an_old_notebook_and_outputs_of_other_kinds():
    sheets = [{"cells": [{"cell_type": "markdown", "source": text}]} for text in ("one", "two")]
    assert read_here("ipynb", json.dumps({"worksheets": sheets}).encode()).text == "one\n\ntwo"
    outputs = [{"output_type": "display_data", "data": {"application/vnd.plotly.v1+json": {}}}]
    cells = [{"cell_type": "code", "source": "x", "outputs": outputs}]
    text = read_here("ipynb", json.dumps({"cells": cells}).encode()).text
    assert text.endswith("[output: application/vnd.plotly.v1+json]")


FONTS = r"{\fonttbl{\f0 Arial;}{\f1\fcharset204 Arial;}{\f2\fcharset2 Symbol;}{\f3\fcharset2 Wingdings;}}"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"\f1\'cf\'f0\plain caf\'e9", "Прcafé"),
        (r"\f2 a\'b3\f3 x\f0  end", "α≥[symbol] end"),
        (r"10{\super 6} m, 10\super 3\nosupersub  g", "10^6 m, 10^3 g"),
        (r"10{\up6 3}\up0 m", "10^3m"),
        (r"x{\upr{ans?}{\*\ud{uni\u8364?}}}y", "xuni€y"),
    ],
)
def test_fonts_and_superscripts_of_rtf(body, text):
    assert read_here("rtf", (r"{\rtf1\ansi\deff0" + FONTS + body + "}").encode()).text == text


def test_delimiters_of_tables():
    assert list(table_rows("a,b\n1,2,3\n4\n")) == [(2, "a: 1\nb: 2\n3"), (3, "a: 4")]
    assert list(table_rows("sep=;\nid;v\n1;a,b\n")) == [(3, "id: 1\nv: a,b")]
    assert list(table_rows("name\nAnn\nBob, Jr\n")) == [(2, "name: Ann"), (3, "name: Bob, Jr")]
