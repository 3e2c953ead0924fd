"""docx and pptx: what programs write into them, in its order."""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from .here import read_here
from .office_files import WORD, docx, paragraph, pptx, run, shape

NUMBERING = f"""<w:numbering {WORD}><w:abstractNum w:abstractNumId="0">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="§ %1"/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="(%2)"/></w:lvl>
<w:lvl w:ilvl="2"><w:start w:val="4"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%1.%3"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="1"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="x"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>
<w:num w:numId="3"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride></w:num>
</w:numbering>"""
STYLES = f"""<w:styles {WORD}><w:style w:styleId="T"><w:name w:val="Title"/></w:style>
<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>
<w:style w:styleId="own"><w:name w:val="Own"/><w:basedOn w:val="berschrift2"/></w:style>
<w:style w:styleId="listed"><w:name w:val="L"/><w:pPr><w:numPr><w:numId w:val="2"/></w:numPr></w:pPr></w:style></w:styles>"""


def text_of(body: str, *links: tuple[str, str, str], **parts: str | bytes) -> str:
    return read_here("docx", docx(body, *links, **parts)).text


def item(text: str, level: int = 0, number: int = 1) -> str:
    return paragraph(text, f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>')


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{each}</w:tr>' for each in rows)}</w:tbl>"


FIELDS = (
    '<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>DATE</w:instrText></w:r>'
    f'{run("4 March")}{run(" and ")}<w:fldSimple w:instr="DOCPROPERTY Client">{run("ACME")}</w:fldSimple></w:p>'
)
RUBY = f"<w:p><w:r><w:ruby><w:rt>{run('とうきょう')}</w:rt><w:rubyBase>{run('東京')}</w:rubyBase></w:ruby></w:r>{run('駅')}</w:p>"
FRACTION = "<m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>ab</m:t></m:r></m:den></m:f>"
MATH = (
    f"<w:p>{run('A = ')}<m:oMath><m:sSup><m:e><m:r><m:t>r</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup>"
    f"</m:sSup>{FRACTION}<m:rad><m:e><m:r><m:t>x</m:t></m:r></m:e></m:rad></m:oMath>{run(' cm')}</w:p>"
)
CHANGED = f"<w:p><w:ins>{run('put in')}</w:ins><w:del><w:r><w:delText>out</w:delText></w:r></w:del>{run('gone', '<w:vanish/>')}</w:p>"
BOX = (
    "<w:p><w:r><mc:AlternateContent><mc:Choice><wps:txbx><w:txbxContent>{0}</w:txbxContent></wps:txbx></mc:Choice>"
    "<mc:Fallback><v:textbox><w:txbxContent>{0}</w:txbxContent></v:textbox></mc:Fallback></mc:AlternateContent></w:r>{1}</w:p>"
).format(paragraph("in a box"), run("around it"))
SIGNS = (
    '<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:noBreakHyphen/><w:t>c</w:t><w:br/><w:sym w:char="F0B7"/></w:r></w:p>'
)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (FIELDS, "4 March and ACME"),
        (RUBY, "東京(とうきょう)駅"),
        (MATH, "A = r^21/(ab)√(x) cm"),
        (CHANGED, "put in"),
        (BOX, "in a box\n\naround it"),
        (SIGNS, "a\tb-c\n•"),
        (
            table(cell("Head", '<w:gridSpan w:val="2"/>') + cell("C"), cell("1") + cell("2") + cell("3")),
            "Head | Head | C\n1 | 2 | 3",
        ),
        (
            table(cell("V", '<w:vMerge w:val="restart"/>') + cell("b1"), cell("", "<w:vMerge/>") + cell("b2")),
            "V | b1\nV | b2",
        ),
        (
            table(f"<w:tc>{paragraph('1 Main St')}{paragraph('Springfield')}</w:tc>{cell('x')}"),
            "1 Main St Springfield | x",
        ),
        (table(f"<w:tc>{table(cell('n1') + cell('n2'))}{paragraph('')}</w:tc>{cell('x')}"), "n1, n2 | x"),
        (table(cell("") + cell("900"), cell("300") + cell("")), "| 900\n300"),
    ],
)
def test_all_elements_of_a_body_are_read(body, text):
    assert text_of(body).strip() == text


