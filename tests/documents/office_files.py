"""Office files of a few parts, written as text."""

from __future__ import annotations

import io
import zipfile

RELATIONSHIPS = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{}</Relationships>'
WORD = " ".join(
    f'xmlns:{name}="{space}"'
    for name, space in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "r": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
        "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
        "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
        "dgm": "http://schemas.openxmlformats.org/drawingml/2006/diagram",
    }.items()
)


def archive(parts: dict[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, part in parts.items():
            packed.writestr(name, part)
    return data.getvalue()


def relationships(*links: tuple[str, str, str]) -> str:
    """Relationships of an id, a type and a target."""
    return RELATIONSHIPS.format("".join(f'<Relationship Id="{i}" Type="x/{t}" Target="{to}"/>' for i, t, to in links))


def docx(body: str, *links: tuple[str, str, str], main: str = "word/document.xml", **parts: str | bytes) -> bytes:
    """A docx with this body; ``parts`` are in its folder, by names with ``_xml`` for ``.xml``."""
    named = {f"word/{name.replace('_', '.')}": part for name, part in parts.items()}
    folder, _, name = main.rpartition("/")
    return archive(
        {
            "_rels/.rels": relationships(("r1", "officeDocument", main)),
            main: f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
            f"{folder}/_rels/{name}.rels": relationships(*links),
            **named,
        }
    )


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{run(text)}</w:p>"


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def pptx(*slides: str, links: tuple[tuple[str, str, str], ...] = (), **parts: str | bytes) -> bytes:
    """A deck of slides, each the XML of its shapes."""
    ids = "".join(f'<p:sldId id="{n}" r:id="s{n}"/>' for n in range(len(slides)))
    return archive(
        {
            "_rels/.rels": relationships(("r1", "officeDocument", "ppt/presentation.xml")),
            "ppt/presentation.xml": f"<p:presentation {WORD}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": relationships(
                *((f"s{n}", "slide", f"slides/slide{n}.xml") for n in range(len(slides)))
            ),
            **{f"ppt/slides/slide{n}.xml": f"<p:sld {WORD}>{each}</p:sld>" for n, each in enumerate(slides)},
            "ppt/slides/_rels/slide0.xml.rels": relationships(*links),
            **{f"ppt/slides/{name.replace('_', '.')}": part for name, part in parts.items()},
        }
    )


def shape(*texts: str, place: str | None = None) -> str:
    kind = "" if place is None else f'<p:nvPr><p:ph type="{place}"/></p:nvPr>'
    words = "".join(f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>" for text in texts)
    return f"<p:sp>{kind}<p:txBody>{words}</p:txBody></p:sp>"


def xlsx(
    rows: str, *, styles: str = "", before: str = "", after: str = "", strings: str = "", state: str = ""
) -> bytes:
    """A workbook of one sheet with these rows, and a second, empty one of a ``state``."""
    second = f'<sheet name="Second" sheetId="2" state="{state}" r:id="r2"/>' if state else ""
    return archive(
        {
            "_rels/.rels": relationships(("r1", "officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f'<workbook xmlns:r="urn:a"><sheets><sheet name="Sheet" sheetId="1" r:id="r1"/>{second}'
            "</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": relationships(("r1", "worksheet", "worksheets/sheet1.xml")),
            "xl/worksheets/sheet1.xml": f"<worksheet>{before}<sheetData>{rows}</sheetData>{after}</worksheet>",
            "xl/styles.xml": f"<styleSheet>{styles}</styleSheet>",
            "xl/sharedStrings.xml": f"<sst>{strings}</sst>",
        }
    )


def ods(rows: str) -> bytes:
    """A workbook of one sheet R; ``t`` is the prefix of tables, ``x`` that of texts."""
    return archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": '<o:d xmlns:o="urn:o" xmlns:t="urn:t" xmlns:x="urn:x"><o:body><o:spreadsheet>'
            f'<t:table t:name="R">{rows}</t:table></o:spreadsheet></o:body></o:d>',
        }
    )
