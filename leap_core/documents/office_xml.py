"""Documents of Word and Excel in one XML file: those of 2003, and the parts of a docx in one file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree import ElementTree

from . import word
from .builder import walk_xml
from .kinds import WORD_XML
from .number_formats import general
from .output import DocumentOutput
from .sheets import MOST_COLUMNS, Row, with_merged, write_rows

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
LINKS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    f'<Relationship Id="a" Type="{OFFICE}/{{kind}}" Target="{{target}}"/></Relationships>'
)
PARTS = "{http://schemas.microsoft.com/office/2006/xmlPackage}"


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """Write the paragraphs of a document, or the sheets of a workbook."""
    if out.kind == WORD_XML:
        return word.read(_package(file.read()), out)
    book = _Workbook(out)
    walk_xml(file, book.start, book.end, book.text)
    out.note("the formats of numbers are not read: a share of 12.5 % is shown as 0.125")


def _package(data: bytes) -> BinaryIO:
    """The document as the archive that Word writes since 2007; its words have the names that they had in 2003."""
    parts: dict[str, str | bytes] = {
        "_rels/.rels": LINKS.format(kind="officeDocument", target="word/document.xml"),
        "word/_rels/document.xml.rels": LINKS.format(kind="styles", target="document.xml"),
        "word/document.xml": data,
    }
    if b"<pkg:package" in data[:2000]:
        parts = dict(_parts(data))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return archive


def _parts(data: bytes) -> Iterator[tuple[str, bytes]]:
    for part in ElementTree.fromstring(data).iter(f"{PARTS}part"):
        for content in part.iter(f"{PARTS}xmlData"):
            if len(content):
                yield part.get(f"{PARTS}name", "").lstrip("/"), ElementTree.tostring(content[0])


class _Workbook:
    """Collects the rows of a sheet, and writes them at its end."""

    def __init__(self, out: DocumentOutput) -> None:
        self._out = out
        self._rows: list[Row] = []
        self._merged: list[tuple[int, int, int, int]] = []
        self._row = self._column = self._cell_count = self._characters = 0
        self._cells: dict[int, str] = {}
        self._kind, self._formula, self._parts = "", "", list[str]()
        self._in_data = self._in_comment = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        if tag == "Worksheet":
            self._out.section(attributes.get("Name", ""))
            self._out.heading(attributes.get("Name", ""))
            self._row, self._rows, self._merged = 0, [], []
        elif tag == "Row":
            self._row, self._column, self._cells = _index(attributes, self._row + 1), 0, {}
        elif tag == "Cell":
            self._column = _index(attributes, self._column + 1)
            across, down = (int(attributes.get(name) or 0) for name in ("MergeAcross", "MergeDown"))
            if across > 0 or down > 0:
                self._merged.append((self._column - 1, self._column - 1 + across, self._row, self._row + down))
            self._formula, self._kind, self._parts = attributes.get("Formula", ""), "", []
        elif tag == "Comment":
            self._in_comment = True
        elif tag == "Data" and not self._in_comment:
            self._kind, self._in_data = attributes.get("Type", "String"), True

    def text(self, text: str) -> None:
        """Text within an element."""
        if self._in_data:
            self._parts.append(text)

    def end(self, tag: str) -> None:
        """An element ends."""
        if tag == "Comment":
            self._in_comment = False
        elif tag == "Data":
            self._in_data = False
        elif tag == "Cell":
            text = _shown("".join(self._parts), self._kind) or self._formula
            if text and self._column <= MOST_COLUMNS:
                self._cells[self._column - 1] = text
            last = self._merged[-1] if self._merged else (0, 0, 0, 0)
            self._column = last[1] + 1 if last[0] == self._column - 1 and last[2] == self._row else self._column
        elif tag == "Row" and self._cells:
            self._rows.append((self._row, self._cells))
            self._cell_count += len(self._cells)
            self._characters += sum(map(len, self._cells.values()))
            if not self._out.has_space(self._cell_count, self._characters):
                self._write()
                self._out.cut_off()
        elif tag == "Worksheet":
            self._write()

    def _write(self) -> None:
        write_rows(with_merged(iter(self._rows), self._merged), self._out)
        self._cell_count = self._characters = 0


def _index(attributes: dict[str, str], following: int) -> int:
    return max(int(attributes.get("Index") or following), following)


def _shown(value: str, kind: str) -> str:
    if kind == "Number":
        return general(value)
    if kind == "Boolean":
        return "TRUE" if value.strip() == "1" else "FALSE"
    if kind == "DateTime":
        day, _, time = value.partition("T")
        text = f"{day} {time.removesuffix('.000').removesuffix(':00')}"
        return text.removesuffix(" 00:00").removeprefix("1899-12-31 ")
    return value
