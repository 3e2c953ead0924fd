"""Pages of HTML as lines of text, and the charsets that texts and pages are in.

Python's own parser looks for the end of an open comment, tag or declaration again from each of them, and raises for
some. The rules here are those of the HTML standard's tokenizer, as far as they decide what is text.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left

from ...errors import LeapError
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


class UnreadableDocumentError(LeapError):
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


BLOCK_TAGS = {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "section", "article", "table"}
HIDDEN_TAGS = {"script", "style", "head", "template", "noscript", "svg"}
RAW_TAGS = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "noscript"}
"""Their content holds no tags."""
JOINED_TAGS = {"b", "big", "em", "font", "i", "mark", "nobr", "small", "strong", "tt", "u", "wbr"}
"""They stand within words, too; what is on both sides of any other tag is apart."""
LOOSE_TAGS = {"a", "abbr", "bdi", "data", "span", "time"}
"""They part words, and no sign from its word or number: ``<span>12</span>.<span>50</span>``."""
MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
TAG_NAME = re.compile(r"/?([A-Za-z][^\s/>]*)")
ATTRIBUTE = re.compile(r"[\s/]*(?:(?P<end>>)|[^\s/>][^\s/>=]*\s*(?:=\s*(?:\"[^\"]*\"|'[^']*'|(?![\"'])[^\s>]*))?)")
LARGE_NUMBERS = re.compile(r"&#(?:\d{8,}|[xX][0-9A-Fa-f]{8,});?")
"""References to characters that there are not; Python refuses to read numbers of thousands of digits."""
REPLACEMENT = "\ufffd"


def html_lines(page: str) -> list[TextLine]:
    """The words between tags with the lines on which they are; headings as Markdown writes them."""
    text = _PlainText(page)
    position = 0
    while (markup := MARKUP.search(page, position)) is not None:
        text.add_words(position, markup.start())
        position = text.read_markup(markup.end())
    text.add_words(position, len(page))
    text.end_line()
    return text.lines


class _PlainText:
    """What was read so far. ``_hidden``: the open tags whose text is not shown, each once, the outermost first."""

    def __init__(self, page: str) -> None:
        self.lines: list[TextLine] = []
        self._page = page
        self._line_ends = [match.start() for match in re.finditer("\n", page)]
        self._hidden: list[str] = []
        self._parts: list[str] = []
        self._has_words = False
        self._is_loose = False
        self._number = 1
        self._heading = ""

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
            self._is_loose = True
        elif tag not in JOINED_TAGS:
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
            self.end_line()
        if len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self._heading = "#" * int(tag[1]) + " "

    def _close(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        if tag in BLOCK_TAGS:
            self.end_line()

    def add_words(self, start: int, end: int) -> None:
        """Take the page's text from ``start`` to ``end`` into the line."""
        if self._hidden or start == end:
            return
        text = self._page[start:end]
        if not self._has_words:
            first = start + len(text) - len(text.lstrip())
            self._number = bisect_left(self._line_ends, first) + 1
        if "&" in text:
            text = html.unescape(LARGE_NUMBERS.sub(REPLACEMENT, text)) or " "  # a control character is nothing
        self._has_words = self._has_words or bool(text.strip())
        if self._is_loose and self._parts and self._parts[-1][-1].isalnum() and text[0].isalnum():
            self._parts.append(" ")
        self._is_loose = False
        self._parts.append(text)

    def end_line(self) -> None:
        """A block ends: what was collected is a line, with an empty one behind it."""
        if self._has_words:
            self.lines.append(TextLine(self._number, self._heading + " ".join("".join(self._parts).split())))
            self.lines.append(TextLine(self._number, ""))
        self._parts, self._has_words, self._is_loose, self._heading = [], False, False, ""


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
