"""Pages of HTML as lines of text, and the charsets that texts and pages are in.

Python's own parser looks for the end of an open comment, tag or declaration again from each of them, and raises for
some. The rules here are those of the HTML standard's tokenizer, as far as they decide what is text.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left

from ...errors import LeapError, LeapSerializationError
from ...system.dataclass import dataclass

CELL_END = " | "
"""Between the cells of a table's row."""
DECLARED = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]{0,80}?encoding\s*=\s*[\"']([\w.:-]+)", re.I
)
DECLARATION_WITHIN = 1024
"""A page says its encoding in its first bytes."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
WIDER = {
    **dict.fromkeys(("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii"), "cp1252"),
    **dict.fromkeys(("iso-8859-9", "latin5"), "cp1254"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j", "ms_kanji"), "cp932"),
    **dict.fromkeys(("gb2312", "gbk", "gb18030", "x-gbk", "chinese"), "gb18030"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "ksc5601", "korean", "windows-949"), "cp949"),
    **dict.fromkeys(("big5", "big5-hkscs", "x-x-big5", "cn-big5"), "big5hkscs"),
    **dict.fromkeys(("utf-8", "utf8", "utf-16", "utf-16le", "utf-16be", "unicode"), "utf-8"),
    **{f"iso-8859-{n}": f"iso8859-{n}" for n in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"windows-125{n}": f"cp125{n}" for n in range(9)},
    **dict.fromkeys(("windows-874", "tis-620", "iso-8859-11"), "cp874"),
    **{name: name for name in ("euc-jp", "iso-2022-jp", "koi8-r", "koi8-u")},
    **dict.fromkeys(("ibm866", "cp866"), "cp866"),
    "macintosh": "mac-roman",
}
"""The labels that pages use, and what browsers read under them; a page that can say UTF-16 in ASCII is not in it."""


class UnreadableDocumentError(LeapSerializationError):
    """A document that cannot be read: not text, too large, encrypted, or damaged."""


class UnknownCharsetError(LeapError):
    """A page declares an encoding that there is not, and is not UTF-8."""


def decoded(data: bytes) -> str:
    """A text file's text: by its byte order mark, as UTF-8, else as Windows writes it."""
    for encoding in ("utf-16" if data.startswith(UTF_16) else "utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", "replace")


def decoded_page(data: bytes) -> str:
    """A page's text: by its byte order mark, else by the encoding that it declares, else as any text. Raises
    UnknownCharsetError."""
    declared = DECLARED.search(data[:DECLARATION_WITHIN])
    if declared is None or data.startswith((*UTF_16, b"\xef\xbb\xbf")):
        return decoded(data)
    label = (declared[1] or declared[2]).decode("ascii", "replace").lower()
    if label in WIDER:
        try:
            return data.decode(WIDER[label])
        except UnicodeDecodeError:
            pass
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        if label not in WIDER:
            raise UnknownCharsetError(f"it declares the charset {label!r}, which leap does not know") from None
        return data.decode(WIDER[label], "replace")


@dataclass(frozen=True)
class TextLine:
    """``number``: of the line in the file, of the page in what has pages; counted from 1."""

    number: int
    text: str


BLOCK_TAGS = {
    *("p", "div", "br", "li", "ul", "ol", "dl", "dt", "dd", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "table"),
    *("section", "article", "blockquote", "header", "footer", "main", "nav", "aside", "figcaption", "address", "hr"),
}
HIDDEN_TAGS = {"script", "style", "head", "template", "noscript", "svg"}
RAW_TAGS = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "noscript"}
"""Their content holds no tags."""
JOINED_TAGS = {"b", "big", "em", "font", "i", "mark", "nobr", "small", "strong", "tt", "u", "wbr"}
"""They stand within words, too; what is on both sides of any other tag is apart."""
LOOSE_TAGS = {
    *("a", "abbr", "bdi", "bdo", "cite", "code", "data", "dfn", "kbd", "label", "q", "s", "samp", "span"),
    *("sub", "sup", "time", "var"),
}
"""They part words, and no sign from its word or number: ``<span>12</span>.<span>50</span>``."""
MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
TAG_NAME = re.compile(r"/?([A-Za-z][^\s/>]*)")
ATTRIBUTE = re.compile(r"[\s/]*(?:(?P<end>>)|[^\s/>][^\s/>=]*\s*(?:=\s*(?:\"[^\"]*\"|'[^']*'|(?![\"'])[^\s>]*))?)")
LARGE_NUMBERS = re.compile(r"&#(?:\d{8,}|[xX][0-9A-Fa-f]{8,});?")
"""References to characters that there are not; Python refuses to read numbers of thousands of digits."""
REPLACEMENT = "\ufffd"


