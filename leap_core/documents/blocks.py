"""The model of a document: sections (pages, sheets, slides, chapters, parts) of blocks, each with its place.

Text for a prompt, rows for ``extract --lines``, lines for an index and pages for a citation all come from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from ..errors import LeapSerializationError
from ..system.dataclass import dataclass

PARAGRAPH, HEADING, LIST_ITEM, TABLE = "paragraph", "heading", "list_item", "table"
NOTE, CODE, PICTURE, MARKER = "note", "code", "picture", "marker"
CELL_END = " | "
"""Between the cells of a row, in text."""


class UnreadableDocumentError(LeapSerializationError):
    """A document that cannot be read: not text, too large, encrypted, or damaged."""


@dataclass(frozen=True)
class TextLine:
    """``number``: of the line in the file or, where there are pages, of the page; counted from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class Block:
    """A part of a section.

    ``kind``: one of the constants above. ``text``: plain text; line breaks within it are kept. A picture's is its
    description; a marker's says what is here and cannot be shown as text ("equation"), without brackets.
    ``level``: of a heading 1 to 6; of a list item its depth, from 0.
    ``label``: the mark of a list item ("-", "3.", "a)"), the language of code, what a note begins with ("[^1]:").
    ``rows``: the cells of a table; the rows of one table may differ in length.
    ``numbers``: the numbers of these rows in their sheet, from 1; empty where rows have none.
    ``line``: the number of the line in the file at which the block begins; 0 where files of this kind have no lines.
    """

    kind: str
    text: str = ""
    level: int = 0
    label: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    numbers: tuple[int, ...] = ()
    line: int = 0

    @property
    def markdown(self) -> str:
        """The block as a model sees it."""
        if self.kind == TABLE:
            return "\n".join(_table_lines(self))
        if self.kind == HEADING:
            return "#" * min(max(self.level, 1), 6) + " " + " ".join(self.text.split())
        if self.kind == LIST_ITEM:
            mark = "  " * self.level + (self.label or "-") + " "
            return mark + self.text.replace("\n", "\n" + " " * len(mark))
        if self.kind == CODE:
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", self.text))])
            return f"{fence}{self.label}\n{self.text}\n{fence}"
        if self.kind == PICTURE:
            return f"[picture: {self.text}]" if self.text else ""
        if self.kind == MARKER:
            return f"[{self.text}]"
        return f"{self.label} {self.text}" if self.label else self.text


def _table_lines(table: Block) -> Iterator[str]:
    last = 0
    for cells, number in zip(table.rows, table.numbers or [0] * len(table.rows), strict=True):
        if 0 < last < number - 1:
            yield ""  # rows without a value
        last = number
        yield CELL_END.join(" ".join(cell.split()) for cell in cells)


@dataclass(frozen=True)
class Section:
    """``title``: a sheet's name, a chapter's or slide's title. ``is_scan``: a page that is a picture of its text, to be
    looked at; ``blocks`` may hold a stamp or page number all the same."""

    title: str = ""
    blocks: tuple[Block, ...] = ()
    is_scan: bool = False

    @property
    def lines(self) -> list[TextLine]:
        """The lines of the section's text, numbered from 1 or by their lines in the file. A blank line is between
        blocks, except between items of a list."""
        found: list[TextLine] = []
        last: Block | None = None
        for block in self.blocks:
            text = block.markdown.rstrip("\n")
            if not text.strip():
                continue
            if last is not None and not (last.kind == block.kind == LIST_ITEM):
                found.append(TextLine(found[-1].number if block.line else len(found) + 1, ""))
            last = block
            first = block.line or len(found) + 1
            steps = 1 if not block.line or block.kind in (PARAGRAPH, CODE, TABLE) else 0
            found += [TextLine(first + n * steps, line) for n, line in enumerate(text.split("\n"))]
        return found

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines).rstrip()


