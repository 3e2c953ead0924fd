"""odt, ods and odp: their XML as it is read, cells as they are shown."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, cast

from .blocks import CODE, HEADING, LIST_ITEM, NOTE, PARAGRAPH, Block
from .builder import CODE_STYLE, Builder, counted, raised, walk_xml
from .html import equation
from .kinds import ODP, ODS
from .output import DocumentOutput
from .sheets import MOST_COLUMNS, Row, note_merged, what_is_hidden, with_merged, write_rows

SKIPPED = {
    "tracked-changes",
    "note-citation",
    "ruby-text",
    "dde-connection-decls",
    "page-number",
    "creator",
    "creator-initials",
    "date",
}
MOST_SPACES = 100
NUMBERS = ("list-level-style-number", "outline-level-style")
OUTLINE = "outline"
FORMS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
MATH = re.compile(r"<(?:\w+:)?math\b")
LARGEST_EQUATION = 1 << 20
VALUES = ("string-value", "date-value", "time-value", "boolean-value", "value")


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """Write an OpenDocument."""
    with zipfile.ZipFile(file) as archive:
        styles = _Styles()
        for place in ("header", "", "footer") if out.kind not in (ODS, ODP) else ("",):
            part = "styles.xml" if place else "content.xml"
            if not place or part in archive.namelist():
                walker = _Sheets(out) if out.kind == ODS else _Text(out, styles, archive, place)
                with archive.open(part) as content:
                    walk_xml(cast(BinaryIO, content), walker.start, walker.end, walker.text)
                walker.finish()


class _Styles:
    """``lists``: of the levels of numbered lists, by name of the style and level: prefix, form, suffix, first number,
    and how many levels are shown. The numbers of headings are the list OUTLINE.
    ``raised``: styles of superscripts. ``titles``: styles of paragraphs that are the title. ``codes``: those of code.
    ``hidden``: styles of what is not shown. ``ends``: the last numbers of lists, by id."""

    def __init__(self) -> None:
        self.lists: dict[tuple[str, int], tuple[str, str, str, int, int]] = {}
        self.titles, self.hidden, self.raised, self.codes = {"Title"}, set[str](), set[str](), set[str]()
        self.ends: dict[str, int] = {}
        self._list = self._style = ""

    def read(self, tag: str, attributes: dict[str, str]) -> None:
        name = attributes.get("name", "")
        if tag == "style":
            self._style = name
            self.titles |= {name} if attributes.get("parent-style-name") in self.titles else set()
            self.codes |= {name} if self.is_code(attributes.get("parent-style-name", "")) else set()
        elif tag == "text-properties" and attributes.get("display") in ("none", "true"):
            self.hidden.add(self._style)
        elif is_raised(tag, attributes):
            self.raised.add(self._style)
        elif tag in ("list-style", "outline-style"):
            self._list = name if tag == "list-style" else OUTLINE
        elif tag in NUMBERS and (form := FORMS.get(attributes.get("num-format", "1" if tag == NUMBERS[0] else ""))):
            end = attributes.get("num-suffix", "." if tag == NUMBERS[0] else "")
            first, levels = (int(attributes.get(name) or 1) for name in ("start-value", "display-levels"))
            place = self._list, int(attributes.get("level") or 1)
            self.lists[place] = attributes.get("num-prefix", ""), form, end, first, levels

    def is_code(self, style: str) -> bool:
        """Whether paragraphs of this style are code."""
        return style in self.codes or CODE_STYLE.match(style.replace("_20_", " ")) is not None

    def label(self, style: str, numbers: Sequence[int]) -> str:
        """The mark of an item of a list by the numbers of the items that it is in, the outermost first."""
        level = len(numbers)
        prefix, form, suffix, _, levels = self.lists.get((style, level), ("-", "", "", 1, 1))
        shown = range(max(level - levels, 0), level if form else 0)
        counts = [counted(numbers[n], self.lists.get((style, n + 1), ("", "decimal"))[1]) for n in shown]
        return prefix + ".".join(counts) + suffix


def is_raised(tag: str, attributes: Mapping[str, str]) -> bool:
    """Whether a style writes text above the line."""
    return tag == "text-properties" and not attributes.get("text-position", "sub").startswith(("sub", "-", "0"))


class _Text:
    """A text or the slides of a presentation. ``_place``: the element of the page style that is read, "" for the body.
    ``_lists``: the open lists: name of the style, number of the last item. ``_notes``: what is written behind the
    paragraph: notes and comments, with the paragraphs around them."""

    def __init__(self, out: DocumentOutput, styles: _Styles, archive: zipfile.ZipFile, place: str = "") -> None:
        self.out, self.builder = out, Builder(out)
        self._styles, self._archive = styles, archive
        self._place, self._is_read = place or "body", 0
        self._skipped = 0
        self._lists: list[tuple[str, int, str]] = []
        self._is_first = False
        self._level = 0
        self._paragraphs: list[tuple[bool, int]] = []
        self._outside: list[list[str]] = []
        self._label = self._frame = ""
        self._is_note = self._is_raised = self._is_code = False
        self._headings = [0] * 10
        self._fields: dict[str, str] = {}

    def text(self, text: str) -> None:
        if self._is_read and not self._skipped and self._takes_text:
            text = " ".join(text.split("\n")) if text.strip() else " " if text else ""
            self.builder.words(raised("".join(self.builder.parts[-1:]), text) if self._is_raised else text)
            self._is_raised = False

    _takes_text = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skipped or tag in SKIPPED:
            self._skipped += 1
        elif tag == "control":
            self.builder.words(self._fields.get(attributes.get("control", ""), ""))
        elif "current-value" in attributes or "current-state" in attributes:
            value = attributes.get("current-value") or {"checked": "☒"}.get(attributes.get("current-state", ""), "☐")
            self._fields[attributes.get("id", "")] = value
        elif tag == self._place:
            self._is_read += 1
        elif not self._is_read:
            self._styles.read(tag, attributes)
        elif tag in ("p", "h", "span") and attributes.get("style-name") in self._styles.hidden:
            self._skipped += 1
        elif tag in ("p", "h", "span", "s", "tab", "line-break"):
            self._start_text(tag, attributes)
        elif tag == "text-box":
            self._outside.append(self.builder.parts)
            self.builder.parts = []
        elif tag in ("note", "annotation"):
            self._outside.append(self.builder.parts)
            self.builder.parts = []
            self._label = "Comment:" if tag == "annotation" else f"[^{attributes.get('id', '').lstrip('ftn') or 1}]:"
            self._outside[-1].append("" if tag == "annotation" else self._label[:-1])
        elif tag in ("list", "list-item", "list-header"):
            self._start_list(tag, attributes)
        elif tag == "table":
            self.builder.table()
        elif tag == "table-cell":
            self._start_cells(attributes)
        else:
            self._start_on_page(tag, attributes)

    def _start_on_page(self, tag: str, attributes: dict[str, str]) -> None:
        """A page of a presentation, or what lies on one."""
        if tag == "page":
            self.out.section()
        elif tag == "frame":
            self._frame = attributes.get("class", "")
        elif tag == "notes":
            self._is_note = True
        elif tag == "object":
            self.builder.words(self._object(attributes.get("href", "")))
        elif tag in ("title", "desc") and self._frame != "title":
            self._takes_text += 1
            self.builder.words("[picture: ")

    def _start_text(self, tag: str, attributes: dict[str, str]) -> None:
        """A paragraph, or a part of one."""
        if tag == "span":
            self._is_raised = attributes.get("style-name") in self._styles.raised
        elif tag in ("p", "h"):
            self._takes_text += 1
            self._paragraphs.append((self._is_code, self._level))  # of the one around it
            is_title = attributes.get("style-name") in self._styles.titles
            self._is_code = self._styles.is_code(attributes.get("style-name", ""))
            self._level = int(attributes.get("outline-level") or 1) if tag == "h" else int(is_title)
        else:
            spaces = min(int(attributes.get("c") or 1), MOST_SPACES)
            self.builder.words("\n" if tag == "line-break" else " " * spaces if tag == "s" else "\t")

    def _start_list(self, tag: str, attributes: dict[str, str]) -> None:
        """A list, or an item of one."""
        if tag == "list":
            style = attributes.get("style-name") or (self._lists[-1][0] if self._lists else "")
            first = self._styles.lists.get((style, len(self._lists) + 1), ("", "", "", 1))[3]
            begun = style if attributes.get("continue-numbering") == "true" else attributes.get("continue-list", "")
            self._lists.append((style, self._styles.ends.get(begun, first - 1), attributes.get("id", "")))
        elif self._lists:
            style, number, id = self._lists[-1]
            self._lists[-1] = style, int(attributes.get("start-value") or number + (tag == "list-item")), id
            self._is_first = tag == "list-item"

    def _start_cells(self, attributes: dict[str, str]) -> None:
        columns, rows = (int(attributes.get(f"number-{each}-spanned") or 1) for each in ("columns", "rows"))
        for _ in range(min(int(attributes.get("number-columns-repeated") or 1), MOST_COLUMNS // 16)):
            self.builder.cell(columns, rows)

    def _object(self, link: str) -> str:
        """An embedded equation; of another object that it is there."""
        part = f"{link.removeprefix('./').rstrip('/')}/content.xml"
        if part in self._archive.NameToInfo:
            with self._archive.open(part) as file:
                content = file.read(LARGEST_EQUATION).decode("utf-8", "replace")
            if MATH.search(content):
                return equation(content, {})
        return "[embedded object]"

    def end(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
        elif tag == self._place:
            self._is_read -= 1
        elif not self._is_read:
            return
        elif tag in ("p", "h"):
            self._takes_text -= 1
            self._end_paragraph()
            if self._paragraphs:
                self._is_code, self._level = self._paragraphs.pop()
        elif tag == "span":
            self._is_raised = False
        elif tag == "text-box" and self._outside:
            self.builder.end()
            self.builder.parts = self._outside.pop()
        elif tag in ("note", "annotation") and self._outside:
            self._end_note()
        elif tag == "list" and self._lists:
            style, number, id = self._lists.pop()
            self._styles.ends |= {style: number} | ({id: number} if id else {})
        elif tag == "table-row":
            self.builder.end_row()
        elif tag == "table":
            self.builder.end_table()
        elif tag == "notes":
            self._is_note = False
        elif tag == "frame":
            self._frame = ""
        elif tag in ("title", "desc") and self._frame != "title":
            self._takes_text -= 1
            self.builder.words("]")

    def _end_note(self) -> None:
        label, text = self._label, "".join(self.builder.parts).strip()
        self._label = ""
        self.builder.parts = self._outside.pop()
        if text:
            self.out.later(label, text)

    def _end_paragraph(self) -> None:
        if self._label:
            self.builder.words("\n")
        elif self._is_note:
            self.builder.end(NOTE, label="Notes:")
        elif self._level or self._frame == "title":
            if self._frame == "title":
                self.out.title("".join(self.builder.parts))
            elif "".join(self.builder.parts).strip() and (OUTLINE, self._level) in self._styles.lists:
                self._headings = [*self._headings[: self._level - 1], self._headings[self._level - 1] + 1, *[0] * 10]
                self.builder.parts.insert(0, self._styles.label(OUTLINE, self._headings[: self._level]) + " ")
            self.builder.end(HEADING, min(self._level or 1, 6))
        elif self._is_code and not (self._lists and self._is_first):
            self.builder.end(CODE)
        elif self._lists and self._is_first:
            self._is_first = not "".join(self.builder.parts).strip()
            label = self._styles.label(self._lists[-1][0], [number for _, number, _ in self._lists])
            self.builder.end(LIST_ITEM, len(self._lists) - 1, label)
        else:
            self.builder.end(PARAGRAPH)

    def finish(self) -> None:
        self.builder.end_table()
        self.builder.end()


class _Sheets:
    """The sheets of a workbook that are shown."""

    def __init__(self, out: DocumentOutput) -> None:
        self.out = out
        self._styles, self._raised = set[str](), set[str]()
        self._style, self._skipped = "", 0
        self._omitted: list[str] = []
        self._name: str | None = None
        self._reset()

    def _reset(self) -> None:
        self._rows: list[tuple[int, int, dict[int, str]]] = []
        self._cells: dict[int, str] = {}
        self._merged: list[tuple[int, int, int, int]] = []
        self._hidden: set[int] = set()
        self._number = self._column = self._columns = self._hidden_rows = self._formulas = 0
        self._repeats = self._row_repeats = 1
        self._is_hidden_row = self._is_raised = False
        self._size = [0, 0]
        """Cells and characters of the rows."""
        self._text: list[str] | None = None
        self._outer: list[str] | None = None
        self._comments: list[tuple[str, int]] = []
        self._formula = self._value = self._date = ""

    def text(self, text: str) -> None:
        if self._text is not None and not self._skipped:
            self._text.append(raised("".join(self._text[-1:]), text) if self._is_raised else text)
            self._is_raised = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skipped or tag in SKIPPED:
            self._skipped += 1
        elif tag == "annotation":
            self._outer, self._text = self._text, []
        elif tag == "style":
            self._style = attributes.get("name", "")
        elif is_raised(tag, attributes):
            self._raised.add(self._style)
        elif tag == "table-properties" and attributes.get("display") == "false":
            self._styles.add(self._style)
        elif tag == "table":
            self._reset()
            self._name = attributes.get("name", "")
            if attributes.get("style-name") in self._styles:
                self._omitted.append(self._name)
                self._name = None
        elif self._name is not None:
            self._start_in_table(tag, attributes)

    def _start_in_table(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "table-column":
            count = min(int(attributes.get("number-columns-repeated") or 1), MOST_COLUMNS)
            if attributes.get("visibility", "visible") != "visible":
                self._hidden.update(range(self._columns, self._columns + count))
            self._columns += count
        elif tag == "table-row":
            self._row_repeats = int(attributes.get("number-rows-repeated") or 1)
            self._is_hidden_row = attributes.get("visibility", "visible") != "visible"
            self._cells, self._column = {}, 0
        elif tag in ("table-cell", "covered-table-cell"):
            self._start_cell(tag, attributes)
        elif tag == "text-box" and self._text is None:
            self._text = []
        elif tag == "object":
            self.out.note(f"sheet {self._name}: a chart or another object is not read")
        elif tag == "span":
            self._is_raised = attributes.get("style-name") in self._raised
        elif tag in ("p", "line-break") and self._text:
            self._text.append("\n")
        elif tag in ("s", "tab") and self._text is not None:
            self._text.append(" " * min(int(attributes.get("c") or 1), MOST_SPACES))

    def _start_cell(self, tag: str, attributes: dict[str, str]) -> None:
        self._repeats = int(attributes.get("number-columns-repeated") or 1)
        self._text = [] if tag == "table-cell" else None
        self._date = attributes.get("date-value", "").replace("T", " ") if self._text is not None else ""
        self._formula = attributes.get("formula", "").partition(":")[2]
        self._value = next((attributes[name] for name in VALUES if attributes.get(name)), "")
        columns, rows = (int(attributes.get(f"number-{each}-spanned") or 1) for each in ("columns", "rows"))
        if max(columns, rows) > 1:
            row = self._number + 1
            self._merged.append((self._column, self._column + columns - 1, row, row + rows - 1))

    def end(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
        elif tag == "annotation":
            self._comments.append(("".join(self._text or ()), self._number + 1))
            self._text = self._outer
        elif self._name is None:
            return
        elif tag == "span":
            self._is_raised = False
        elif tag == "shapes":
            self._comments.append(("".join(self._text or ()), 0))
            self._text = None
        elif tag in ("table-cell", "covered-table-cell"):
            self._end_cell()
        elif tag == "table-row":
            if self._cells and self._is_hidden_row:
                self._hidden_rows += self._row_repeats
            elif self._cells:
                self._rows.append((self._number + 1, self._row_repeats, self._cells))
                self._size[0] += len(self._cells)
                self._size[1] += sum(map(len, self._cells.values()))
            self._number += self._row_repeats
            if not self.out.has_space(*self._size):
                self._write()
                self.out.cut_off()
        elif tag == "table":
            self._write()
            self._name = None

    def _end_cell(self) -> None:
        text = self._date or "".join(self._text or ()).strip() or (self._value if self._text is not None else "")
        if not text and self._formula:
            text = f"={self._formula.lstrip('=')}"
            self._formulas += 1
        if text:
            for column in range(self._column, min(self._column + self._repeats, MOST_COLUMNS)):
                self._cells[column] = text
        self._column += self._repeats
        self._text = None

    def _write(self) -> None:
        assert self._name is not None
        self.out.section(self._name)
        self.out.heading(self._name)
        write_rows(with_merged(self._all_rows(), self._merged), self.out, self._hidden)
        note_merged(self._name, self._merged, self.out)
        for text, number in self._comments:
            self.out.add(Block(NOTE, text, label=f"Comment in row {number}:" if number else ""))
        hidden = len({column for _, _, cells in self._rows for column in cells} & self._hidden)
        for note in what_is_hidden(self._name, self._hidden_rows, hidden, self._formulas):
            self.out.note(note)

    def _all_rows(self) -> Iterator[Row]:
        for number, repeats, cells in self._rows:
            for each in range(repeats):
                yield number + each, dict(cells)

    def finish(self) -> None:
        if self._omitted:
            self.out.note(f"hidden sheets are left out: {', '.join(self._omitted)}")
