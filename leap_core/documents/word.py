"""docx: headers, the body in its order with lists as they are numbered, notes, comments, footers."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from .blocks import CODE, HEADING, LIST_ITEM, NOTE, PARAGRAPH
from .builder import CODE_STYLE, MOST_COLUMNS, counted
from .ooxml import Package, Walker, tag_of, value_of
from .output import DocumentOutput

NOTES = {"footnotes": ("footnote", ""), "endnotes": ("endnote", "e"), "comments": ("comment", "c")}
"""The parts that hold notes: the name of one, and what its mark begins with."""
CELLS = ("tc", "gridBefore", "gridSpan", "vMerge")
REFERENCES = {"footnoteReference": "", "endnoteReference": "e", "commentReference": "c"}


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """Write a docx."""
    package = Package(file, out)
    main = package.main()
    styles, numbers = _Styles(package, main), _Numbering(package, main)
    links = package.links(main)
    written: set[str] = set()
    for kind in ("header", "body", *NOTES, "footer"):
        parts = [main] if kind == "body" else sorted({part for each, part in links.values() if each == kind})
        for part in filter(package.has, parts):
            walker = _Word(package, part, out, styles, numbers)
            walker.once = written if kind in ("header", "footer") else None
            walker.marks = NOTES.get(kind)
            walker.walk()


class _Styles:
    """Of each paragraph style: the level of its heading, and its list. ``codes``: styles of code."""

    def __init__(self, package: Package, main: str) -> None:
        part = next((part for kind, part in package.links(main).values() if kind == "styles"), "")
        self.codes = set[str]()
        self.levels: dict[str, int] = {}
        self.lists: dict[str, tuple[str, int]] = {}
        for each in package.tree(part):
            if tag_of(each) != "style":
                continue
            style = next((value for name, value in each.items() if name.endswith("styleId")), "")
            found = {tag_of(one): value_of(one.attrib) for one in each.iter()}
            name, base = found.get("name", "").lower(), found.get("basedOn", "")
            self.codes |= {style} if CODE_STYLE.match(name) or base in self.codes else set()
            if name == "title":
                self.levels[style] = 1
            elif name.startswith("heading ") and name[8:].isdigit():
                self.levels[style] = int(name[8:])
            elif found.get("outlineLvl", "9") in "012345678":
                self.levels[style] = int(found["outlineLvl"]) + 1
            elif base in self.levels:
                self.levels[style] = self.levels[base]
            if "numId" in found:
                self.lists[style] = found["numId"], int(found.get("ilvl") or 0)
            elif base in self.lists:
                self.lists[style] = self.lists[base]


class _Numbering:
    """The lists of a document, and where each has come to."""

    def __init__(self, package: Package, main: str) -> None:
        part = next((part for kind, part in package.links(main).values() if kind == "numbering"), "")
        self._levels: dict[str, dict[int, _Level]] = {}
        self._lists: dict[str, tuple[str, dict[int, int]]] = {}
        self._counts: dict[str, list[int]] = {}
        self._begun: set[tuple[str, int]] = set()
        links: dict[str, dict[str, str]] = {"numStyleLink": {}, "styleLink": {}}
        for each in package.tree(part):
            own = {name.rpartition("}")[2]: value for name, value in each.items()}
            if tag_of(each) == "abstractNum":
                id = own.get("abstractNumId", "")
                self._levels[id] = dict(filter(None, map(_level, each)))
                for one in each:
                    links.get(tag_of(one), {})[value_of(one.attrib)] = id
            elif tag_of(each) == "num":
                abstract = next((value_of(one.attrib) for one in each if tag_of(one) == "abstractNumId"), "")
                starts: dict[int, int] = {}
                for one in each:
                    if tag_of(one) == "lvlOverride":
                        start = next((value_of(x.attrib) for x in one if tag_of(x) == "startOverride"), "")
                        level = next((value for name, value in one.items() if name.endswith("ilvl")), "0")
                        starts |= {int(level): int(start)} if start else {}
                        if levels := dict(filter(None, map(_level, one))):
                            levels = {**self._levels.get(abstract, {}), **levels}
                            self._levels[abstract := f"{abstract} {own.get('numId')}"] = levels
                self._lists[own.get("numId", "")] = abstract, starts
        for style, id in links["numStyleLink"].items():
            self._levels[id] = self._levels.get(links["styleLink"].get(style, ""), {})

    def next(self, number: str, level: int) -> str | None:
        """The mark of the next item of a list; None where there is no such list."""
        abstract, starts = self._lists.get(number, ("", {}))
        levels = self._levels.get(abstract)
        if levels is None or not 0 <= level < 9:
            return None
        form, text, start, _, is_legal = levels.get(level, ("bullet", "", 1, 9, False))
        counts = self._counts.setdefault(abstract, [0] * 9)
        if level in starts and (number, level) not in self._begun:
            counts[level] = starts[level] - 1
        elif not counts[level]:
            counts[level] = start - 1
        self._begun.add((number, level))
        counts[level] += 1
        below = range(level + 1, 9)
        counts[level + 1 :] = [counts[n] if levels.get(n, ("", "", 1, 9))[3] <= level else 0 for n in below]
        if form == "bullet":
            return "-" if text.strip() or not text else ""  # a blank one goes on with the item above
        for each in range(level + 1):
            shown = "decimal" if is_legal and each < level else levels.get(each, ("decimal",))[0]
            text = text.replace(f"%{each + 1}", counted(counts[each] or levels.get(each, ("", "", 1))[2], shown))
        return text if form != "none" else ""


_Level = tuple[str, str, int, int, bool]


def _level(element: Any) -> tuple[int, _Level] | None:
    """A level of a list: its form, its text, its first number, above which level it starts again, and whether numbers
    of others within it are decimal."""
    if tag_of(element) != "lvl":
        return None
    found = {tag_of(one): value_of(one.attrib) for one in element}
    level = next((value for name, value in element.items() if name.endswith("ilvl")), "0")
    start = found.get("start", "1")
    restart, legal = found.get("lvlRestart", "9"), found.get("isLgl", "0") in ("", "1", "true", "on")
    first = int(start) if start.isdigit() else 1
    return int(level), (found.get("numFmt", "decimal"), found.get("lvlText", ""), first, int(restart), legal)


class _Word(Walker):
    """``once``: paragraphs that are written once only, of headers and footers. ``marks``: of a part of notes."""

    once: set[str] | None = None
    marks: tuple[str, str] | None = None

    def __init__(self, package: Package, part: str, out: DocumentOutput, styles: _Styles, numbers: _Numbering) -> None:
        super().__init__(package, part, out)
        self.styles, self.numbers = styles, numbers
        self._paragraphs: list[dict[str, str]] = []
        self._note = ""
        self._field: dict[str, str] = {}
        self._entries: list[str] = []

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "p":
            self._paragraphs.append({})
        elif tag in ("pStyle", "numId", "ilvl", "outlineLvl") and self._paragraphs:
            self._paragraphs[-1].setdefault(tag, attributes.get("val", ""))
        elif tag in CELLS:
            self._cell(tag, attributes)
        elif tag in REFERENCES:
            self.words(f"[^{REFERENCES[tag]}{attributes.get('id', '')}]")
        elif tag == "vanish" and self.is_in_run and attributes.get("val", "1") in ("1", "true", "on"):
            self.hide_run()
        elif tag == "docPr" and attributes.get("descr", "").strip():
            self.words(f"[picture: {' '.join(attributes['descr'].split())}]")
        elif tag in ("result", "default", "checked"):
            self._field[tag] = attributes.get("val", "1")
        elif tag == "listEntry":
            self._entries.append(attributes.get("val", ""))
        elif self.marks is not None and tag == self.marks[0]:
            self._note = (
                "" if attributes.get("type", "normal") != "normal" else f"[^{self.marks[1]}{attributes['id']}]:"
            )

    def _cell(self, tag: str, attributes: dict[str, str]) -> None:
        """A cell begins, spans several columns, or continues the cell above; or a row leaves cells out."""
        if tag == "gridSpan":
            self.builder.merge(columns=int(attributes.get("val") or 1))
        elif tag == "vMerge":
            self.builder.merge(continued=attributes.get("val", "continue") == "continue")
        else:
            for _ in range(1 if tag == "tc" else min(int(attributes.get("val") or 0), MOST_COLUMNS)):
                self.builder.cell()

    def finish(self, tag: str) -> None:
        if tag == "p" and self._paragraphs:
            self._end_paragraph(self._paragraphs.pop())
        elif tag == "tc":
            self.builder.end()
        elif tag in ("ddList", "checkBox"):  # of a form in a document of Word 2003
            found = self._field.get("result" if tag == "ddList" else "checked", self._field.get("default", "0"))
            chosen = self._entries[int(found) :][:1] if tag == "ddList" else "☐☒"[found in ("1", "true", "on")]
            self.words("".join(chosen))
            self._field, self._entries = {}, []

    def _end_paragraph(self, found: dict[str, str]) -> None:
        text = "".join(self.builder.parts).strip()
        style = found.get("pStyle", "")
        if self.once is not None:
            if text in self.once:
                self.builder.parts.clear()
            self.once.add(text)
        if self.marks is not None:
            self.builder.end(NOTE, label=self._note)
            self._note = ""
            return
        level = self.styles.levels.get(style, 0)
        if found.get("outlineLvl", "9") in "012345678":
            level = int(found["outlineLvl"]) + 1
        number, depth = self.styles.lists.get(style, ("", 0))
        number = found.get("numId", number)
        depth = int(found.get("ilvl") or depth)
        mark = self.numbers.next(number, depth) if text and number not in ("", "0") else None
        if level:
            if mark and mark != "-":
                self.builder.parts.insert(0, f"{mark} ")
            self.builder.end(HEADING, min(level, 6))
        elif mark is None:
            self.builder.end(CODE if style in self.styles.codes else PARAGRAPH)
        else:
            self.builder.end(LIST_ITEM if mark else PARAGRAPH, depth, mark)

    def include(self, part: str) -> None:
        from . import html, text

        self.builder.end()
        with self.package.open(part) as file:
            data = io.BytesIO(file.read())
        ending = part.lower().rpartition(".")[2]
        if ending == "docx":
            read(data, self.out)
        elif ending in ("html", "htm", "xhtml"):
            html.read(data, self.out)
        elif ending == "txt":
            text.read(data, self.out)
        else:
            super().include(part)
