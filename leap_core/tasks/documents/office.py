"""What libraries read of documents: pages as titles and texts. ``parse`` and ``pictures`` run in a child process."""

from __future__ import annotations

import base64
import io
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import IO, Any

from .html import CELL_END, UnreadableDocumentError, decoded_page, html_lines

Pages = list[tuple[str, str, bool]]
"""Of each page a title, the text, and whether there is anything on it."""

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
NOTE_LINK = re.compile(r' ?<a href="#(?:foot|end)note-ref-[^"]*">↑</a>')
"""From a note back to its place."""
MOST_CELLS = 1_000_000
MOST_PAGES = 10_000


def parse(request: Mapping[str, Any], _answer: Callable[[Mapping[str, Any]], None]) -> Pages:
    """The pages of a document of this ``kind``. Raises UnreadableDocumentError; ``{name}`` in it is the document."""
    kind = request["kind"]
    try:
        with _opened(request) as file:
            return READERS[kind](file)
    except (UnreadableDocumentError, OSError, MemoryError):
        raise
    except Exception as error:  # of damaged files libraries raise nearly anything
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnreadableDocumentError(f"{{name}} cannot be read as {kind.upper()}: {why}") from None


def pictures(request: Mapping[str, Any], answer: Callable[[Mapping[str, Any]], None]) -> None:
    """Answer each of these pages of a PDF as a JPEG."""
    with _opened(request) as file:
        document = _pdf(file)
        for number in request["pages"]:
            page = document[number - 1]
            scale = request["side"] / max(page.get_width(), page.get_height(), 1)
            picture, data = page.render(scale=min(scale, 8)).to_pil().convert("RGB"), io.BytesIO()
            picture.save(data, "JPEG", quality=90)
            answer({"page": number, "jpeg": base64.b64encode(data.getvalue()).decode("ascii")})
            page.close()


def _opened(request: Mapping[str, Any]) -> IO[bytes]:
    return io.BytesIO(base64.b64decode(request["data"])) if "data" in request else Path(request["path"]).open("rb")


def _pdf(file: IO[bytes]) -> Any:
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        if "assword" in str(error):
            raise UnreadableDocumentError(
                "{name} is encrypted, and opens with a password only", hint="take the password off, with qpdf --decrypt"
            ) from None
        raise


def _pdf_pages(file: IO[bytes]) -> Pages:
    document = _pdf(file)
    if len(document) > MOST_PAGES:
        raise UnreadableDocumentError(f"{{name}} has {len(document)} pages; at most {MOST_PAGES} are read")
    pages = []
    for number in range(len(document)):
        page = document[number]
        words = page.get_textpage()
        text = words.get_text_bounded().replace("\r\n", "\n").replace("\r", "\n").replace("\ufffe", "")
        pages.append(("", text, next(page.get_objects(max_depth=1), None) is not None))
        words.close()
        page.close()
    return pages


def _word_pages(file: IO[bytes]) -> Pages:
    """The text in the order of the document, as that of its HTML; headers before it, footers and notes behind."""
    import zipfile
    from xml.etree import ElementTree

    import mammoth

    heads: dict[str, None] = {}
    feet: dict[str, None] = {}
    with zipfile.ZipFile(file) as archive:
        for name in sorted(archive.namelist()):
            for part, kept in (("word/header", heads), ("word/footer", feet)):
                if name.startswith(part) and name.endswith(".xml"):
                    paragraphs = ElementTree.fromstring(archive.read(name)).iter(f"{WORD}p")
                    texts = ("".join(each.text or "" for each in one.iter(f"{WORD}t")) for one in paragraphs)
                    kept.update(dict.fromkeys(text for text in texts if text.strip()))
    styles = "p[style-name='Title'] => h1:fresh"
    page = NOTE_LINK.sub("", mammoth.convert_to_html(file, style_map=styles, convert_image=lambda _image: []).value)
    return [("", "\n".join([*heads, *(line.text for line in html_lines(page)), *feet]), True)]


def _row(cells: Any) -> str:
    return CELL_END.join(" ".join(str(cell).split()) for cell in cells)


