"""What docx and pptx have in common: packages of parts, and XML of paragraphs, tables, equations and diagrams."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO, cast
from xml.etree import ElementTree

from .blocks import LIST_ITEM, PARAGRAPH, TABLE, Block, UnreadableDocumentError
from .builder import Builder, raised, symbol, walk_xml
from .equations import ELEMENTS, Equations
from .output import DocumentOutput

SKIPPED = {"del", "moveFrom", "instrText", "delText", "rPrChange", "pPrChange", "tblPrChange", "tcPrChange", "binData"}
"""Elements whose content is not shown."""
SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
INCLUDED = {"chart": "chart", "relIds": "diagram", "altChunk": "inserted document", "subDoc": "linked document"}
INCLUDED |= {"OLEObject": "object", "oleObj": "object"}
WINGDINGS = {"F0B7": "•", "F0A7": "•", "F0FC": "✓", "F0FE": "☒", "F0A8": "☐", "F0E0": "→"}
RISES = re.compile(r"superscript|[1-9]\d{0,3}")
"""Values of properties that write text above the line."""
SMALL_PART = 32 * 1024**2


class Package:
    """The parts of an office document, by names that are the same in all spellings."""

    def __init__(self, file: BinaryIO, out: DocumentOutput) -> None:
        self._out = out
        self.archive = zipfile.ZipFile(file)
        self.names = {name.replace("\\", "/").lower(): name for name in self.archive.namelist()}

    def links(self, part: str) -> dict[str, tuple[str, str]]:
        """The part that each relationship of a part names, with the last word of its type."""
        folder, name = posixpath.split(part)
        return {
            each.get("Id") or "": (
                (each.get("Type") or "").rpartition("/")[2],
                posixpath.normpath(posixpath.join("/" + folder, each.get("Target") or "")).lstrip("/"),
            )
            for each in self.tree(f"{folder}/_rels/{name}.rels".lstrip("/"))
            if each.get("TargetMode") != "External"
        }

    def main(self) -> str:
        """The part that the document begins with."""
        found = next((target for kind, target in self.links("").values() if kind == "officeDocument"), "")
        if not self.has(found):
            raise UnreadableDocumentError("{name} is damaged: its main part is missing")
        return found

    def has(self, part: str) -> bool:
        return part.lower() in self.names

    def open(self, part: str) -> BinaryIO:
        return cast(BinaryIO, self.archive.open(self.names[part.lower()]))

    def tree(self, part: str) -> Iterator[Any]:
        """The elements of a small part; none where it is missing or, with a note, where it is too large."""
        if not self.has(part):
            return iter(())
        if self.archive.getinfo(self.names[part.lower()]).file_size > SMALL_PART:
            self._out.note(f"{part} is larger than {SMALL_PART // 1024**2} MiB and is not read")
            return iter(())
        with self.open(part) as file:
            return ElementTree.parse(file).iter()


def tag_of(element: Any) -> str:
    """The name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def value_of(attributes: Any) -> str:
    """The value of an attribute ``val``."""
    return next((value for name, value in attributes.items() if name.rpartition("}")[2] == "val"), "")


