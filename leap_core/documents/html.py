"""Pages of HTML and XHTML as blocks.

Python's own parser looks for the end of an open comment, tag or declaration again from each of them, and raises for
some. The rules here are those of the HTML standard's tokenizer, as far as they decide what is text, and take time in
proportion to the page's length.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import BinaryIO

from .blocks import CODE, HEADING, LIST_ITEM, PARAGRAPH, Block
from .builder import BlockSink, Builder, counted, raised
from .output import DocumentOutput
from .text import decode

DECLARED = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]{0,80}?encoding\s*=\s*[\"']([\w.:-]+)", re.I
)
DECLARATION_WITHIN = 1024
"""A page says its encoding, and that it is XML, in its first bytes."""
IS_XML = re.compile(r"\s*<\?xml\b|[^>]{0,200}<html[^>]{0,300}xmlns\s*=", re.I)
HEADINGS = {f"h{n}": n for n in range(1, 7)}
CELLS = ("td", "th")
BLOCK_TAGS = {
    *("p", "div", "li", "ul", "ol", "dl", "dt", "dd", "tr", "pre", "table", "caption", "tbody", "thead", "tfoot"),
    *("section", "article", "blockquote", "header", "footer", "main", "nav", "aside", "figcaption", "address", "hr"),
    *(*HEADINGS, *CELLS, "body", "form", "fieldset", "legend", "figure", "details", "summary"),
}
HIDDEN_TAGS = {"script", "style", "head", "template", "noscript", "svg", "rp"}
RAW_TAGS = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "noscript"}
"""Their content holds no tags."""
OPEN_ENDED = {"p", "li", "dt", "dd", "tr", "option", *CELLS}
"""The next of them ends one that is open."""
RUBY = ("rb", "rp", "rt", "ruby")
VOID_TAGS = {"br", "hr", "img", "input", "link", "meta", "wbr", "col", "area", "base", "embed", "source", "track"}
JOINED_TAGS = {*("b", "big", "em", "font", "i", "mark", "nobr", "small", "strong", "tt", "u", "wbr"), *RUBY}
"""They stand within words, too; what is on both sides of any other tag is apart."""
LOOSE_TAGS = {
    *("a", "abbr", "bdi", "bdo", "cite", "code", "data", "dfn", "kbd", "label", "q", "s", "samp", "span"),
    *("sub", "sup", "time", "var"),
}
"""They part words, and no sign from its word or number: ``<span>12</span>.<span>50</span>``."""
MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
TAG_NAME = re.compile(r"/?([A-Za-z][^\s/>]*)")
ATTRIBUTE = re.compile(
    r"[\s/]*(?:(?P<end>>)|(?P<name>[^\s/>][^\s/>=]*)\s*(?:=\s*(\"[^\"]*\"|'[^']*'|(?![\"'])[^\s>]*))?)"
)
NOT_DISPLAYED = re.compile(r"display\s*:\s*none", re.I)
TEX = re.compile(r"<(?:\w+:)?annotation\b[^>]{0,100}\btex\b[^>]{0,100}>([^<]*)<", re.I)
TAG = re.compile(r"<[^<>]*>")
ANNOTATION = re.compile(r"<(?:\w+:)?annotation\b[^<]*")
LARGE_NUMBERS = re.compile(r"&#(?:\d{8,}|[xX][0-9A-Fa-f]{8,});?")
"""References to characters that there are not; Python refuses to read numbers of thousands of digits."""
KEPT = {*("alt", "alttext", "checked", "colspan", "hidden", "reversed", "rowspan", "selected"), "start", "style"}
KEPT |= {"type", "value"}
"""The attributes that matter."""
BREAK = "\v"
"""A line break within a block."""
DEEPEST_LIST = 16
LONGEST_LIST = 50_000
"""Characters of a list that counts down from the number of its items."""
FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
FIELDS = ("", "text", "email", "tel", "url", "search", "number", "date", "time", "datetime-local", "month")
"""Kinds of ``input`` whose value is shown."""
CHECKED = ("checkbox", "radio")


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """The blocks of a page; where only its main part is wanted, of what the page says that is: ``main``, or its only
    ``article``."""
    page = decoded_page(file.read(), out)
    for tag in ("main", "article") if out.main_only else ():
        begins = [each.start() for each in re.finditer(rf"<{tag}\b", page, re.IGNORECASE)]
        ends = [each.start() for each in re.finditer(rf"</{tag}\b", page, re.IGNORECASE)]
        if begins and ends and begins[0] < ends[-1] and (tag == "main" or len(begins) == 1):
            try:
                write_page(page[: ends[-1]], _AnyWords(), begins[0])
            except StopIteration:
                return write_page(page[: ends[-1]], out, begins[0])
    write_page(page, out)


class _AnyWords:
    """A sink that stops at the first block."""

    def add(self, *_: object) -> None:
        raise StopIteration

    row = end_table = add


def decoded_page(data: bytes, out: DocumentOutput) -> str:
    """A page's text: in the charset that it declares, or as any text."""
    found = DECLARED.search(data[:DECLARATION_WITHIN])
    label = "" if found is None else (found[1] or found[2]).decode("ascii", "replace")
    page, note = decode(data, "utf-8" if label.lower().startswith("utf-16") else label)  # this was read as ASCII
    if note:
        out.note(note)
    return page