def test_lists_are_numbered_as_they_are_shown():
    body = item("Rent") + item("due", 1) + item("late", 1) + paragraph("A remark.") + item("Deposit") + item("deep", 2)
    body += item("bullet", number=2) + item("new", number=3)
    links = [("n", "numbering", "numbering.xml")]
    assert text_of(body, *links, numbering_xml=NUMBERING).split("\n") == [
        *(
            "§ 1 Rent",
            "  (a) due",
            "  (b) late",
            "",
            "A remark.",
            "",
            "§ 2 Deposit",
            "    2.IV deep",
            "- bullet",
            "§ 1 new",
        ),
    ]


def test_styles_make_headings_and_lists():
    body = "".join(paragraph(each, f'<w:pStyle w:val="{each}"/>') for each in ("T", "berschrift2", "own", "listed"))
    body += paragraph("outline", '<w:outlineLvl w:val="2"/>')
    links = [("s", "styles", "styles.xml"), ("n", "numbering", "numbering.xml")]
    text = text_of(body, *links, styles_xml=STYLES, numbering_xml=NUMBERING)
    assert text == "# T\n\n## berschrift2\n\n## own\n\n- listed\n\n### outline"


def test_notes_comments_headers_and_footers_are_read():
    note = f'<w:footnote w:id="2">{paragraph("within a week")}</w:footnote>'
    body = f'<w:p>{run("Pay")}<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:commentReference w:id="0"/></w:r></w:p>'
    comment = f'<w:comment w:id="0">{paragraph("really?")}</w:comment>'
    links = [(kind, kind, f"{kind}.xml") for kind in ("footnotes", "comments", "header", "footer")]
    separator = f'<w:footnote w:id="0" w:type="separator">{paragraph("")}</w:footnote>'
    text = text_of(
        body,
        *links,
        footnotes_xml=f"<w:footnotes {WORD}>{separator}{note}</w:footnotes>",
        comments_xml=f"<w:comments {WORD}>{comment}</w:comments>",
        header_xml=f"<w:hdr {WORD}>{paragraph('Acme')}</w:hdr>",
        footer_xml=f"<w:ftr {WORD}>{paragraph('Foot')}</w:ftr>",
    )
    assert text == "Acme\n\nPay[^2][^c0]\n\n[^2]: within a week\n\n[^c0]: really?\n\nFoot"


CHART = (
    f"<c:chartSpace {WORD}><c:chart><c:title><a:t>Sales</a:t></c:title><c:ser><c:tx><c:v>2026</c:v></c:tx>"
    "<c:cat><c:v>Q1</c:v><c:v>Q2</c:v></c:cat><c:val><c:v>3</c:v><c:v>4</c:v></c:val></c:ser></c:chart></c:chartSpace>"
)
DIAGRAM = f"<dgm:dataModel {WORD}><dgm:pt><a:t>Plan</a:t></dgm:pt><dgm:pt type='pres'/><dgm:pt><a:t>Do</a:t></dgm:pt></dgm:dataModel>"


def test_charts_diagrams_and_embedded_documents_are_read():
    body = '<w:p><w:r><c:chart r:id="c"/></w:r></w:p><w:p><w:r><dgm:relIds r:dm="d"/></w:r></w:p><w:altChunk r:id="h"/>'
    body += '<w:altChunk r:id="b"/><w:p><w:r><c:chart r:id="gone"/></w:r></w:p>'
    links = [
        ("c", "chart", "c.xml"),
        ("d", "diagramData", "d.xml"),
        ("h", "aFChunk", "h.html"),
        ("b", "aFChunk", "b.bin"),
    ]
    document = read_here(
        "docx", docx(body, *links, c_xml=CHART, d_xml=DIAGRAM, h_html="<p>from <b>HTML</b></p>", b_bin=b"?")
    )
    assert document.text.replace("\n\n", "\n").split("\n") == [
        *(
            "Chart: Sales",
            "| 2026",
            "Q1 | 3",
            "Q2 | 4",
            "- Plan",
            "- Do",
            "from HTML",
            "[inserted document]",
            "[chart]",
        )
    ] or document.text.split() == [
        "Chart:",
        "Sales",
        "|",
        "2026",
        "Q1",
        "|",
        "3",
        "Q2",
        "|",
        "4",
        "-",
        "Plan",
        "-",
        "Do",
        "from",
        "HTML",
        "[inserted",
        "document][chart]",
    ]
    assert document.notes == (
        "an inserted document is not read: b.bin",
        "a chart is not read: its part is missing",
    )


