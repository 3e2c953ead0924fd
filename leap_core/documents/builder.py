"""Blocks from the events of marked-up text: words, ends of paragraphs, tables with merged and nested cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import BinaryIO, Protocol
from xml.parsers import expat

from .blocks import CODE, HEADING, LIST_ITEM, PARAGRAPH, TABLE, Block, UnreadableDocumentError

MOST_COLUMNS = 1000
"""Of a row; the cells behind them are joined, and a merged cell counts over no more."""
MOST_IN_CELL = 10
"""Blocks in a cell of a page; a cell of more is a part of its layout."""
MOST_HELD = 200_000
"""Cells of tables within cells."""
DEEPEST_TABLE = 8
LONGEST_PARAGRAPH = 1_000_000
DEEPEST_ELEMENT = 2000
ROMAN = (
    ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"),
    ("", "x", "xx", "xxx", "xl", "l", "lx", "lxx", "lxxx", "xc"),
)


CODE_STYLE = re.compile(r"(?:html |source )?(?:preformatted|code)\b", re.IGNORECASE)
"""Names of styles of paragraphs of code."""
RAISED = re.compile(r"[-+−]?\d")
GREEK = "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", "αβχδεφγηιϕκλμνοπθρστυϖωξψζ"
SYMBOLS = dict(
    zip(b"\xa2\xa3\xa5\xae\xb0\xb1\xb3\xb4\xb5\xb6\xb7\xb9\xbb\xce\xd1\xd6\xe5\xf2", "′≤∞→°±≥×∝∂•≠≈∈∇√∑∫", strict=True)
)
"""Signs of the font Symbol, whose letters are Greek ones."""


class BlockSink(Protocol):
    """What takes blocks, and rows of a table one by one: an Output, or what writes to one."""

    def add(self, block: Block) -> None: ...
    def row(self, cells: Sequence[str], number: int, line: int) -> None: ...
    def end_table(self) -> None: ...


class _Table:
    """``cells``: of the open row: blocks, columns, rows, and whether it continues the cell above. ``merged``: by
    column, for how many rows to come a cell above it counts, and its text. ``last``: the row above."""

    def __init__(self) -> None:
        self.cells: list[tuple[list[Block], int, int, bool]] = []
        self.merged: dict[int, tuple[int, str]] = {}
        self.last: list[str] = []
        self.rows: list[tuple[str, ...]] = []

    def take_row(self) -> list[str]:
        """The texts of the open row's cells: that of a merged cell in each of its places; but a title over the whole
        row occurs once."""
        row: list[str] = []
        rest: list[str] = []
        cells, self.cells = self.cells, []
        above, self.merged = self.merged, {}
        is_title = sum(bool(blocks) for blocks, *_ in cells) == 1

        def take_merged() -> None:
            while len(row) in above:
                left, text = above.pop(len(row))
                if left > 1:
                    self.merged[len(row)] = (left - 1, text)
                row.append(text)

        for blocks, columns, rows, is_continued in cells:
            take_merged()
            column = len(row)
            if column >= MOST_COLUMNS:
                rest.append(_flat(blocks))
                continue
            text = _flat(blocks)
            if is_continued:
                text = self.last[column] if column < len(self.last) else ""
            for each in range(column, min(column + columns, MOST_COLUMNS)):
                if each in above:
                    break
                row.append(text if each == column or not is_title else "")
                if rows > 1:
                    self.merged[each] = (rows - 1, text)
        take_merged()
        for column in sorted(above):
            if column >= len(row):
                row.extend([""] * (column - len(row)))
                take_merged()
        self.last = row
        return [*row, " ".join(rest)] if rest else row


def _flat(blocks: list[Block]) -> str:
    """Blocks in one cell: of a nested table with commas between cells and semicolons between rows."""
    lines: list[str] = []
    for block in blocks:
        rows = "; ".join(", ".join(filter(None, row)) for row in block.rows)
        lines.append(rows if block.kind == TABLE else block.text if block.kind == CODE else block.markdown)
    return "\n".join(lines)


class Builder:
    """What a reader of marked-up text calls while it walks through it.

    ``words`` adds to the paragraph that is open, ``end`` ends it; paragraphs of code become one block. Within a cell
    paragraphs are the cell's. A row that lays out a page (a single cell of several blocks, or headings in cells) is
    written as its blocks. ``of_page``: rows of pages lay out more often: where one cell alone is filled, or there are
    tables, code or many blocks in a cell.
    """

    def __init__(self, out: BlockSink, *, of_page: bool = False) -> None:
        self.out, self._of_page, self._held = out, of_page, 0
        self.parts: list[str] = []
        self._tables: list[_Table] = []
        self._code: list[str] = []
        self._too_deep = self._size = self._code_size = 0

    @property
    def is_in_cell(self) -> bool:
        return bool(self._tables and self._tables[-1].cells)

    def words(self, text: str) -> None:
        """Add words to the paragraph, which ends before it is too long for the memory."""
        self.parts.append(text)
        self._size += len(text)
        if self._size > LONGEST_PARAGRAPH:
            self.end()

    def end(self, kind: str = PARAGRAPH, level: int = 0, label: str = "", line: int = 0) -> None:
        """End the paragraph, of which one without words is left out."""
        text = "".join(self.parts)
        self.parts.clear()
        if kind == CODE:
            self._code.append(text.rstrip())
            self._code_size += len(text) + 1
            self._size = 0
            if self._code_size <= LONGEST_PARAGRAPH:
                return
            text = ""
        self._size = 0
        code, self._code, self._code_size = "\n".join(self._code).strip("\n"), [], 0
        if code.strip():
            self.add(Block(CODE, code))
        if text := text.strip():
            self.add(Block(kind, text, level, label, line=line))

    def add(self, block: Block) -> None:
        """Add a block where the reading is: in the cell or the section."""
        for table in reversed(self._tables):
            if table.cells:
                return table.cells[-1][0].append(block)
        self.out.add(block)

    def table(self) -> None:
        """Begin a table, or one in a cell."""
        self.end()
        if len(self._tables) >= DEEPEST_TABLE:
            self._too_deep += 1
            return
        if not self._tables:
            self.out.end_table()
        self._tables.append(_Table())

    def cell(self, columns: int = 1, rows: int = 1, *, continued: bool = False) -> None:
        """Begin a cell. ``continued``: it is one with the cell above."""
        self.end()
        if self._tables and not self._too_deep:
            self._tables[-1].cells.append(([], columns, rows, continued))

    def merge(self, columns: int | None = None, *, continued: bool = False) -> None:
        """Say of the cell that has begun over how many columns it goes, or that it continues the one above."""
        if self.is_in_cell and not self._too_deep:
            blocks, before, rows, was_continued = self._tables[-1].cells[-1]
            self._tables[-1].cells[-1] = blocks, columns or before, rows, continued or was_continued

    def end_row(self, number: int = 0, line: int = 0) -> None:
        """End the row. ``number``: in its sheet. ``line``: of the file."""
        self.end()
        if not self.is_in_cell or self._too_deep:
            return
        table = self._tables[-1]
        blocks = [block for cell in table.cells for block in cell[0]]
        if self._is_layout([cell[0] for cell in table.cells]) and (len(self._tables) == 1 or self._of_page):
            table.cells = []
            self._write_rows(table)
            for block in blocks:
                self.add(block)
            return
        row = table.take_row()
        if any(each.cells for each in self._tables) and self._held < MOST_HELD:
            self._held += len(row)
            table.rows += [tuple(row)] if any(row) else []
        else:
            self.out.row(row, number, line)

    def _is_layout(self, cells: list[list[Block]]) -> bool:
        blocks = [block for cell in cells for block in cell]
        is_single = len(cells) == 1 or (self._of_page and sum(map(bool, cells)) == 1)
        if any(block.kind == HEADING for block in blocks):
            return True
        if is_single and (len(blocks) > 1 or any(block.kind in (TABLE, LIST_ITEM, CODE) for block in blocks)):
            return True
        return self._of_page and any(
            len(cell) > MOST_IN_CELL or any(block.kind in (TABLE, CODE) for block in cell) for cell in cells
        )

    def _write_rows(self, table: _Table) -> None:
        if table.rows:
            self.add(Block(TABLE, rows=tuple(table.rows)))
            table.rows = []

    def end_table(self) -> None:
        """End the innermost table."""
        if self._too_deep:
            self._too_deep -= 1
            return self.end()
        if not self._tables:
            return
        if self._tables[-1].cells:
            self.end_row()
        self.end()
        table = self._tables.pop()
        if not self._tables:
            self.out.end_table()
        else:
            self._write_rows(table)


def raised(before: str, text: str) -> str:
    """A superscript behind ``before``: a number keeps its place with a sign, since 10⁶ is not 106."""
    return f"^{text}" if before[-1:].isalnum() and RAISED.match(text) else text


def symbol(code: int) -> str:
    """The character that the font Symbol draws for a code of a byte."""
    letter, is_small = (code & 0x1F) - 1, code >= 0x60
    if 0x40 < code < 0x5B or 0x60 < code < 0x7B:
        return GREEK[is_small][letter]
    return SYMBOLS.get(code) or (chr(code) if 0x20 <= code < 0x7F else "[symbol]")


def counted(number: int, form: str) -> str:
    """The number of an item of a list in the form that docx names: "lowerLetter", "upperRoman"."""
    text = str(number)
    if form.endswith("Letter") and number > 0:
        text = chr(97 + (number - 1) % 26) * ((number - 1) // 26 % 10 + 1)
    elif form.endswith("Roman") and 0 < number < 400:
        text = "c" * (number // 100) + ROMAN[1][number // 10 % 10] + ROMAN[0][number % 10]
    elif form == "decimalZero":
        text = text.zfill(2)
    elif form == "ordinal":
        text += {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return text.upper() if form.startswith("upper") else text


def walk_xml(
    file: BinaryIO,
    start: Callable[[str, dict[str, str]], object],
    end: Callable[[str], object],
    text: Callable[[str], object],
) -> None:
    """Call these for each element of an XML file as it is read; names of elements and attributes are without their
    namespaces. Raises UnreadableDocumentError for elements that are nested too deeply, and expat's error."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    depth = 0

    def opened(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST_ELEMENT:
            raise UnreadableDocumentError("{name} cannot be read: its parts are nested too deeply")
        start(name.rpartition(" ")[2], {each.rpartition(" ")[2]: value for each, value in attributes.items()})

    def closed(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(name.rpartition(" ")[2])

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = opened, closed, text
    parser.ParseFile(file)