def _sheet_pages(file: IO[bytes]) -> Pages:
    """A page a sheet, hidden ones left out: its name as a heading, then a line a row. What formulas gave last stands
    in their places."""
    from openpyxl import load_workbook

    book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
    pages, cells = [], 0
    for sheet in book.worksheets:
        if sheet.sheet_state != "visible":
            continue
        lines = [f"# {sheet.title}"]
        for row in sheet.iter_rows(values_only=True):
            cells += len(row)
            if cells > MOST_CELLS:
                raise UnreadableDocumentError(f"{{name}} has more than {MOST_CELLS} cells")
            filled = ["" if value is None else _cell(value) for value in row]
            while filled and not filled[-1]:
                filled.pop()
            lines.append(_row(filled))
        while lines and not lines[-1]:
            lines.pop()
        pages.append((sheet.title, "\n".join(lines), True))
    return pages


def _cell(value: Any) -> str:
    from datetime import datetime

    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _slide_pages(file: IO[bytes]) -> Pages:
    """A page a slide: the texts and tables of its shapes, then its notes."""
    from pptx import Presentation

    pages = []
    for slide in Presentation(file).slides:
        title = slide.shapes.title
        heading = title.text_frame.text.strip() if title is not None else ""
        lines = [f"# {heading}"] if heading else []
        for text in _texts_of_shapes(slide.shapes, None if title is None else title.shape_id):
            lines += [text, ""]
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None and notes.text.strip():
            lines += ["Notes:", notes.text]
        pages.append((heading, "\n".join(lines), True))
    return pages


def _texts_of_shapes(shapes: Any, title: int | None) -> Iterator[str]:
    for shape in shapes:
        if shape.shape_type == 6:  # a group
            yield from _texts_of_shapes(shape.shapes, title)
        elif getattr(shape, "has_table", False):
            yield "\n".join(_row(cell.text for cell in row.cells) for row in shape.table.rows)
        elif shape.has_text_frame and shape.shape_id != title and shape.text_frame.text.strip():
            yield shape.text_frame.text


def _book_pages(file: IO[bytes]) -> Pages:
    """A page a part of the book's spine, in its order."""
    import zipfile
    from urllib.parse import unquote
    from xml.etree import ElementTree

    with zipfile.ZipFile(file) as archive:
        container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
        root = next(each.get("full-path") for each in container.iter() if each.tag.endswith("}rootfile"))
        package = ElementTree.fromstring(archive.read(str(root)))
        items = {each.get("id"): each.get("href") or "" for each in package.iter() if each.tag.endswith("}item")}
        pages = []
        for each in package.iter():
            if not each.tag.endswith("}itemref") or each.get("idref") not in items:
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(str(root)), unquote(items[each.get("idref")])))
            text = _html_text(decoded_page(archive.read(path)))
            if text:
                pages.append((text.partition("\n")[0].lstrip("# "), text, True))
    return pages


ODF = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
OFFICE, TEXT, TABLE, DRAWING = (ODF % name for name in ("office", "text", "table", "drawing"))
AS_HTML = {
    f"{TEXT}p": "p",
    f"{TEXT}list": "ul",
    f"{TEXT}list-item": "li",
    f"{TABLE}table": "table",
    f"{TEXT}line-break": "br",
    f"{TEXT}note-body": "div",
}
NOT_SHOWN = {f"{TEXT}tracked-changes", f"{TEXT}note-citation", f"{OFFICE}annotation"}
MOST_REPEATS = 1000
"""Of a row or cell that is written once; more are the rest of an empty sheet."""


def _open_document_pages(file: IO[bytes]) -> Pages:
    """A text in its order, notes behind their paragraphs; a page a visible sheet; a page a slide."""
    import zipfile
    from xml.etree import ElementTree

    with zipfile.ZipFile(file) as archive:
        root = ElementTree.fromstring(archive.read("content.xml"))
    return _OpenDocument(root).pages()