def write_page(page: str, sink: BlockSink, start: int = 0, *, is_xml: bool = False) -> None:
    """Write the blocks of a page from ``start`` on. ``is_xml``: also where the page does not say so."""
    reader = _Page(page, sink, is_xml or IS_XML.match(page[:DECLARATION_WITHIN]) is not None)
    position = start
    while (markup := MARKUP.search(page, position)) is not None:
        reader.add_words(position, markup.start())
        position = reader.read_markup(markup.end())
    reader.add_words(position, len(page))
    reader.end()


class _Page:
    """What was read so far. ``_hidden``: the open tags whose text is not shown, the outermost first, and how often each
    is open. ``_lists``: the open lists, the outermost first: the number of the last item, None where they have none,
    its form, and the step to the next one.
    ``_next``: kind, level and label of the block that the next words begin."""

    def __init__(self, page: str, sink: BlockSink, is_xml: bool) -> None:
        self._page, self._is_xml = page, is_xml
        self._hidden: dict[str, int] = {}
        self._parts: list[str] = []
        self._has_words = self._is_loose = self._is_literal = self._is_raised = self._is_reading = False
        self._counted, self._line, self._behind_tag = 0, 1, 0
        self._lists: list[tuple[int | None, str, int]] = []
        self._next: tuple[str, int, str] = (PARAGRAPH, 0, "")
        self._builder, self._tables, self._row_line = Builder(sink, of_page=True), 0, 0
        self._unclosed: set[str] = set()

    def read_markup(self, position: int) -> int:
        """Read what begins behind a ``<``; returns where it ends."""
        page = self._page
        if page.startswith("!--", position):
            return _behind(page, "-->", position + 1)
        if self._is_xml and page.startswith("![CDATA[", position):
            end = _behind(page, "]]>", position)
            self.add_words(position + 8, end - 3)
            return end
        name = TAG_NAME.match(page, position)
        if name is None:
            return _behind(page, ">", position)
        tag = name[1].lower().rpartition(":")[2]
        end, attributes = _attributes(page, name.end())
        if tag in LOOSE_TAGS:
            self._is_loose, self._is_raised = not self._is_literal, tag == "sup" and page[position] != "/"
        elif tag not in JOINED_TAGS and not self._is_literal:
            self._parts.append(" ")
        if page[position] == "/":
            self._close(tag)
            return end
        closing = self._closing(tag, end) if tag in RAW_TAGS or tag == "math" else None
        is_closed = page.endswith("/>", position, end) and (
            self._is_xml or tag in ("svg", "math") or (tag in RAW_TAGS and closing is None)
        )
        self._behind_tag = end
        self._open(tag, attributes)
        if is_closed:
            self._close(tag)
        elif tag == "math" and closing is not None:
            self._put(equation(page[end : closing.start()], attributes), end)
            return closing.start()
        elif tag in RAW_TAGS:
            text_end = len(page) if closing is None else closing.start()
            self.add_words(end, text_end)
            return text_end
        return end

    def _closing(self, tag: str, position: int) -> re.Match[str] | None:
        """The end of an element; None where it is left open, which is looked for only once."""
        if tag in self._unclosed:
            return None
        found = re.compile(rf"</(?:\w{{1,20}}:)?{tag}(?=[\s/>])", re.IGNORECASE).search(self._page, position)
        if found is None:
            self._unclosed.add(tag)
        return found

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        if list(self._hidden) == ["head"] and (tag == "body" or tag in BLOCK_TAGS):
            self._hidden = {}  # the end of the head need not be written
        self._hide(tag, attributes)
        if self._is_block(tag):
            self.end_block()
        if tag in HEADINGS:
            self._next = (HEADING, HEADINGS[tag], "")
        elif tag in ("ul", "ol", "li"):
            self._open_list(tag, attributes)
        elif self._tables or tag == "table":
            self._open_table(tag, attributes)
        if tag == "br":
            self._parts.append("\n" if self._is_literal else BREAK)
        elif tag == "img" and attributes.get("alt", "").strip():
            self._put(f" [picture: {attributes['alt'].strip()}] ", 0)
        elif tag in ("input", "option"):
            self._open_field(tag, attributes)
        elif tag == "rt":
            self._hidden.pop("rp", None)
            self._put("(", 0)
            self._is_reading = True
        elif tag == "pre":
            self._is_literal = True

    def _open_field(self, tag: str, attributes: dict[str, str]) -> None:
        """A field of a form, or an option of one."""
        kind = attributes.get("type", "").lower()
        if tag == "option":
            if "selected" in attributes:
                self._put("☒ ", 0)
        elif kind in FIELDS:
            self._put(f" {attributes.get('value', '')} ", 0)
        elif kind in CHECKED:
            self._put(" ☒ " if "checked" in attributes else " ☐ ", 0)

    def _open_list(self, tag: str, attributes: dict[str, str]) -> None:
        """A list, or an item of one."""
        if tag != "li" and len(self._lists) < DEEPEST_LIST:
            step = -1 if "reversed" in attributes else 1
            most = self._behind_tag + LONGEST_LIST if step < 0 else 0
            inner, end, _ = self._page[self._behind_tag : most].partition("</ol")
            if end and "<ol" not in inner and "<ul" not in inner:
                attributes.setdefault("start", str(inner.count("<li")))
            is_counted = tag == "ol" and (step > 0 or "start" in attributes)
            first = _number(attributes.get("start"), 1, 10**6) - step if is_counted else None
            self._lists.append((first, FORMS.get(attributes.get("type", ""), ""), step))
        elif tag == "li" and self._lists:
            number, form, step = self._lists[-1]
            if number is not None:
                number = _number(attributes["value"], 0, 10**6) if "value" in attributes else number + step
            self._lists[-1] = number, form, step
            self._next = (LIST_ITEM, len(self._lists) - 1, "-" if number is None else f"{counted(number, form)}.")

    def _open_table(self, tag: str, attributes: dict[str, str]) -> None:
        """A table, or a row or cell of one."""
        if tag == "table":
            self._builder.table()
            self._tables += 1
        elif tag == "tr":
            self._builder.end_row(0, self._row_line)
            self._row_line = 0
        elif tag in CELLS:
            columns, rows = _number(attributes.get("colspan"), 1, 1000), _number(attributes.get("rowspan"), 0, 65534)
            self._builder.cell(columns, rows or 65534)

    def _is_block(self, tag: str) -> bool:
        return tag in BLOCK_TAGS and (bool(self._tables) or tag not in CELLS)

    def _hide(self, tag: str, attributes: dict[str, str]) -> None:
        """Note whether the content of a tag is shown."""
        if tag in self._hidden and tag in OPEN_ENDED:
            del self._hidden[tag]
        hides = "hidden" in attributes or NOT_DISPLAYED.search(attributes.get("style", "")) is not None
        if tag in self._hidden:
            self._hidden[tag] += 1
        elif tag in HIDDEN_TAGS or (hides and tag not in VOID_TAGS and tag not in ("body", "html")):
            if tag in BLOCK_TAGS:
                self.end_block()
            self._hidden[tag] = 1

    def _close(self, tag: str) -> None:
        if self._is_block(tag):
            self.end_block()
            if tag in HEADINGS or tag == "li":
                self._next = (PARAGRAPH, 0, "")  # an empty one
        if tag in ("rt", "ruby"):
            self._hidden.pop("rp", None)
            self._put(")" if self._is_reading else "", 0)
            self._is_reading = False
        if tag in self._hidden:
            self._hidden[tag] -= 1
            if not self._hidden[tag] or tag in HIDDEN_TAGS:
                inner = list(self._hidden)[list(self._hidden).index(tag) :]
                self._hidden = {each: count for each, count in self._hidden.items() if each not in inner}
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        elif tag in ("tr", "table") and self._tables:
            self._builder.end_row(0, self._row_line)
            self._row_line = 0
            if tag == "table":
                self._builder.end_table()
                self._tables -= 1
        elif tag == "pre":
            self._is_literal = False

    def add_words(self, start: int, end: int) -> None:
        """Take the page's text from ``start`` to ``end`` into the block."""
        if start < end:
            self._put(self._page[start:end], start)

    def _put(self, text: str, start: int) -> None:
        if self._hidden:
            return
        if not self._has_words and start:
            first = start + len(text) - len(text.lstrip())
            self._line += self._page.count("\n", self._counted, first)
            self._counted = first
            self._row_line = self._row_line or self._line
        if "&" in text:
            text = html.unescape(LARGE_NUMBERS.sub("\ufffd", text)) or " "  # a control character is nothing
        self._has_words = self._has_words or not text.isspace()
        if self._is_loose and self._parts:
            text = raised(self._parts[-1], text) if self._is_raised else text
            if self._parts[-1][-1:].isalnum() and text[:1].isalnum():
                self._parts.append(" ")
        self._is_loose = self._is_raised = False
        self._parts.append(text)

    def end_block(self) -> None:
        """End the block that is open, if there are words in it."""
        if self._has_words:
            text = "".join(self._parts).replace("\xad", "")
            kind, level, label = self._next
            if self._is_literal:
                self._builder.add(Block(CODE, text.removeprefix("\n").rstrip(), line=self._line))
            else:
                lines = (" ".join(line.split()) for line in text.split(BREAK))
                self._builder.add(Block(kind, "\n".join(lines).strip("\n"), level, label, line=self._line))
            self._next = (PARAGRAPH, 0, "")
        self._parts, self._has_words, self._is_loose = [], False, False

    def end(self) -> None:
        """Close what the page leaves open."""
        self.end_block()
        while self._tables:
            self._close("table")