class Walker:
    """Writes a part's paragraphs and tables. Its subclasses know what paragraphs are in docx and pptx.

    ``_skipped``: how many elements are open within one that is not shown. ``_outside``: the paragraphs around a text
    box.
    """

    def __init__(self, package: Package, part: str, out: DocumentOutput) -> None:
        self.package, self.part, self.out = package, part, out
        self.links = package.links(part)
        self.builder = Builder(out)
        self.is_in_run = False
        self.is_text = self._is_hidden = self._is_raised = False
        self._skipped = self._words = 0
        self._equations = Equations(self.builder, self.words)
        self._alternatives: list[int] = []
        self._outside: list[list[str]] = []

    def walk(self) -> None:
        """Write the part."""
        with self.package.open(self.part) as file:
            walk_xml(file, self.start, self.end, self.text)
        self.builder.end_table()
        self.builder.end()

    def words(self, text: str) -> None:
        self._words += 1
        self.builder.words(text)

    def text(self, text: str) -> None:
        if self.is_text and not self._skipped and not self._is_hidden:
            self.words(raised("".join(self.builder.parts[-1:]), text) if self._is_raised else text)
            self._is_raised = False

    def hide_run(self) -> None:
        """The text of this run is not shown."""
        self._is_hidden = True

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        is_again = tag == "Fallback" and self._alternatives and self._alternatives[-1] != self._words
        if self._skipped or tag in SKIPPED or is_again:
            self._skipped += 1
        elif tag == "t":
            self.is_text = True
        elif tag in ELEMENTS:
            self._equations.start(tag, attributes)
        elif tag == "AlternateContent":
            self._alternatives.append(self._words)
        elif tag == "r":
            self.is_in_run, self._is_hidden, self._is_raised = True, False, False
        elif tag in SIGNS and (self.is_in_run or tag == "br"):
            self.words(SIGNS[tag])
        elif tag == "sym":
            self.words(_symbol(attributes.get("char", "").upper() or "2022", attributes.get("font", "")))
        elif tag in ("vertAlign", "position", "rPr"):
            self._raise(tag, attributes)
        elif tag == "txbxContent":
            self._outside.append(self.builder.parts)
            self.builder.parts = []
        elif tag == "tbl":
            self.builder.table()
        elif tag == "textpath":  # of WordArt
            self.words(attributes.get("string", ""))
        elif tag in INCLUDED:
            self._include(tag, attributes)
        else:
            self.begin(tag, attributes)

    def end(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
        elif tag == "t":
            self.is_text = False
        elif tag in ELEMENTS:
            self._equations.end(tag)
        elif tag == "AlternateContent" and self._alternatives:
            self._alternatives.pop()
        elif tag == "txbxContent":
            self.builder.end()
            self.builder.parts = self._outside.pop()
        elif tag == "tr":
            self.builder.end_row()
        elif tag == "tbl":
            self.builder.end_table()
        else:
            if tag == "r":
                self.is_in_run = self._is_hidden = False
            self.finish(tag)

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins that docx and pptx know differently."""
        raise NotImplementedError

    def finish(self, tag: str) -> None:
        """It ends."""
        raise NotImplementedError

    def _raise(self, tag: str, attributes: dict[str, str]) -> None:
        """A property says whether the text of a run is above the line, in words, in half points or in a share."""
        if "baseline" in attributes:
            self._is_raised = not attributes["baseline"].startswith(("-", "0"))
        elif tag != "rPr" and self.is_in_run:
            self._is_raised = RISES.fullmatch(attributes.get("val", "")) is not None

    def _include(self, tag: str, attributes: dict[str, str]) -> None:
        """Write a chart, a diagram, an object or another document where it stands."""
        _, part = self.links.get(attributes.get("dm") or attributes.get("id") or "", ("", ""))
        what = INCLUDED[tag]
        if what == "object":
            self.words(f"[object: {attributes.get('ProgID') or attributes.get('progId') or 'unknown'}]")
        elif not self.package.has(part):
            self.words(f"[{what}]")
            self.out.note(f"a {what} is not read: its part is missing")
        elif tag == "chart":
            for block in _chart(self.package.tree(part)):
                self.builder.add(block)
        elif tag == "relIds":
            for each in self.package.tree(part):
                if tag_of(each) == "pt" and (text := "".join(_texts(each)).strip()):
                    self.builder.add(Block(LIST_ITEM, text, label="-"))
        else:
            self.include(part)
        self._words += 1

    def include(self, part: str) -> None:
        """Write another document."""
        self.words("[inserted document]")
        self.out.note(f"an inserted document is not read: {posixpath.basename(part)}")


def _symbol(code: str, font: str) -> str:
    """A character of a symbol font, whose codes are private ones."""
    if code not in WINGDINGS and code.startswith("F0"):
        return symbol(int(code[2:], 16)) if font == "Symbol" else "[symbol]"
    return WINGDINGS.get(code) or chr(int(code, 16))


def _texts(element: Any) -> Iterator[str]:
    """The texts in an element, with spaces between paragraphs."""
    for each in element.iter():
        if tag_of(each) == "t":
            yield each.text or ""
        elif tag_of(each) == "p":
            yield " "


def _chart(elements: Iterator[Any]) -> Iterator[Block]:
    """A chart's title, and its values as a table with a column for each series."""
    names, columns = [""], list[list[str]]()
    for each in elements:
        if tag_of(each) == "title" and not columns and (text := "".join(_texts(each)).strip()):
            yield Block(PARAGRAPH, f"Chart: {text}")
        if tag_of(each) != "ser":
            continue
        parts = {tag_of(part): [one.text or "" for one in part.iter() if tag_of(one) == "v"] for part in each}
        if not columns:
            columns.append(parts.get("cat") or parts.get("xVal") or [])
        names.append(" ".join(parts.get("tx", [])))
        columns.append(parts.get("val") or parts.get("yVal") or [])
    most = max(map(len, columns), default=0)
    rows = [tuple(column[n] if n < len(column) else "" for column in columns) for n in range(most)]
    if rows:
        yield Block(TABLE, rows=(tuple(names), *rows))
