"""Spreadsheets: xlsx from its XML, whose sheets are read row by row; xls and xlsb by calamine.

A sheet's declared size is not believed. Its cells are kept with their columns, so a value far away costs nothing.
"""

from __future__ import annotations

import codecs
import html
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import date, datetime, time, timedelta
from typing import Any, BinaryIO

from .blocks import NOTE, Block, UnreadableDocumentError
from .builder import raised
from .kinds import XLSX
from .number_formats import BUILT_IN, GENERAL, general, labeled, shown
from .ooxml import Package
from .output import CELLS, CHARACTERS, LINES, DocumentOutput
from .slides import SlideWalker
from .text import DECLARED, MARKS, charset_of

Row = tuple[int, dict[int, str]]
"""The number of a row, and its cells' texts by their columns, from 0."""
CHUNK = 1 << 20
PREFIX = r"(?:\w+:)?"
ROW, CELL = re.compile(rf"<{PREFIX}row(?=[\s>/])"), re.compile(rf"<{PREFIX}c(?=[\s>/])")
SIMPLE_CELL = re.compile(
    r"<c r=\"([A-Z]+)\d+\"([^>/]*)(?:/>|>(?:(?:<f[^>]*?(?:/>|>[^<]*</f>))?<v>([^<]+)</v>|<is><t>([^<]*)</t></is>)</c>)"
)
ITEM, MERGED = re.compile(rf"<{PREFIX}si(?=[\s>/])"), re.compile(rf"<{PREFIX}mergeCell\s+ref=\"([A-Z]+\d+:[A-Z]+\d+)\"")
TEXT = re.compile(rf"<{PREFIX}t(?:\s[^>]*)?>([^<]*)<|<{PREFIX}(rPh|vertAlign\s+val=.superscript)")
VALUE = re.compile(rf"<{PREFIX}v(?:\s[^>]*)?>([^<]*)<")
FORMULA = re.compile(rf"<{PREFIX}f(?:\s[^>]*)?(?:/>|>([^<]*)<)")
SPECIAL = re.compile(r"<!--|<!\[CDATA\[")
COLUMN = re.compile(rf"<{PREFIX}col(?=\s)([^>]*)>")
REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")
ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
DAMAGED = (ValueError, IndexError, OverflowError, ArithmeticError)
"""What a cell raises whose value or style makes no sense."""
LONGEST_PIECE = 64 * CHUNK
MOST_COLUMNS = 16_384
LONGEST_FORMAT = 255
MOST_GAPS = 64
"""Columns without a value between others; where there are more, only columns with values are kept."""
MOST_MERGED = 10_000
"""Merged ranges of a sheet, and cells of one."""


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """Write the sheets of a workbook that are shown."""
    if out.kind == XLSX:
        _Workbook(Package(file, out), out).write()
    else:
        _write_old(file, out)


