"""PDF files by pdfium: text, values of forms, annotations, and which pages are pictures of their text."""

from __future__ import annotations

import base64
import ctypes
import io
import re
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any, BinaryIO, NamedTuple

from .blocks import NOTE, PARAGRAPH, TABLE, Block, UnreadableDocumentError
from .output import DocumentOutput

STAMP = 200
"""Characters over a picture that are a stamp, a page number or a scanner's mark, and not the page's text."""
FULL_PAGE = 0.5
"""Of a page's area, what pictures cover at least where it is a scan."""
UNMAPPED = 0.01
"""Of a page's characters, those without Unicode where its text is not to be trusted."""
LARGEST_SCALE = 8
HYPHEN = re.compile(r"(\w*)[\x02\u00ad](?:\n)?(\w*)")
"""A hyphen at a line's end, which pdfium marks, and a soft one."""
COMPOUNDS = ("well", "self", "half", "quasi")
"""First parts of words that are written with a hyphen, and of few others."""
SUFFIXES = ("ish", "less", "ness", "hood")
"""What follows them in a word without a hyphen."""
LIGATURES = str.maketrans(
    {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
)
PAIR = re.compile(r"\d(?=\d)")
RANGE = re.compile(r"(?<=\d-)\n(?=\d)")
TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]")
PRIVATE = re.compile("[\ue000-\uf8ff]")
BULLETS = "\uf0b7\uf0a7\uf0d8\uf0fc\uf076\uf06e\uf06c"
"""Of Word's symbol fonts."""
MOST_ANNOTATIONS, MOST_NAMED = 5000, 10
COLUMN_LINES = 6
COLUMN_WIDTH = 0.22
"""Of a page's width, what lines of prose in a column have at least on average."""
MOST_PIECES = 2000
SIDE_BY_SIDE = 3
"""Lines of a page with space between their pieces, from which on it may be a table or have columns."""
GAP = 1.5
"""Of a line's height, the space between two pieces of it that is no space between words."""
MOST_SPACE = 4.5
"""Of a line's height, the space between two lines of one table."""
CELL_GAP = 0.6
"""The same between two cells of a table."""
CONTINUED = 0.8
"""Of the largest step between lines of a table, the step to a line of the same row."""
NUMBER = re.compile(r"[\d.,% $€£()+-]+")


