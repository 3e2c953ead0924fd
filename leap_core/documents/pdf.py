"""PDF files by pdfium: text, values of forms, annotations, and which pages are pictures of their text."""

from __future__ import annotations

import base64
import ctypes
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

from .blocks import NOTE, Block, UnreadableDocumentError
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
    if not columns and _is_side_by_side(words, page.get_width()):
        doubts.pages.append(out.sections)
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
    out.text(text.strip("\n"))
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


def _joined(text: str, doubtful: list[str] | None = None) -> str:
    """The text with the words whole that a hyphen divides at the end of a line; one that is written with a hyphen
    elsewhere on the page keeps it. ``doubtful`` gets the words that are on the page in no other place."""

    def whole(match: re.Match[str]) -> str:
        with_hyphen = f"{match[1]}-{match[2]}"
        is_name = match[1][-1:].islower() and match[2][:1].isupper()
        if is_name or with_hyphen in text:
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
