"""RTF (specification 1.9.1): paragraphs, headings, items of lists, tables, footnotes; hidden text is left out."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass, field
from typing import BinaryIO

from .blocks import HEADING, LIST_ITEM, NOTE, PARAGRAPH, Block, UnreadableDocumentError
from .builder import raised, symbol
from .output import DocumentOutput
from .text import code_page

TOKEN = re.compile(
    rb"\\([A-Za-z]{1,32})(-?\d{1,10})? ?|\\'([0-9A-Fa-f]{2})|\\([^A-Za-z])|([{}])|[\r\n\0]+|([^\\{}\r\n\0]+)", re.S
)
DEEPEST = 1000
STYLE = re.compile(r"(?:Title|heading ([1-9]))$", re.IGNORECASE)
"""Names of styles that are headings."""
SKIPPED = {
    *("fonttbl", "colortbl", "info", "pict", "listtable", "listoverridetable", "rsidtbl", "generator"),
    *("fldinst", "themedata", "colorschememapping", "datastore", "latentstyles", "xmlnstbl", "objdata", "nonshppict"),
    *("filetbl", "revtbl", "bkmkstart", "bkmkend", "nonesttables", "xe", "tc", "template", "private", "userprops"),
    *("pgdsctbl", "ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc", "aftncn", "do", "panose", "falt", "pntxta"),
    *("pntxtb", "pnseclvl", "upr", "atnid", "atnauthor", "atntime", "atnref", "atndate", "atnparent", "atnicn"),
}
"""Destinations whose text is not the document's."""
CHARACTERS = {"tab": "\t", "line": "\n", "emdash": "—", "endash": "–", "emspace": " ", "enspace": " ", "qmspace": " "}
CHARACTERS |= {"bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”"}
CHARACTERS |= {"nestcell": "\t", "~": "\xa0", "_": "\u2011", "{": "{", "}": "}", "\\": "\\"}
SYMBOL, WINGDINGS = "symbol", "wingdings"
"""Charsets of fonts of signs."""
CHARSETS = {2: WINGDINGS, 77: "mac-roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "big5hkscs"}
CHARSETS |= {161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257"}
CHARSETS |= {204: "cp1251", 222: "cp874", 238: "cp1250", 254: "cp437", 255: "cp850"}
"""Of fonts."""
TARGETS = {"footnote": "note", "annotation": "comment", "shptxt": "body", "fonttbl": "fonts", "stylesheet": "styles"}
BULLETS = "•·▪◦§o–-\uf0b7\uf0a7"


@dataclass
class _State:
    """What a group inherits and its end undoes. ``target``: where text goes; None where it is not shown."""

    target: str | None = "body"
    fallback: int = 1
    hidden: bool = False
    charset: str = "cp1252"
    raised: bool = False


@dataclass
class _Paragraph:
    """``level``: of a heading, or of an item of a list, whose ``label`` is then not empty."""

    text: str = ""
    label: str = ""
    heading: int = 0
    depth: int = 0
    in_table: bool = False
    cells: list[str] = field(default_factory=list)


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """The document's text in its order; notes follow their paragraphs, footers the text."""
    _Reader(out).read(file.read())


class _Reader:
    def __init__(self, out: DocumentOutput) -> None:
        self._out, self._state, self._paragraph = out, _State(), _Paragraph()
        self._stack: list[_State] = []
        self._fonts: dict[int, str] = {}
        self._headings: dict[int, int] = {}
        self._style, self._merge = 0, ""
        self._merges: list[str] = []  # of the row's cells: the word with which each is one with another
        self._above: list[str] = []
        self._font, self._default, self._skip, self._bytes = 0, 0, 0, b""
        self._texts: dict[str, str] = {}
        self._notes: list[str] = []
        self._count, self._is_destination = 0, False
        self._upper: str | None = None  # where the text goes around one that is there twice
        self._margins: dict[str, None] = {}

    def read(self, data: bytes) -> None:
        position = 0
        while (token := TOKEN.match(data, position)) is not None:
            position = token.end()
            word, number, code, symbol, brace, text = token.groups()
            if code is not None:
                self._byte(bytes([int(code, 16)]))
                continue
            if text is not None:
                self._byte(text)
                continue
            self._flush()
            if word is not None:
                name, value = word.decode(), None if number is None else int(number)
                if name == "bin":
                    position += max(value or 0, 0)
                else:
                    self._word(name, value)
            elif symbol is not None:
                self._symbol(symbol.decode("latin-1"))
            elif brace == b"{":
                if len(self._stack) >= DEEPEST:
                    raise UnreadableDocumentError("{name} cannot be read as rtf: its groups are nested too deeply")
                self._stack.append(self._state)
                self._state = copy(self._state)
            elif brace == b"}" and self._stack:
                self._end_group()
        self._flush()
        self._end_paragraph()
        for text_below in self._margins:
            self._out.text(text_below)

    def _end_group(self) -> None:
        ended, self._state = self._state.target, self._stack.pop()
        if ended == self._state.target or ended in (None, "body"):
            return
        words = " ".join(self._texts.pop(ended, "").split())
        if ended == "label":
            self._paragraph.label = words or "-"
        elif ended == "margin" and words:
            self._margins[words] = None
        elif words:
            self._count += ended == "note"
            mark = f"[^{self._count}]" if ended == "note" else "[comment]"
            self._put(mark)
            self._notes.append(f"{mark}: {words}")

    def _byte(self, data: bytes) -> None:
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._bytes += data[skipped:]

    def _flush(self) -> None:
        """Decode the bytes that came, of which several may be one character."""
        if self._bytes:
            data, self._bytes = self._bytes, b""
            if self._state.charset in (SYMBOL, WINGDINGS) and self._state.target != "fonts":
                is_bullet = data == b"\xb7" or self._state.target == "label"
                text = "".join(map(symbol, data)) if self._state.charset == SYMBOL else "•" if is_bullet else "[symbol]"
            else:
                text = data.decode("cp1252" if self._state.target == "fonts" else self._state.charset, "replace")
            self._put(text)

    def _put(self, text: str) -> None:
        target = self._state.target
        if target == "fonts" and "Symbol" in text and self._fonts.get(self._font) == WINGDINGS:
            self._fonts[self._font] = SYMBOL
        if target in (None, "fonts") or self._state.hidden:
            return
        if target == "styles":
            if found := STYLE.match(text.strip(" ;")):
                self._headings[self._style] = int(found[1] or 1)
            return
        if target == "body":
            self._paragraph.text += raised(self._paragraph.text[-1:], text) if self._state.raised else text
            self._state.raised = False
        else:
            self._texts[target] = self._texts.get(target, "") + text

    def _symbol(self, symbol: str) -> None:
        if symbol == "*":
            self._is_destination = True
        elif self._skip:
            self._skip -= 1
        elif symbol in "\r\n":
            self._word("par", None)
        else:
            self._put(CHARACTERS.get(symbol, ""))

    def _word(self, name: str, value: int | None) -> None:
        is_destination, self._is_destination = self._is_destination, False
        if self._destination(name, is_destination) or self._character_state(name, value):
            return
        if self._state.target is not None:
            self._paragraph_state(name, value)

    def _destination(self, name: str, is_destination: bool) -> bool:
        """Direct what follows to where the word says; False for a word that is no destination."""
        state = self._state
        if name in ("footnote", "annotation", "listtext", "pntext", "shptxt", "fonttbl", "stylesheet"):
            state.target = TARGETS.get(name, "label") if state.target is not None or name == "shptxt" else None
        elif name.startswith(("header", "footer")) and name[6:] in ("", "l", "r", "f"):
            state.target = "margin"
        elif name == "ud" and is_destination:
            state.target = self._upper
        elif name in SKIPPED or is_destination:
            if name == "upr":
                self._upper = state.target
            if name == "moMath" and state.target is not None:
                self._put("[equation]")
            state.target = None
        else:
            return False
        return True

    def _character_state(self, name: str, value: int | None) -> bool:
        """Apply a word on characters, fonts and charsets; False for another."""
        state = self._state
        if name == "u" and value is not None:
            self._put(chr(value % 65536))
            self._skip = state.fallback
        elif name == "uc":
            state.fallback = max(value or 0, 0)
        elif name in ("v", "deleted"):
            state.hidden = value != 0
        elif name in ("super", "up", "nosupersub", "sub"):
            state.raised = name in ("super", "up") and value != 0
        elif name == "plain":
            state.hidden = state.raised = False
            self._character_state("f", self._default)
        elif name == "deff":
            self._default = value or 0
        elif name == "f":
            self._font = value or 0
            state.charset = self._fonts.get(self._font, self._fonts.get(-1, "cp1252"))
        elif name == "fcharset" and state.target == "fonts":
            if value in CHARSETS:
                self._fonts[self._font] = CHARSETS[value]
        elif name in ("ansicpg", "mac", "pc", "pca"):
            state.charset = self._fonts[-1] = self._charset(name, value)
        else:
            return False
        return True

    def _charset(self, name: str, page: int | None) -> str:
        """The charset of a word that names one for the whole document. One that is unknown is said."""
        if name != "ansicpg":
            return {"mac": "mac-roman", "pc": "cp437"}.get(name, "cp850")
        charset = code_page(page or 0)
        if charset is None:
            self._out.note(f"the code page {page} is unknown: the text is read as cp1252")
        return charset or "cp1252"

    def _paragraph_state(self, name: str, value: int | None) -> None:
        """Apply a word on paragraphs, styles and tables."""
        state, paragraph = self._state, self._paragraph
        if name in ("par", "sect", "page", "nestrow", "cell", "row"):
            self._ends(name)
        elif name == "pard":
            paragraph.heading, paragraph.label, paragraph.depth, paragraph.in_table = 0, "", 0, False
        elif name == "s" and state.target == "styles":
            self._style = value or 0
        elif name == "s":
            paragraph.heading = self._headings.get(value or 0, 0)
        elif name == "outlinelevel" and value is not None and value < 9:
            if state.target == "styles":
                self._headings[self._style] = value + 1
            else:
                paragraph.heading = value + 1
        elif name == "ilvl":
            paragraph.depth = min(max(value or 0, 0), 16)
        elif name == "intbl":
            paragraph.in_table = True
        elif name == "trowd":
            self._merges, self._merge = [], ""
        elif name in ("clvmrg", "clmrg"):
            self._merge = name
        elif name == "cellx":
            self._merges.append(self._merge)
            self._merge = ""
        elif name in CHARACTERS:
            self._put(CHARACTERS[name])

    def _ends(self, name: str) -> None:
        paragraph = self._paragraph
        if self._state.target != "body":
            self._put("\n")
        elif name == "cell":
            paragraph.cells.append(_text(paragraph.text).strip())
            paragraph.text = ""
        elif name == "row":
            cells, is_title = paragraph.cells, sum(map(bool, paragraph.cells)) == 1
            for n, merge in enumerate(self._merges[: len(cells)]):
                if merge == "clvmrg" and not cells[n] and n < len(self._above):
                    cells[n] = self._above[n]
                elif merge == "clmrg" and not cells[n] and n and not is_title:
                    cells[n] = cells[n - 1]
            self._out.row(cells)
            self._above, paragraph.cells = cells, []
            self._write_notes()
        elif paragraph.in_table or paragraph.cells:
            paragraph.text += "\n"
        else:
            self._end_paragraph()

    def _end_paragraph(self) -> None:
        paragraph = self._paragraph
        text = _text(paragraph.text).strip()
        paragraph.text = ""
        if paragraph.cells:
            self._out.row([*paragraph.cells, text])
            paragraph.cells = []
        elif text and paragraph.label:
            label = "-" if paragraph.label in BULLETS else paragraph.label
            self._out.add(Block(LIST_ITEM, text, paragraph.depth, label))
        elif text:
            kind = HEADING if paragraph.heading else PARAGRAPH
            self._out.add(Block(kind, text, paragraph.heading))
        self._write_notes()

    def _write_notes(self) -> None:
        for note in self._notes:
            self._out.add(Block(NOTE, note))
        self._notes = []


def _text(text: str) -> str:
    """The text with halves of characters joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
