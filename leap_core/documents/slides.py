"""pptx: slides in their order, each with its title, its shapes, its notes and comments."""

from __future__ import annotations

from typing import BinaryIO

from .blocks import HEADING, LIST_ITEM, NOTE, PARAGRAPH, PICTURE, Block
from .builder import counted
from .ooxml import Package, Walker, tag_of
from .output import DocumentOutput

TITLES = ("title", "ctrTitle")
NOT_TEXT = ("sldNum", "sldImg")
REPEATED = ("dt", "ftr", "hdr")
"""Placeholders whose text is on each slide: it is written once."""
LISTED = ("", "body", "obj", "half", "quarter")
"""Placeholders whose paragraphs are points of a list."""


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """Write the slides of a pptx."""
    package = Package(file, out)
    main = package.main()
    links = package.links(main)
    ids = (each for each in package.tree(main) if tag_of(each) == "sldId")
    slides = [links.get(next((value for name, value in each.items() if name.endswith("}id")), "")) for each in ids]
    out.expected = len(slides)
    repeated: set[str] = set()
    for link in slides:
        out.section()
        if link is None or not package.has(link[1]):
            out.note(f"{out.place}: its part is missing")
            continue
        walker = SlideWalker(package, link[1], out)
        walker.repeated = repeated
        walker.walk()
        for kind, part in package.links(link[1]).values():
            if kind in ("notesSlide", "comments") and package.has(part):
                notes = SlideWalker(package, part, out)
                notes.label = "Notes:" if kind == "notesSlide" else "Comment:"
                notes.walk()


class SlideWalker(Walker):
    """``label``: of notes and comments. ``_place``: what kind of placeholder the shape is, None for none. ``_point``:
    the mark of the paragraph and its depth. ``_counts``: of numbered points, by depth: their kind with the first
    number, and the last number; other paragraphs of the depth end the count."""

    label = ""

    def __init__(self, package: Package, part: str, out: DocumentOutput) -> None:
        super().__init__(package, part, out)
        self.repeated: set[str] = set()
        """What was written of footers and dates."""
        self._place: str | None = None
        self._point, self._depth = "", 0
        self._counts: dict[int, tuple[str, int]] = {}
        self._is_counted = False

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "sld" and attributes.get("show") in ("0", "false"):
            self.out.note(f"{self.out.place} is hidden")
        elif tag == "sp":
            self._place = None
            self._counts.clear()
        elif tag == "ph":
            self._place = attributes.get("type", "")
        elif tag == "p":
            self._point, self._depth, self._is_counted = "-" if self._place in LISTED else "", 0, False
        elif tag == "pPr":
            self._depth = int(attributes.get("lvl") or 0)
            self._point = self._point or ("-" if self._depth else "")
        elif tag == "buNone":
            self._point = ""
        elif tag == "buChar":
            self._point = "-"
        elif tag == "buAutoNum":
            self._point, self._is_counted = self._number(attributes), True
        elif tag == "cNvPr" and attributes.get("descr", "").strip():
            self.builder.add(Block(PICTURE, " ".join(attributes["descr"].split())))
        elif tag == "text":  # of a comment
            self.is_text = True
        elif tag == "tc":
            is_continued = attributes.get("vMerge") in ("1", "true")
            if attributes.get("hMerge") not in ("1", "true"):
                self.builder.cell(int(attributes.get("gridSpan") or 1), continued=is_continued)

    def _number(self, attributes: dict[str, str]) -> str:
        """The mark of the next numbered point of this depth."""
        first, name = int(attributes.get("startAt") or 1), attributes.get("type", "arabicPeriod")
        self._counts = {depth: count for depth, count in self._counts.items() if depth <= self._depth}
        kind, last = self._counts.get(self._depth, ("", 0))
        number = last + 1 if kind == f"{name} {first}" else first
        self._counts[self._depth] = f"{name} {first}", number
        form = {"alpha": "Letter", "roman": "Roman"}.get(name.partition("Lc")[0].partition("Uc")[0], "")
        begin, end = "(" if name.endswith("Both") else "", ")" if "Paren" in name else "."
        return begin + counted(number, ("upper" if "Uc" in name else "lower") + form) + end

    def finish(self, tag: str) -> None:
        if tag in ("p", "text"):
            self.is_text = False
            self._end_paragraph()
        elif tag == "sp":
            self._place = None

    def _end_paragraph(self) -> None:
        if not self._is_counted and "".join(self.builder.parts).strip():
            self._counts = {depth: count for depth, count in self._counts.items() if depth < self._depth}
        text = "".join(self.builder.parts).strip()
        if self._place in NOT_TEXT or (self._place in REPEATED and (self.label or text in self.repeated)):
            self.builder.parts.clear()
        elif self._place in REPEATED:
            self.repeated.add(text)
            self.builder.end(PARAGRAPH)
        elif self.label:
            self.builder.end(NOTE, label=self.label)
        elif self._place in TITLES:
            self.out.title("".join(self.builder.parts))
            self.builder.end(HEADING, 1)
        else:
            self.builder.end(LIST_ITEM if self._point else PARAGRAPH, self._depth, self._point)