def _attributes(page: str, position: int) -> tuple[int, dict[str, str]]:
    """Where the tag's ``>`` is passed, and the values of attributes that matter; the page's end where a tag or a quoted
    value is left open."""
    found: dict[str, str] = {}
    while (attribute := ATTRIBUTE.match(page, position)) is not None:
        position = attribute.end()
        if attribute["end"]:
            return position, found
        name = attribute["name"].lower()
        if name in KEPT:
            found[name] = html.unescape((attribute[3] or "").strip("\"'"))
    return len(page), found


def _number(text: str | None, least: int, most: int) -> int:
    digits = re.match(r"\s*(\d{1,6})", text or "")
    return 1 if digits is None else min(max(int(digits[1]), least), most)


def equation(inner: str, attributes: Mapping[str, str]) -> str:
    """MathML as TeX where that is beside it, else its letters and signs."""
    tex = TEX.search(inner)
    text = tex[1] if tex is not None else attributes.get("alttext", "")
    if text.strip():
        return f" ${' '.join(text.split())}$ "
    return f" [equation: {' '.join(TAG.sub(' ', ANNOTATION.sub('', inner)).split())}] "


def _behind(page: str, what: str, position: int) -> int:
    found = page.find(what, position)
    return len(page) if found < 0 else found + len(what)