class _Doubts:
    """What of a document may be read wrongly, for one note on each kind: words that a hyphen divided, and pages with
    text side by side."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.pages: list[int] = []

    def notes(self) -> Iterator[str]:
        """A sentence on each kind."""
        if self.words:
            named = ", ".join(dict.fromkeys(self.words[:MOST_NAMED]))
            more = " …" * (len(self.words) > MOST_NAMED)
            yield f"hyphens at ends of lines are left out; a compound word may have lost its own: {named}{more}"
        if self.pages:
            pages, more = ", ".join(map(str, self.pages[:MOST_NAMED])), " …" * (len(self.pages) > MOST_NAMED)
            yield f"page {pages}{more}: text stands side by side, as in tables; check its order"


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """Write the pages of a PDF."""
    from pypdfium2 import raw

    document = _opened(file)
    out.expected = len(document)
    if document.get_formtype() in (raw.FORMTYPE_XFA_FULL, raw.FORMTYPE_XFA_FOREGROUND):
        out.note("the fields of its form (XFA) are not read: print it to a PDF")
    if count := document.count_attachments():
        names = [document.get_attachment(n).get_name()[:200] for n in range(min(count, MOST_NAMED))]
        out.note(f"attached files are not read: {', '.join(names)}{' …' * (count > MOST_NAMED)}")
    doubts = _Doubts()
    try:
        for number in range(len(document)):
            page = document[number]
            out.section()
            _write_page(page, out, doubts)
            page.close()
    finally:
        for note in doubts.notes():
            out.note(note)


def draw_pages(file: BinaryIO, numbers: Sequence[int], side: int, answer: Callable[[Mapping[str, Any]], None]) -> None:
    """Answer these pages as JPEG pictures with what is written into their forms."""
    document = _opened(file)
    for number in numbers:
        page = document[number - 1]
        scale = side / max(page.get_width(), page.get_height(), 1)
        picture, data = page.render(scale=min(scale, LARGEST_SCALE)).to_pil().convert("RGB"), io.BytesIO()
        picture.save(data, "JPEG", quality=90)
        answer({"page": number, "jpeg": base64.b64encode(data.getvalue()).decode("ascii")})
        page.close()


def _opened(file: BinaryIO) -> Any:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        if "assword" in str(error):
            raise UnreadableDocumentError(
                "{name} is encrypted, and opens with a password only", hint="take the password off, with qpdf --decrypt"
            ) from None
        raise
    document.init_forms()
    return document


def _write_page(page: Any, out: DocumentOutput, doubts: _Doubts) -> None:
    words = page.get_textpage()
    columns = _columns(words, *page.get_size())
    text = (columns or words.get_text_bounded()).replace("\r\n", "\n").replace("\r", "\n")
    tables: list[_Table] = []
    if not columns and _is_side_by_side(words, page.get_width()):
        doubts.pages.append(out.sections)
        tables = _tables(words, page.get_width())
    text = text.replace("\ufffe", "\x02")
    is_scan = False
    if CONTROL.search(text.replace("\x02", "")) or "\x02" in text or PRIVATE.search(text):
        text = text.translate(dict.fromkeys(map(ord, BULLETS), "•"))
        missing = _unmapped(words) + len(PRIVATE.findall(text))
        if missing:
            text = PRIVATE.sub("\ufffd", CONTROL.sub("\ufffd", text))
            is_scan = missing > UNMAPPED * len(text)
            out.note(f"{out.place}: {missing} characters of its fonts have no Unicode")
    if count := _raised(words):
        out.note(f"{out.place}: {count} raised digits are read as digits of the number before them")
    text = _joined(text, doubts.words)
    if len(text.strip()) <= STAMP and not is_scan:
        is_scan = _is_picture(page, bool(text.strip()))
    if is_scan:
        out.scan()
    for block in _with_tables(words, tables, text):
        out.add(block)
    for label, value in _annotations(page):
        out.add(Block(NOTE, value, label=label))
    words.close()


def _columns(words: Any, width: float, height: float) -> str:
    """The text of a page that is drawn row by row over two columns of prose, one column after the other; empty for
    any other page. Lines over both columns divide the page."""
    count = words.count_rects()
    if not 2 * COLUMN_LINES <= count <= MOST_PIECES:
        return ""
    pieces = [words.get_rect(n) for n in range(count)]
    starts = Counter(round(piece[0]) for piece in pieces if piece[0] > 0.4 * width)
    gutter = (starts.most_common(1)[0][0] if starts else 0) - 3
    sides = [(piece[0] > gutter) - (piece[2] < gutter) for piece in pieces]  # -1, 1, and 0 for what is over both
    turns = sum(sides[n] * sides[n + 1] < 0 for n in range(count - 1))
    for side in (-1, 1):
        widths = [piece[2] - piece[0] for piece, each in zip(pieces, sides, strict=True) if each == side]
        is_prose = len(widths) >= COLUMN_LINES and sum(widths) > len(widths) * COLUMN_WIDTH * width
        if not is_prose or turns < 1.5 * len(widths):
            return ""
    found, top = [], height
    wide = sorted((piece for piece, side in zip(pieces, sides, strict=True) if not side), key=lambda piece: -piece[3])
    for _, bottom, _, above in [*wide, (0, 0, 0, 0)]:
        found += [words.get_text_bounded(left, above, right, top) for left, right in ((0, gutter), (gutter, width))]
        found.append(words.get_text_bounded(0, bottom, width, above) if above else "")
        top = bottom
    return "\n".join(filter(None, map(str.strip, found)))


def _is_side_by_side(words: Any, width: float) -> bool:
    """Whether text is beside other text in several lines, other than in columns that are drawn one after the
    other."""
    lines: dict[int, list[tuple[float, float, float, int]]] = {}
    for n in range(min(words.count_rects(), MOST_PIECES)):
        left, bottom, right, top = words.get_rect(n)
        lines.setdefault(round(bottom / 3), []).append((left, right, top - bottom, n))
    count = 0
    for line in lines.values():
        line.sort()
        gaps = [(one, other) for one, other in pairwise(line) if other[0] - one[1] > GAP * max(one[2], other[2])]
        narrow = sum(right - left for left, right, *_ in line) < COLUMN_WIDTH * width * len(line)
        count += any(narrow or other[3] - one[3] == 1 for one, other in gaps)
    return count >= SIDE_BY_SIDE


class _Table(NamedTuple):
    """A table of a page, from ``top`` down to ``bottom``; None is the edge of the page."""

    top: float | None
    bottom: float | None
    rows: list[list[str]]


class _Cell(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float
    text: str
    first: int


def _tables(words: Any, width: float) -> list[_Table]:
    """The tables of a page from top to bottom: lines below each other whose pieces are in columns."""
    runs: list[tuple[list[list[_Cell]], list[tuple[float, float]]]] = []
    for line in _lines(words):
        lines, columns = runs[-1] if runs else ([], [])
        is_near = lines and _bottom(lines[-1]) - _top(line) <= MOST_SPACE * (_top(line) - _bottom(line))
        widened = _with_line(columns, line) if is_near else None
        if widened is None:
            runs.append(([line], _with_line([], line) or []))
        else:
            lines.append(line)
            runs[-1] = (lines, widened)
    return [table for run in runs if (table := _table(*run, width)) is not None]


def _top(line: Sequence[_Cell]) -> float:
    return max(cell.top for cell in line)


def _bottom(line: Sequence[_Cell]) -> float:
    return min(cell.bottom for cell in line)


def _lines(words: Any) -> list[list[_Cell]]:
    """The lines of a page from top to bottom, each in cells: pieces with more between them than words have."""
    count = words.count_rects()
    if count > MOST_PIECES:
        return []
    boxes = sorted(((words.get_rect(n), n) for n in range(count)), key=lambda each: -each[0][1] - each[0][3])
    lines: list[list[_Cell]] = []
    for (left, bottom, right, top), n in boxes:
        cell = _Cell(left, bottom, right, top, words.get_text_bounded(left, bottom, right, top).strip(), n)
        if lines and (bottom + top) / 2 > _bottom(lines[-1]):
            lines[-1].append(cell)
        elif cell.text:
            lines.append([cell])
    for line in lines:
        line.sort()
        space = CELL_GAP * (_top(line) - _bottom(line))
        for n in range(len(line) - 1, 0, -1):
            one, other = line[n - 1], line[n]
            if other.left - one.right < space:
                box = (min(one.bottom, other.bottom), other.right, max(one.top, other.top))
                line[n - 1 : n + 1] = [_Cell(one.left, *box, f"{one.text} {other.text}", one.first)]
    return lines


def _with_line(columns: Sequence[tuple[float, float]], line: Sequence[_Cell]) -> list[tuple[float, float]] | None:
    """The columns from left to right, as wide as the cells of this line need; None where a cell is over two of them,
    or two cells are in one."""
    widened, taken = list(columns), set[tuple[float, float]]()
    for cell in line:
        over = [n for n, (left, right) in enumerate(widened) if left < cell.right and cell.left < right]
        if len(over) > 1 or any(widened[n] in taken for n in over):
            return None
        left, right = widened.pop(over[0]) if over else (cell.left, cell.right)
        place = (min(cell.left, left), max(cell.right, right))
        taken.add(place)
        insort(widened, place)
    return widened


def _column(cell: _Cell, columns: Sequence[tuple[float, float]]) -> int:
    return bisect_right(columns, (cell.left, inf)) - 1


def _table(run: list[list[_Cell]], columns: list[tuple[float, float]], width: float) -> _Table | None:
    """The table that these lines are, if enough of them have several cells that no columns of prose have."""
    is_row = [
        len(line) > 1
        and (
            sum(cell.right - cell.left for cell in line) < COLUMN_WIDTH * width * len(line)
            or any(other.first - one.first == 1 for one, other in pairwise(line))
        )
        for line in run
    ]
    if sum(is_row) < SIDE_BY_SIDE:
        return None
    first, end = is_row.index(True), len(run) - is_row[::-1].index(True)
    run = run[first:end]
    columns = [
        each
        for each in columns
        if any(_column(cell, [each]) == 0 and cell.right <= each[1] for line in run for cell in line)
    ]
    groups: list[list[list[str]]] = []
    steps = [_top(above) - _top(below) for above, below in pairwise(run)]
    for line, step in zip(run, [max(steps), *steps], strict=True):
        cells = [""] * len(columns)
        for cell in line:
            cells[_column(cell, columns)] = cell.text
        if step > CONTINUED * max(steps):
            groups.append([])
        groups[-1].append(cells)
    rows = [row for group in groups for row in _rows_of(group)]
    return _Table(_top(run[0]), _bottom(run[-1]), rows)


def _rows_of(lines: list[list[str]]) -> list[list[str]]:
    """The rows that lines close to each other are: one whose cells have several lines, if its first cell has one."""
    others = [cell for cells in lines if not cells[0] for cell in cells]
    if sum(bool(cells[0]) for cells in lines) != 1 or any(map(NUMBER.fullmatch, others)):
        return lines
    return [[" ".join(filter(None, cells)) for cells in zip(*lines, strict=True)]]


def _with_tables(words: Any, tables: Sequence[_Table], text: str) -> list[Block]:
    """The tables with the text that is above, between and below them; the ``text`` alone where a part of it would be
    missing."""
    blocks, top = list[Block](), None
    for table in [*tables, _Table(None, None, [])] if tables else []:
        between = words.get_text_bounded(None, table.top, None, top).replace("\r\n", "\n").replace("\r", "\n")
        blocks.append(Block(PARAGRAPH, _joined(between.replace("\ufffe", "\x02")).strip()))
        blocks.append(Block(TABLE, rows=tuple(tuple(map(_joined, row)) for row in table.rows)))
        top = table.bottom
    written = "".join(block.text + "".join(cell for row in block.rows for cell in row) for block in blocks)
    is_whole = Counter("".join(written.split())) == Counter("".join(text.split()))
    return [block for block in blocks if block.text or block.rows] if is_whole else [Block(PARAGRAPH, text.strip("\n"))]


def _joined(text: str, doubtful: list[str] | None = None) -> str:
    """The text with the words whole that a hyphen divides at the end of a line; one that is written with a hyphen
    elsewhere on the page keeps it. ``doubtful`` gets the words that are on the page in no other place."""

    def whole(match: re.Match[str]) -> str:
        with_hyphen = f"{match[1]}-{match[2]}"
        is_name = match[1][-1:].islower() and match[2][:1].isupper()
        is_compound = len(match[1]) == 1 or match[1].lower() in COMPOUNDS  # no word is divided behind its first letter
        if is_name or with_hyphen in text or (match[2] and is_compound and match[2] not in SUFFIXES):
            return with_hyphen
        word = match[1] + match[2]
        if doubtful is not None and "\x02" in match[0] and word not in text and len(doubtful) <= MOST_NAMED:
            doubtful.append(word)
        return word

    return TRAILING.sub("", RANGE.sub("", HYPHEN.sub(whole, text))).translate(LIGATURES)


def _unmapped(words: Any) -> int:
    """How many characters have no Unicode."""
    from pypdfium2 import raw

    return sum(raw.FPDFText_HasUnicodeMapError(words, n) == 1 for n in range(words.count_chars()))


def _raised(words: Any) -> int:
    """How many superscripts are digits behind a digit: 10⁶, whose text is 106."""
    from pypdfium2 import raw

    found = 0
    for pair in PAIR.finditer(words.get_text_range()):
        places = []
        for n in (pair.start(), pair.start() + 1):
            x, y, index = ctypes.c_double(), ctypes.c_double(), raw.FPDFText_GetCharIndexFromTextIndex(words, n)
            raw.FPDFText_GetCharOrigin(words, index, x, y)
            places.append((raw.FPDFText_GetFontSize(words, index), y.value))
        (size, height), (size_after, height_after) = places
        found += size_after < 0.85 * size and height_after > height + 0.1 * size
    return found


def _is_picture(page: Any, has_text: bool) -> bool:
    """Whether a page with little or no text shows something: without text anything, else a picture over most of it."""
    from pypdfium2 import raw

    if not has_text:
        return next(page.get_objects(max_depth=1), None) is not None
    width, height = page.get_size()
    covered = 0.0
    for each in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = each.get_bounds()
        covered += max(0.0, right - left) * max(0.0, top - bottom)
    return bool(covered > FULL_PAGE * width * height)


def _annotations(page: Any) -> Iterator[tuple[str, str]]:
    """What is written into a page's forms, after the names of the fields, and into its notes."""
    from pypdfium2 import raw

    form = page.formenv
    for number in range(min(raw.FPDFPage_GetAnnotCount(page), MOST_ANNOTATIONS)):
        note = raw.FPDFPage_GetAnnot(page, number)
        if not note:
            continue
        kind = raw.FPDFAnnot_GetSubtype(note)
        if kind == raw.FPDF_ANNOT_FILEATTACHMENT:
            file = raw.FPDFAnnot_GetFileAttachment(note)
            yield "Attached file:", (_string(raw.FPDFAttachment_GetName, file) if file else "") or "[without a name]"
        if kind == raw.FPDF_ANNOT_WIDGET and form is not None:
            field = raw.FPDFAnnot_GetFormFieldType(form, note)
            value = _string(raw.FPDFAnnot_GetFormFieldValue, form, note)
            if field in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
                value = "yes" if raw.FPDFAnnot_IsChecked(form, note) else "no"
                if field == raw.FPDF_FORMFIELD_RADIOBUTTON:
                    is_chosen = value == "yes"
                    value = _string(raw.FPDFAnnot_GetFormFieldExportValue, form, note) if is_chosen else ""
            name = _string(raw.FPDFAnnot_GetFormFieldAlternateName, form, note) or _string(
                raw.FPDFAnnot_GetFormFieldName, form, note
            )
            if value and field != raw.FPDF_FORMFIELD_PUSHBUTTON:
                yield f"{name}:", value
        elif kind not in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_WIDGET) and (
            text := _string(raw.FPDFAnnot_GetStringValue, note, b"Contents")
        ):
            yield "Note:", text.replace("\r\n", "\n").replace("\r", "\n")
        elif kind in (raw.FPDF_ANNOT_STAMP, raw.FPDF_ANNOT_FREETEXT):
            yield "Note:", "[a stamp without text]"
        raw.FPDFPage_CloseAnnot(note)


def _string(function: Callable[..., int], *arguments: Any) -> str:
    """What a function of pdfium writes: UTF-16 with an end."""
    from pypdfium2 import raw

    size = function(*arguments, None, 0)
    data = ctypes.create_string_buffer(size)
    function(*arguments, ctypes.cast(data, ctypes.POINTER(raw.FPDF_WCHAR)), size)
    return data.raw[: max(size - 2, 0)].decode("utf-16-le", "replace").strip()
