"""What libraries read of documents: pages as titles and texts. ``parse`` and ``pictures`` run in a child process."""

from __future__ import annotations

import base64
import io
import json
import posixpath
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from .html import CELL_END, UnreadableDocumentError, decoded_page, html_lines

Pages = list[tuple[str, str, bool]]
"""Of each page a title, the text, and whether there is anything on it."""

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
    """The text in the order of the document, headings as Markdown writes them; headers before it, footers behind."""
    from docx import Document
    from docx.table import Table

    document = Document(file)
    heads: dict[str, None] = {}
    feet: dict[str, None] = {}
    for section in document.sections:
        for part, kept in ((section.header, heads), (section.footer, feet)):
            if not part.is_linked_to_previous:
                kept.update(dict.fromkeys(each.text for each in part.paragraphs if each.text.strip()))
    lines = list(heads)
    for block in document.iter_inner_content():
        if isinstance(block, Table):
            lines += [_row(cell.text for cell in dict.fromkeys(row.cells)) for row in block.rows]
            lines.append("")
        else:
            style = (block.style.name or "") if block.style is not None else ""
            level = style.removeprefix("Heading ") if style.startswith("Heading ") else {"Title": "1"}.get(style, "")
            lines += [("#" * int(level) + " " if level.isdecimal() else "") + block.text, ""]
    return [("", "\n".join([*lines, *feet]), True)]


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
            text = "\n".join(line.text for line in html_lines(decoded_page(archive.read(path)))).strip()
            if text:
                pages.append((text.partition("\n")[0].lstrip("# "), text, True))
    return pages


READERS: Mapping[str, Callable[[IO[bytes]], Pages]] = {
    "pdf": _pdf_pages,
    "docx": _word_pages,
    "xlsx": _sheet_pages,
    "pptx": _slide_pages,
    "epub": _book_pages,
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
            text = "\n".join(line.text for line in html_lines(text))
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