def html_lines(page: str) -> list[TextLine]:
    """The words between tags with the lines on which they are: a line for each block, an empty one behind it. Headings
    and items of lists as Markdown writes them, a row of a table with `` | `` between its cells, ``pre`` as it is."""
    text = _PlainText(page)
    position = 0
    while (markup := MARKUP.search(page, position)) is not None:
        text.add_words(position, markup.start())
        position = text.read_markup(markup.end())
    text.add_words(position, len(page))
    text.end_line()
    return text.lines


def main_lines(page: str) -> list[TextLine]:
    """The lines of what a page says is its main part, or its only article, where there are words in it; else of all."""
    for tag in ("main", "article"):
        begins = [each.start() for each in re.finditer(rf"<{tag}\b", page, re.IGNORECASE)]
        ends = [each.start() for each in re.finditer(rf"</{tag}\b", page, re.IGNORECASE)]
        is_one = begins and ends and (tag == "main" or len(begins) == 1)
        if is_one and (lines := html_lines(page[begins[0] : ends[-1]])):
            return lines
    return html_lines(page)


HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
CELLS = ("td", "th")
ITEM, ROW, LITERAL = "item", "row", "literal"
"""Kinds of lines that follow each other without an empty one."""
DEEPEST_LIST = 16


class _PlainText:
    """What was read so far. ``_hidden``: the open tags whose text is not shown, each once, the outermost first.
    ``_lists``: the open lists, the outermost first: the number of the last item, None where they have none.
    ``_kind``: of the line that is being read. ``_row``: whether a cell of this row was begun, and has words; None
    outside of rows. ``_is_broken``: a block ended in a cell, whose next words are on a line of their own."""

    def __init__(self, page: str) -> None:
        self.lines: list[TextLine] = []
        self._page = page
        self._line_ends = [match.start() for match in re.finditer("\n", page)]
        self._hidden: list[str] = []
        self._parts: list[str] = []
        self._has_words = False
        self._is_loose = False
        self._number = 1
        self._prefix = ""
        self._lists: list[int | None] = []
        self._kind = self._last_kind = ""
        self._row: bool | None = None
        self._is_in_cell = self._is_broken = self._cell_has_words = self._is_literal = False

    def read_markup(self, position: int) -> int:
        """Read what begins behind a ``<``; returns where it ends."""
        page = self._page
        if page.startswith("!--", position):
            return _behind(page, "-->", position + 1)
        name = TAG_NAME.match(page, position)
        if name is None:
            return _behind(page, ">", position)
        end = _end_of_tag(page, name.end())
        tag = name[1].lower()
        if tag in LOOSE_TAGS:
            self._is_loose = not self._is_literal
        elif tag not in JOINED_TAGS and not self._is_literal:
            self._parts.append(" ")
        if page[position] == "/":
            self._close(tag)
            return end
        self._open(tag)
        if tag in RAW_TAGS:
            closing = re.compile(rf"</{re.escape(tag)}(?=[\s/>])", re.IGNORECASE).search(page, end)
            text_end = len(page) if closing is None else closing.start()
            self.add_words(end, text_end)
            return text_end
        return end

    def _open(self, tag: str) -> None:
        if self._hidden == ["head"] and (tag == "body" or tag in BLOCK_TAGS):
            self._hidden = []  # the end of the head need not be written
        if tag in HIDDEN_TAGS and tag not in self._hidden:
            self._hidden.append(tag)
        if tag in BLOCK_TAGS:
            self._end_block(tag)
        if tag in HEADINGS and self._begins_line():
            self._prefix = HEADINGS[tag]
        elif tag in ("ul", "ol") and len(self._lists) < DEEPEST_LIST:
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._begin_item()
        elif tag == "tr":
            self._row = False
        elif tag in CELLS and self._row is not None:
            self._begin_cell()
        elif tag == "pre":
            self._is_literal = True

    def _close(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        if tag in BLOCK_TAGS:
            self._end_block(tag)
            if (tag in HEADINGS or tag == "li") and not self._has_words:
                self._prefix = self._kind = ""  # an empty one
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        elif tag in CELLS:
            self._is_in_cell = False
        elif tag == "pre":
            self._is_literal = False

    def _end_block(self, tag: str) -> None:
        """A block begins or ends here: the line does, but in the cell of a row only where there are more words."""
        if tag in ("tr", "table"):
            self._row, self._is_in_cell = None, False
        if self._is_in_cell:
            self._is_broken = True
            return
        self.end_line()
        if tag in ("tr", "table"):
            self._kind = ""

    def _begin_item(self) -> None:
        if self._lists:
            number = self._lists[-1]
            self._lists[-1] = None if number is None else number + 1
            mark = "- " if number is None else f"{number + 1}. "
            if self._begins_line():
                self._prefix, self._kind = "  " * (len(self._lists) - 1) + mark, ITEM

    def _begins_line(self) -> bool:
        """Whether the next words begin a line, which they do behind a block in a cell."""
        if self._is_broken and self._cell_has_words:
            self._kind = ""  # more than a row of words
            self.end_line()
            self._is_broken = False
        return not self._has_words

    def _begin_cell(self) -> None:
        if self._row:
            self._parts.append(CELL_END)
        self._row, self._kind = True, ROW
        self._is_in_cell, self._is_broken, self._cell_has_words = True, False, False

    def add_words(self, start: int, end: int) -> None:
        """Take the page's text from ``start`` to ``end`` into the line."""
        if self._hidden or start == end:
            return
        if not self._is_literal:
            self._add(start, end)
            return
        while (line_end := self._page.find("\n", start, end)) >= 0:
            self._add(start, line_end)
            self.end_line()
            start = line_end + 1
        self._add(start, end)

    def _add(self, start: int, end: int) -> None:
        text = self._page[start:end]
        has_words = bool(text) and not text.isspace()
        if has_words:
            self._begins_line()
            self._is_broken = False
        if not self._has_words:
            first = start + len(text) - len(text.lstrip())
            self._number = bisect_left(self._line_ends, first) + 1
        if "&" in text:
            text = html.unescape(LARGE_NUMBERS.sub(REPLACEMENT, text)) or " "  # a control character is nothing
            has_words = bool(text.strip())
        self._has_words = self._has_words or has_words
        self._cell_has_words = self._cell_has_words or has_words
        if self._is_loose and self._parts and self._parts[-1][-1].isalnum() and text[:1].isalnum():
            self._parts.append(" ")
        self._is_loose = False
        if text:
            self._parts.append(text)

    def end_line(self) -> None:
        """A block ends: what was collected is a line, with an empty one behind it."""
        kind = LITERAL if self._is_literal else self._kind
        if self._has_words:
            if kind and kind == self._last_kind:
                self.lines.pop()
            text = "".join(self._parts)
            text = text.rstrip() if self._is_literal else " ".join(text.split())
            self.lines.append(TextLine(self._number, self._prefix + text))
            self.lines.append(TextLine(self._number, ""))
            self._prefix, self._kind, self._last_kind = "", "", kind
        self._parts, self._has_words, self._is_loose = [], False, False


def _end_of_tag(page: str, position: int) -> int:
    """Where the tag's ``>`` is passed; the page's end where a tag or a quoted value is left open."""
    while (attribute := ATTRIBUTE.match(page, position)) is not None:
        position = attribute.end()
        if attribute["end"]:
            return position
    return len(page)


def _behind(page: str, what: str, position: int) -> int:
    found = page.find(what, position)
    return len(page) if found < 0 else found + len(what)