class _Workbook:
    def __init__(self, package: Package, out: DocumentOutput) -> None:
        self.package, self.out = package, out
        self.root = next(name for name in package.names if name.endswith("xl/workbook.xml"))
        self.folder = posixpath.dirname(self.root)
        self.targets = {id: part for id, (_, part) in package.links(self.root).items()}
        self.formats = list(self._formats())
        self.strings = list(self._strings())
        self.epoch = datetime(1899, 12, 30)

    def _formats(self) -> Iterator[str]:
        """The format of each cell style."""
        codes, is_cell = dict[str, str](), False
        for each in self.package.tree(f"{self.folder}/styles.xml"):
            tag = each.tag.rpartition("}")[2]
            if tag == "numFmt" and len(each.attrib) >= 2:
                codes[each.get("numFmtId")] = each.get("formatCode") or GENERAL
            elif tag in ("cellXfs", "cellStyleXfs", "cellStyles", "dxfs"):
                is_cell = tag == "cellXfs"
            elif tag == "xf" and is_cell:
                number = each.get("numFmtId") or "0"
                yield (codes.get(number) or BUILT_IN.get(int(number), GENERAL))[:LONGEST_FORMAT]

    def _strings(self) -> Iterator[str]:
        part = f"{self.folder}/sharedStrings.xml"
        if not self.package.has(part):
            return
        with self.package.open(part) as file:
            for position, piece in enumerate(_pieces(file, ITEM)):
                if position:  # the first is what is before the first item
                    yield _text(piece)

    def string(self, index: str) -> str:
        """The shared string that a cell names."""
        number = int(index)
        if number < 0:
            raise IndexError(index)
        return self.strings[number]

    def write(self) -> None:
        """Write each sheet that is shown, and say which are not."""
        hidden: list[tuple[str, str]] = []
        sheets: list[tuple[str, str]] = []
        for each in self.package.tree(self.root):
            tag = each.tag.rpartition("}")[2]
            if tag == "workbookPr" and each.get("date1904") in ("1", "true"):
                self.epoch = datetime(1904, 1, 1)
            if tag == "sheet":
                link = next((value for name, value in each.items() if name.endswith("}id")), "")
                is_hidden = each.get("state") in ("hidden", "veryHidden")
                (hidden if is_hidden else sheets).append((each.get("name") or "", self.targets.get(link, "")))
        self.out.expected = len(sheets)
        for name, target in sheets:
            self.out.section(name)
            self.out.heading(name)
            if not self.package.has(target):
                self.out.note(f"sheet {name}: its part is missing")
                continue
            if "/chartsheets/" not in target:
                self._write_sheet(name, target)
            for kind, part in self.package.links(target).values():
                if kind == "drawing" and self.package.has(part):
                    SlideWalker(self.package, part, self.out).walk()
        if hidden:
            self.out.note(f"hidden sheets are left out: {', '.join(name for name, _ in hidden)}")

    def _write_sheet(self, name: str, part: str) -> None:
        with self.package.open(part) as file:
            merged = _merged(file)
        with self.package.open(part) as file:
            sheet = _Sheet(self, _pieces(file, ROW))
            write_rows(with_merged(sheet.rows(), merged), self.out, sheet.hidden)
        note_merged(name, merged, self.out)
        self._write_comments(part)
        for note in what_is_hidden(name, sheet.hidden_rows, len(sheet.hidden), sheet.formulas):
            self.out.note(note)
        if sheet.damaged:
            self.out.note(f"sheet {name}: damaged cells: {sheet.damaged}")

    def _write_comments(self, sheet: str) -> None:
        for part in (part for kind, part in self.package.links(sheet).values() if kind == "comments"):
            for each in self.package.tree(part):
                if each.tag.endswith("}comment"):
                    text = "".join(one.text or "" for one in each.iter() if one.tag.endswith("}t"))
                    self.out.add(Block(NOTE, text, label=f"Comment on {each.get('ref')}:"))


def what_is_hidden(sheet: str, rows: int, columns: int, formulas: int) -> Iterator[str]:
    """What is said of a sheet whose hidden rows and columns are left out, and whose formulas have no result."""
    if rows or columns:
        yield f"sheet {sheet}: what is hidden is left out (rows: {rows}, columns: {columns})"
    if formulas:
        yield f"sheet {sheet}: {formulas} formulas without a stored result are shown as formulas"


class _Sheet:
    """``hidden``: columns that are not shown. ``formulas``: how many have no stored result. ``damaged``: cells whose
    value or style is not in the book."""

    def __init__(self, book: _Workbook, pieces: Iterator[str]) -> None:
        self.book, self.pieces = book, pieces
        self.hidden: set[int] = set()
        self.hidden_rows = self.formulas = self.damaged = 0
        self._marks: list[tuple[str, ...]] = []
        self._plan: list[tuple[int, Callable[[str], str]]] = []

    def rows(self) -> Iterator[Row]:
        """The rows that are shown and have cells."""
        for attributes in COLUMN.findall(next(self.pieces, "")):
            if _is_hidden(attributes):
                first, last = (int(_attribute(attributes, name) or 0) for name in ("min", "max"))
                self.hidden.update(range(max(first, 1) - 1, min(last, MOST_COLUMNS)))
        number = 0
        for piece in self.pieces:
            attributes, _, inner = piece.partition(">")
            number = int(_attribute(attributes, "r") or number + 1)
            cells = self._cells(inner)
            if _is_hidden(attributes):
                self.hidden_rows += bool(cells)
            elif cells:
                yield number, cells

    def _cells(self, row: str) -> dict[int, str]:
        """The cells that are shown and not empty."""
        cells = SIMPLE_CELL.findall(row)
        if not cells or len(cells) != row.count("<c"):
            return self._any_cells(row)
        marks = [cell[:2] for cell in cells]
        if marks != self._marks:  # the rows of a table have the same columns and styles
            try:
                self._plan = [(_column(letters), self._reader(attributes)) for letters, attributes in marks]
            except DAMAGED:
                return self._any_cells(row)
            self._marks = marks
        found: dict[int, str] = {}
        try:
            for (column, reads), (_, _, value, inline) in zip(self._plan, cells, strict=True):
                if value:
                    found[column] = reads(value)
                elif inline:
                    found[column] = _unescaped(inline)
        except DAMAGED:
            return self._any_cells(row)
        return {each: text for each, text in found.items() if each not in self.hidden} if self.hidden else found

    def _any_cells(self, row: str) -> dict[int, str]:
        """The same for a row with cells without a place, with rich text, or with formulas without a result."""
        found: dict[int, str] = {}
        column = -1
        for piece in CELL.split(row)[1:]:
            attributes, _, inner = piece.partition(">")
            place = REFERENCE.search(_attribute(attributes, "r"))
            column = column + 1 if place is None else _column(place[1])
            try:
                text = self._value(attributes, inner)
            except DAMAGED:
                text = "[damaged]"
                self.damaged += 1
            if text and column not in self.hidden and column < MOST_COLUMNS:
                found[column] = text
        return found

    def _value(self, attributes: str, inner: str) -> str:
        if _attribute(attributes, "t") == "inlineStr":
            return _text(inner)
        match, formula = VALUE.search(inner), FORMULA.search(inner)
        if match is not None and match[1]:
            return self._reader(attributes)(match[1])
        if formula is None or match is not None and _attribute(attributes, "t") == "str":
            return ""
        self.formulas += 1
        return "=" + html.unescape(formula[1]) if formula[1] else "[formula]"

    def _reader(self, attributes: str) -> Callable[[str], str]:
        """What makes text of the values of cells with these attributes."""
        kind, style, book = _attribute(attributes, "t") or "n", int(_attribute(attributes, "s") or 0), self.book
        code = book.formats[style] if style < len(book.formats) else GENERAL
        found: Callable[[str], str] = _unescaped
        if kind in ("s", "str") and "@" in code and code != "@":
            found = lambda value: labeled(book.string(value) if kind == "s" else _unescaped(value), code)  # noqa: E731
        elif kind == "n":
            found = general if code == GENERAL else lambda value: shown(value, code, book.epoch)
        elif kind == "s":
            found = book.string
        elif kind == "b":
            found = lambda value: "TRUE" if value == "1" else "FALSE"  # noqa: E731
        elif kind == "d":
            found = lambda value: value.replace("T", " ").removesuffix("Z")  # noqa: E731
        return found