def test_the_main_part_is_the_one_that_the_package_names():
    assert read_here("docx", docx(paragraph("in the browser"), main="word/document2.xml")).text == "in the browser"


def test_parts_that_are_nested_too_deeply_are_refused():
    from leap_core.documents.blocks import UnreadableDocumentError

    with pytest.raises(UnreadableDocumentError, match="nested too deeply"):
        text_of("<w:tbl><w:tr><w:tc>" * 2000)
    body = "<w:tbl><w:tr><w:tc>" * 100 + paragraph("deep") + "</w:tc></w:tr></w:tbl>" * 100
    assert text_of(body).strip() == "deep"


def test_slides_are_read():
    group = f"<p:grpSp>{shape('grouped')}</p:grpSp>"
    unknown = f"<mc:AlternateContent><mc:Choice>{shape('newer')}</mc:Choice><mc:Fallback>{shape('older')}</mc:Fallback></mc:AlternateContent>"
    tables = "<a:tbl><a:tr><a:tc gridSpan='2'><a:txBody><a:p><a:r><a:t>H</a:t></a:r></a:p></a:txBody></a:tc><a:tc hMerge='1'/>"
    tables += "<a:tc><a:txBody><a:p><a:r><a:t>C</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl>"
    points = "<p:sp><p:nvPr><p:ph idx='1'/></p:nvPr><a:p><a:r><a:t>one</a:t></a:r></a:p><a:p><a:pPr lvl='1'/><a:r><a:t>two</a:t></a:r></a:p>"
    points += "<a:p><a:pPr><a:buAutoNum type='arabicPeriod'/></a:pPr><a:r><a:t>three</a:t></a:r></a:p></p:sp>"
    first = shape("Plan", place="ctrTitle") + points + group + unknown + tables + shape("3", place="sldNum")
    notes = f"<p:notes {WORD}>{shape('Say this.', place='body')}{shape('1', place='sldNum')}</p:notes>"
    data = pptx(first, shape("Second", place="title"), links=(("n", "notesSlide", "n.xml"),), n_xml=notes)
    document = read_here("pptx", data)
    assert [section.title for section in document.sections] == ["Plan", "Second"]
    assert document.sections[0].text.replace("\n\n", "\n").split("\n") == [
        *("# Plan", "- one", "  - two", "1. three", "grouped", "newer", "H | H | C", "Notes: Say this.")
    ]


CODE_STYLES = "".join(
    f'<w:style w:styleId="{id}"><w:name w:val="{name}"/>{base}</w:style>'
    for id, name, base in (
        ("SourceCode", "Source Code", ""),
        ("Own", "My style", '<w:basedOn w:val="SourceCode"/>'),
        ("HTML1", "HTML Preformatted", ""),
        ("Codeword", "Codewords", ""),
    )
)


@pytest.mark.parametrize(("style", "is_code"), [("SourceCode", 1), ("Own", 1), ("HTML1", 1), ("Codeword", 0), ("", 0)])
def test_code_keeps_its_indentation(style, is_code):
    lines = ["if a:", "    b = 1", "", "        c"]
    body = paragraph("Before") + "".join(paragraph(line, f'<w:pStyle w:val="{style}"/>') for line in lines)
    styles = f"<w:styles {WORD}>{CODE_STYLES}</w:styles>"
    text = read_here("docx", docx(body + paragraph("After"), ("r9", "styles", "styles.xml"), styles_xml=styles)).text
    code = "```\nif a:\n    b = 1\n\n        c\n```" if is_code else "if a:\n\nb = 1\n\nc"
    assert text.rstrip() == f"Before\n\n{code}\n\nAfter"