@dataclass(frozen=True)
class Document:
    """``kind``: see ``kinds.KINDS``. ``sections``: one for what has no pages. ``notes``: what could not be read, a
    sentence each. ``unit``: what the sections are called ("page", "slide", "sheet", "chapter"), "" where they have no
    name. ``source``: what it was read from, for its pictures."""

    kind: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    unit: str = ""
    source: Path | bytes = b""

    @property
    def blank(self) -> list[int]:
        """The numbers of the pages that are pictures."""
        return [number for number, section in enumerate(self.sections, 1) if section.is_scan]

    @property
    def text(self) -> str:
        """All text, as Markdown; a form feed ends each section, where there is a unit. A line says where a page is a
        picture."""
        if not self.unit:
            return "\n\n".join(section.text for section in self.sections)
        return "".join(f"{self._shown(number)}\n\f" for number in range(1, len(self.sections) + 1))

    def _shown(self, number: int) -> str:
        section = self.sections[number - 1]
        if not section.is_scan:
            return section.text
        return f"[{self.unit} {number} is a picture]\n\n{section.text}".rstrip()

    @property
    def has_text(self) -> bool:
        """Whether there is any text in it."""
        return any(section.text.strip() for section in self.sections)

    @property
    def lines(self) -> list[TextLine]:
        """The lines with their places: the number of the section where there is a unit, else of the line."""
        if self.unit:
            return [
                TextLine(number, text)
                for number, section in enumerate(self.sections, 1)
                for text in [*(line.text for line in section.lines), ""]
            ]
        found: list[TextLine] = []
        for section in self.sections:
            first = found[-1].number + 1 if found else 0
            found += [TextLine(line.number + first, line.text) for line in section.lines]
            if section is not self.sections[-1]:
                found.append(TextLine(found[-1].number + 1 if found else 1, ""))
        return found

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The rows of the sheets, or of a document with tables its lines and the rows of its tables, each with its
        place (``Sheet!3``, the number of the line). Cells stand after the names of their columns, where a table names
        them (see ``named_rows``). Empty where there is no table."""
        tables = [block for section in self.sections for block in section.blocks if block.kind == TABLE]
        if any(block.numbers for block in tables):
            return [row for section in self.sections for row in _rows_of_sheet(section)]
        if not tables:
            return []
        found: list[tuple[str, str]] = []
        line = 1
        for section in self.sections:
            for block in section.blocks:
                lines = block.markdown.rstrip("\n").split("\n")
                texts = dict(named_rows(block.rows)) if block.kind == TABLE else dict(enumerate(lines))
                found += [(str(line + n), text) for n, text in texts.items() if text.strip()]
                line += len(lines) + 1
        return found

    def with_texts(self, texts: Mapping[int, str]) -> Document:
        """The document with these texts on the sections of these numbers, which are no scans any more."""
        sections = list(self.sections)
        for number, text in texts.items():
            sections[number - 1] = Section(sections[number - 1].title, (Block(PARAGRAPH, text),))
        return replace(self, sections=tuple(sections))


def named_cells(names: Sequence[str], cells: Sequence[str]) -> str:
    """The cells of a row that are not empty, a line each, after the names of their columns."""
    named = zip_longest(names, cells, fillvalue="")
    return "\n".join(f"{name}: {cell}" if name else cell for name, cell in named if cell.strip())


def _rows_of_sheet(section: Section) -> Iterator[tuple[str, str]]:
    """The rows of a sheet; tables below the first without names of their own have those of the first."""
    pairs = [pair for block in section.blocks for pair in zip(block.numbers, block.rows, strict=False)]
    numbers, rows = [number for number, _ in pairs], [cells for _, cells in pairs]
    for n, text in named_rows(rows, is_sheet=True):
        yield f"{section.title}!{numbers[n]}" if section.title else str(numbers[n]), text


HEAD_ROWS = 20
"""Rows in which the names of the columns are looked for."""
NUMBER = re.compile(r"[^\W\d_]{0,3}[-+(]?\s*\W?\s*\d[\d.,:/'\s%-]*\W{0,2}[^\W\d_]{0,3}\)?")


def named_rows(rows: Sequence[Sequence[str]], *, is_sheet: bool = False) -> Iterator[tuple[int, str]]:
    """The rows that are records: their places among the rows, and their cells, each after its column's name.

    Rows above the names with less than half as many cells are titles, and no records. Names may have two rows, of which
    the first groups columns. The first row of a table that is no sheet is a record where it has numbers or one cell.
    """
    filled = [sum(map(bool, map(str.strip, cells))) for cells in rows]
    width = max(filled[:HEAD_ROWS], default=0)
    if not any(filled):
        return
    head = _head(rows, filled, width)
    names: Sequence[str] = rows[head]
    if not is_sheet and (width < 2 or any(NUMBER.fullmatch(cell.strip()) for cell in names) or len(rows) < 2):
        yield from ((n, CELL_END.join(cells)) for n, cells in enumerate(rows) if filled[n])
        return
    groups, second = _groups(names), rows[head + 1] if head + 1 < len(rows) else ()
    if groups and head + 2 < len(rows) and _names_columns(second, names):
        names = [_joined(groups[n] if n < len(groups) else "", name) for n, name in enumerate(second)]
        head += 1
    if not is_sheet:
        yield from ((n, CELL_END.join(filter(None, rows[n]))) for n in range(head) if filled[n] == 1)
    for n in range(head + 1, len(rows)):
        if filled[n]:
            yield n, named_cells(names, rows[n])


def _head(rows: Sequence[Sequence[str]], filled: Sequence[int], width: int) -> int:
    """The row of the names. ``filled``: the cells of each row that are not empty; ``width``: the most of them."""
    head = next((n for n, count in enumerate(filled[:HEAD_ROWS]) if count and 2 * count >= width), 0)
    below = next((n for n in range(head + 1, min(len(rows), HEAD_ROWS)) if filled[n] == width), head)
    if width == 2 and filled[head] == 1 and rows[head][0].strip() and not any(map(NUMBER.fullmatch, rows[below])):
        return below  # a title over two columns
    return head


def _groups(names: Sequence[str]) -> list[str]:
    """The names of groups of columns, each for all its columns; empty where the row groups none."""
    found = [name.strip() for name in names]
    if any(a and a == b for a, b in zip(found, found[1:], strict=False)):
        return found  # merged cells, whose value is in each
    if "" not in found[1:]:
        return []
    for n in range(1, len(found)):
        found[n] = found[n] or found[n - 1]
    return found


def _names_columns(cells: Sequence[str], above: Sequence[str]) -> bool:
    """Whether a second row names columns of groups: words alone, of which some occur again for another group."""
    words = [cell.strip() for cell in cells]
    own = [word for n, word in enumerate(words) if n >= len(above) or word != above[n].strip()]
    return all(words) and len(words) >= len(above) and len(set(own)) < len(own) and not any(map(NUMBER.fullmatch, own))


def _joined(group: str, name: str) -> str:
    name = name.strip()
    return name if not group or group == name else f"{group} {name}"