def _chunks(file: Any) -> Iterator[str]:
    """The text of a part in its encoding."""
    decoder = None
    while chunk := file.read(CHUNK):
        if decoder is None:
            found = DECLARED.match(chunk)
            mark = next((charset for mark, charset in MARKS.items() if chunk.startswith(mark)), "")
            charset = mark or (found and found[1] and charset_of(found[1].decode())) or "utf-8"
            decoder = codecs.getincrementaldecoder(charset)("replace")
        yield decoder.decode(chunk)


def _pieces(file: Any, start: re.Pattern[str]) -> Iterator[str]:
    """What is before the first match of ``start`` in a part, then what follows each, up to the next."""
    kept = rest = ""
    for chunk in _chunks(file):
        text, rest = _plain(rest + chunk)
        kept += text
        cut = max(kept.rfind("<"), 0)  # the last tag may be half there
        *pieces, last = start.split(kept[:cut])
        yield from pieces
        kept = last + kept[cut:]
        if len(kept) + len(rest) > LONGEST_PIECE:
            raise UnreadableDocumentError("{name} has a row of more than 64 MiB")
    yield from start.split(kept + rest)


def _plain(text: str) -> tuple[str, str]:
    """XML without comments, its CDATA as text; and its end, from where one is still open or may begin."""
    found: list[str] = []
    position = 0
    for begin in SPECIAL.finditer(text):
        if begin.start() < position:
            continue
        end = text.find("-->" if begin[0] == "<!--" else "]]>", begin.end())
        found.append(text[position : begin.start()])
        if end < 0:
            return "".join(found), text[begin.start() :]
        found.append("" if begin[0] == "<!--" else html.escape(text[begin.end() : end], quote=False))
        position = end + 3
    last = text.find("<", max(position, len(text) - len("<![CDATA")))
    return "".join(found) + text[position : last if last >= 0 else None], text[last:] if last >= 0 else ""


def _merged(file: Any) -> list[tuple[int, int, int, int]]:
    """The merged ranges of a sheet: first and last column, first and last row."""
    found = []
    last = ""
    for chunk in _chunks(file):
        chunk, last = last + chunk, chunk[-200:]
        for match in MERGED.finditer(chunk) if "mergeCell" in chunk else ():
            (left, top), (right, bottom) = (REFERENCE.match(each).groups() for each in match[1].split(":"))  # type: ignore[union-attr]
            found.append((_column(left), _column(right), int(top), int(bottom)))
            if len(found) > MOST_MERGED:
                return found
    return found