class _OpenDocument:
    """The content of an OpenDocument. ``_hidden``: names of styles of sheets that are not shown. ``_numbered``: those
    of lists with numbers."""

    def __init__(self, root: Any) -> None:
        style = ODF % "style"
        self._body = next(root.iter(f"{OFFICE}body"))
        self._hidden = {
            each.get(f"{style}name")
            for each in root.iter(f"{style}style")
            if any(one.get(f"{TABLE}display") == "false" for one in each)
        }
        self._numbered = {
            each.get(f"{style}name")
            for each in root.iter(f"{TEXT}list-style")
            if each[:1] and each[0].tag == f"{TEXT}list-level-style-number"
        }

    def pages(self) -> Pages:
        sheets = self._body.findall(f"{OFFICE}spreadsheet/{TABLE}table")
        slides = self._body.findall(f"{OFFICE}presentation/{DRAWING}page")
        if sheets:
            shown = [each for each in sheets if each.get(f"{TABLE}style-name") not in self._hidden]
            named = [(each.get(f"{TABLE}name") or "", self._rows(each)) for each in shown]
            return [(name, "\n".join([f"# {name}", *rows]), True) for name, rows in named]
        texts = [_html_text(self._html(each)) for each in slides or [self._body]]
        return [(text.partition("\n")[0] if slides else "", text, True) for text in texts]

    def _html(self, element: Any) -> str:
        """An element, and what is in it."""
        tag = element.tag
        if tag in NOT_SHOWN:
            return ""
        if tag in (f"{TEXT}s", f"{TEXT}tab"):
            return " "
        if tag == f"{TABLE}table-row":
            return f"<tr>{''.join(f'<td>{each}</td>' for each in self._cells(element))}</tr>"
        inner = escape(element.text or "") + "".join(self._html(each) + escape(each.tail or "") for each in element)
        if tag == f"{TEXT}h":
            level = min(int(element.get(f"{TEXT}outline-level") or 1), 6)
            return f"<h{level}>{inner}</h{level}>"
        name = "ol" if element.get(f"{TEXT}style-name") in self._numbered else AS_HTML.get(tag)
        return inner if name is None else f"<{name}>{inner}</{name}>"

    def _cells(self, row: Any) -> list[str]:
        cells: list[str] = []
        for cell in row:
            content = "".join(map(self._html, cell))
            cells += [content] * min(int(cell.get(f"{TABLE}number-columns-repeated") or 1), MOST_REPEATS)
        while cells and not cells[-1]:
            cells.pop()
        return cells

    def _rows(self, sheet: Any) -> Iterator[str]:
        """A line a row, empty ones too, so that lines count as rows do; none behind the last row with words."""
        empty = 0
        for row in sheet.iter(f"{TABLE}table-row"):
            text = _row(map(_html_text, self._cells(row)))
            repeats = int(row.get(f"{TABLE}number-rows-repeated") or 1)
            if not text:
                empty += repeats
                continue
            yield from [""] * min(empty, MOST_CELLS)
            yield from [text] * min(repeats, MOST_REPEATS)
            empty = 0


def _html_text(page: str) -> str:
    return "\n".join(line.text for line in html_lines(page)).rstrip()


def _rtf_pages(file: IO[bytes]) -> Pages:
    from striprtf.striprtf import rtf_to_text

    return [("", rtf_to_text(file.read().decode("latin-1"), errors="replace").strip(), True)]


READERS: Mapping[str, Callable[[IO[bytes]], Pages]] = {
    "pdf": _pdf_pages,
    "docx": _word_pages,
    "xlsx": _sheet_pages,
    "pptx": _slide_pages,
    "epub": _book_pages,
    **dict.fromkeys(("odt", "ods", "odp"), _open_document_pages),
    "rtf": _rtf_pages,
}


def email_pages(data: bytes, name: str) -> Pages:
    """A message: who, when, what about, then its text; names of what is attached."""
    from email import message_from_bytes
    from email.policy import default

    try:
        message = message_from_bytes(data, policy=default)
        heads = [f"{head}: {message[head]}" for head in ("From", "To", "Cc", "Date", "Subject") if message[head]]
        body = message.get_body(("plain", "html"))
        text = "" if body is None else str(body.get_content())
        if body is not None and body.get_content_type() == "text/html":
            text = _html_text(text)
        attached = [f"Attached: {part.get_filename()}" for part in message.iter_attachments() if part.get_filename()]
    except Exception as error:  # of damaged messages it raises nearly anything
        raise UnreadableDocumentError(f"{name} cannot be read as EML: {error or type(error).__name__}") from None
    return [(str(message["Subject"] or ""), "\n".join([*heads, "", text.rstrip(), *attached]), True)]


def notebook_pages(data: bytes, name: str) -> Pages:
    """A notebook's cells in their order: text as it is, code in fences, and what it printed."""
    try:
        notebook = json.loads(data)
        blocks = [_notebook_cell(cell) for cell in notebook["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableDocumentError(f"{name} is no notebook: {error or type(error).__name__}") from None
    return [("", "\n\n".join(blocks), True)]


def _notebook_cell(cell: Mapping[str, Any]) -> str:
    source = "".join(cell.get("source") or "")
    if cell.get("cell_type") != "code":
        return source
    outputs = (out.get("text") or (out.get("data") or {}).get("text/plain") or "" for out in cell["outputs"])
    printed = "".join(map("".join, outputs))
    return f"```\n{source}\n```" + (f"\n{printed.rstrip()}" if printed.strip() else "")