def with_merged(rows: Iterator[Row], merged: list[tuple[int, int, int, int]]) -> Iterator[Row]:
    """Rows in which each cell of a merged range has its value; but a title over the whole row occurs once."""
    starts: dict[int, list[tuple[int, int, int]]] = {}
    for left, right, top, bottom in merged[:MOST_MERGED]:
        if (right - left + 1) * (bottom - top + 1) <= MOST_MERGED:
            starts.setdefault(top, []).append((left, right, bottom))
    open_ranges: list[tuple[int, int, int, str]] = []
    for number, cells in rows:
        own = set(cells)
        open_ranges = [each for each in open_ranges if each[2] >= number]
        for left, right, bottom in starts.get(number, ()):
            if text := cells.get(left):
                open_ranges.append((left, right, bottom, text))
        for left, right, _, text in open_ranges:
            if own != {left}:
                for column in range(left, right + 1):
                    cells.setdefault(column, text)
        yield number, cells


def note_merged(name: str, merged: Sequence[tuple[int, int, int, int]], out: DocumentOutput) -> None:
    """Say where ``with_merged`` leaves merged cells as they are."""
    large = any(
        (right - left + 1) * (bottom - top + 1) > MOST_MERGED and bottom > top for left, right, top, bottom in merged
    )
    if large or len(merged) > MOST_MERGED:
        out.note(
            f"sheet {name}: merged cells behind the first {MOST_MERGED}, and large ones, have their value in the first "
            "cell only"
        )


def write_rows(rows: Iterator[Row], out: DocumentOutput, hidden: Set[int] = frozenset()) -> None:
    """Write rows with their cells in the columns that are shown."""
    kept: list[Row] = []
    used: set[int] = set()
    cells = characters = 0
    for number, row in rows:
        kept.append((number, row))
        used.update(row)
        cells += len(row)
        characters += sum(map(len, row.values()))
        if cells > CELLS or characters > CHARACTERS or len(kept) > LINES:
            break
    columns = sorted(used)
    if columns and columns[-1] - len(columns) < MOST_GAPS:
        columns = [each for each in range(columns[-1] + 1) if each not in hidden]
    for number, row in kept:
        out.row([row.get(column, "") for column in columns], number)
    out.end_table()


def _write_old(file: BinaryIO, out: DocumentOutput) -> None:
    from python_calamine import CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

    book = CalamineWorkbook.from_filelike(file)
    shown_ones = [each for each in book.sheets_metadata if each.visible == SheetVisibleEnum.Visible]
    hidden = [each.name for each in book.sheets_metadata if each.visible != SheetVisibleEnum.Visible]
    out.expected = len(shown_ones)
    for each in shown_ones:
        out.section(each.name)
        out.heading(each.name)
        if each.typ != SheetTypeEnum.WorkSheet:
            out.note(f"sheet {each.name} is not read: it has no cells (a chart, a dialog or macros)")
            continue
        try:
            sheet = book.get_sheet_by_name(each.name)
        except MemoryError:
            raise
        except BaseException as error:  # a panic of Rust is no Exception
            out.note(f"sheet {each.name} is not read: {' '.join(str(error).split())[:200]}")
            continue
        top, left = sheet.start or (0, 0)
        rows = (
            (top + n, {left + column: text for column, value in enumerate(row) if (text := _shown(value))})
            for n, row in enumerate(sheet.iter_rows(), 1)
        )
        merged = [(c1, c2, r1 + 1, r2 + 1) for (r1, c1), (r2, c2) in (sheet.merged_cell_ranges or ())]
        write_rows(with_merged((row for row in rows if row[1]), merged), out)
        note_merged(each.name, merged, out)
    out.note(f"the formats of {out.kind} are not read: a share of 12.5 % is shown as 0.125")
    out.note(f"of {out.kind} errors and comments of cells are not read; hidden rows and columns are shown")
    if hidden:
        out.note(f"hidden sheets are left out: {', '.join(hidden)}")


def _shown(value: Any) -> str:
    """A value of calamine's as text."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return general(repr(value)).removesuffix(".0")
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds").removesuffix(" 00:00:00")
    if isinstance(value, timedelta):
        seconds = round(value.total_seconds())
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def _text(inner: str) -> str:
    """The text of a string, without its phonetic guides."""
    parts: list[str] = []
    before = ""
    for text, property in TEXT.findall(inner):
        if before != "rPh":
            parts.append(raised("".join(parts), text) if before else text)
            before = property
    return _unescaped("".join(parts))


def _unescaped(text: str) -> str:
    if "&" in text:
        text = html.unescape(text)
    return ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


def _attribute(attributes: str, name: str) -> str:
    match = re.search(rf"\b{name}\s*=\s*[\"']([^\"']*)[\"']", attributes)
    return "" if match is None else match[1]


def _is_hidden(attributes: str) -> bool:
    return "hidden" in attributes and _attribute(attributes, "hidden") in ("1", "true")


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return min(number, MOST_COLUMNS) - 1
