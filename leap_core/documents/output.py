"""What the child writes while it reads a document, counted and bounded as it is written."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from .blocks import HEADING, NOTE, PARAGRAPH, TABLE, Block
from .kinds import UNITS

CHARACTERS = 8_000_000
CELLS = 1_000_000
LINES = 500_000
"""Of text, rows of tables and blocks together."""
BLOCKS = 200_000
SECTIONS = 10_000
SECONDS = 15.0
"""After which the reading ends by itself; the parent waits some more."""
COLLECTING = 0.6
"""Of these, the share in which a sheet is read before it is written."""
NOTES = 100
LONGEST_TITLE = 1000
FLUSHED = 2000
"""Lines after which what was written goes to the parent."""
BROKEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What text does not hold: a form feed ends a page, and control characters are not shown."""


class OutputFull(Exception):  # noqa: N818 - it ends the reading, and is no error
    """The document is larger than what is read of one. A format module does not catch it."""


class DocumentOutput:
    """Sections, blocks and notes of a document.

    A format module calls ``section`` where it has pages, ``add`` or ``row`` for what is on them, and ``note`` for what
    it cannot read. Each may raise OutputFull, which ends the reading: what was written counts, and a note says where
    the rest was cut off. A module that knows how many sections there are sets ``expected``. ``main_only``: of a page
    that marks its main part that part only.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], object],
        kind: str,
        characters: int = CHARACTERS,
        *,
        main_only: bool = False,
        seconds: float = SECONDS,
    ) -> None:
        self.kind, self.main_only = kind, main_only
        self.expected = 0
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._answer, self._unit = answer, UNITS.get(kind, "")
        self._most, self._characters, self._cells, self._lines = characters, 0, 0, 0
        self._sections = self._notes = self._unsent = self._count_of_blocks = 0
        self._blocks: list[list[Any]] = []
        self._rows: list[tuple[str, ...]] = []
        self._numbers: list[int] = []
        self._table_line = 0
        self._has_section = False
        self._later: list[Block] = []

    def section(self, title: str = "", *, is_scan: bool = False) -> None:
        """Begin a page, sheet, slide, chapter or part."""
        self._flush()
        if self._sections >= SECTIONS:
            self._full(f"{SECTIONS:,} {self._unit or 'part'}s")
        self._sections += 1
        self._has_section = True
        self._answer({"section": [clean(title)[:LONGEST_TITLE], is_scan]})

    def scan(self) -> None:
        """Say that the section is a picture of its text."""
        self._flush()
        self._answer({"scan": True})

    def title(self, title: str) -> None:
        """Give the section its title."""
        self._answer({"title": clean(title).strip()[:LONGEST_TITLE]})

    def add(self, block: Block) -> None:
        """Add a block to the section. Rows of a table can be long: ``row`` counts each as it comes."""
        if block.rows:
            numbers = block.numbers or (0,) * len(block.rows)
            self.end_table()
            for cells, number in zip(block.rows, numbers, strict=True):
                self.row(cells, number, block.line)
            return self.end_table()
        self.end_table()
        text = self._count(clean(block.text))
        if text or block.label:
            self._put([block.kind, text, block.level, block.label, block.line], text.count("\n") + 1)
        self._add_later()

    def text(self, text: str, line: int = 0) -> None:
        """Add a paragraph."""
        self.add(Block(PARAGRAPH, text, line=line))

    def heading(self, text: str, level: int = 1) -> None:
        """Add a heading."""
        self.add(Block(HEADING, text, level))

    def row(self, cells: Sequence[str], number: int = 0, line: int = 0) -> None:
        """Add a row to the table that is being written, or to a new one. ``number``: of the row in its sheet.
        ``line``: of the file, where the table begins. Empty cells at its end are left out, and empty rows."""
        text = "".join(cells)
        kept = [clean(cell) for cell in cells] if BROKEN.search(text) else list(cells)
        while kept and not kept[-1].strip():
            kept.pop()
        if not kept:
            return
        self._cells += len(kept)
        if self._cells > CELLS:
            self._full(f"{CELLS:,} cells")
        left = self._most - self._characters
        self._characters += len(text)
        if not self._rows:
            self._table_line = line
        self._rows.append(tuple(kept if left >= len(text) else _within(kept, left)))
        self._numbers.append(number)
        self._lines += 1
        if left < len(text):
            self._full(f"{self._most:,} characters")
        if self._lines > LINES:
            self._full(f"{LINES:,} lines")
        self._check_time()

    def has_space(self, cells: int, characters: int) -> bool:
        """Whether a sheet that is kept until its end may be read further, with so many cells and characters: there is
        space for them, and time to write them."""
        is_late = time.monotonic() > self._end - (1 - COLLECTING) * self._seconds
        return not is_late and self._cells + cells <= CELLS and self._characters + characters <= self._most

    def cut_off(self) -> None:
        """End the reading: what is left would take too long."""
        self._full(f"{self._seconds:.0f} seconds")

    def end_table(self) -> None:
        """End the table that is being written, so that the next row begins another one."""
        if self._rows:
            rows, numbers = self._rows, self._numbers if any(self._numbers) else []
            self._rows, self._numbers = [], []
            self._put([TABLE, "", 0, "", self._table_line, rows, numbers], 0)
            self._unsent += len(rows)

    def note(self, text: str) -> None:
        """Say in a sentence what could not be read; the same sentence only once for the caller to care about."""
        if self._notes < NOTES:
            self._notes += 1
            self._answer({"note": " ".join(clean(text).split())[:500]})

    def later(self, label: str, text: str) -> None:
        """Add a note behind the paragraph that is being read, or the row."""
        if not self._has_section:
            self.section()
        self._later.append(Block(NOTE, text, label=label))

    def end(self) -> None:
        """Send what is left."""
        self._flush()

    @property
    def sections(self) -> int:
        """How many have begun."""
        return self._sections

    @property
    def place(self) -> str:
        """Where the reading is: "page 3 of 9"; empty where the document has no such parts."""
        if not self._unit:
            return ""
        return f"{self._unit} {self._sections}" + (f" of {self.expected}" if self.expected else "")

    def _add_later(self) -> None:
        while self._later:
            self.add(self._later.pop(0))

    def _count(self, text: str) -> str:
        """The text as far as it may be written; where it is too long, what fits is written before OutputFull."""
        left = self._most - self._characters
        if len(text) > left or self._lines + text.count("\n", 0, left) > LINES:
            lines = text[:left].split("\n", LINES - self._lines)[: LINES - self._lines]
            self._put([PARAGRAPH, "\n".join(lines), 0, "", 0], 1)
            self._full(f"{self._most:,} characters" if len(text) > left else f"{LINES:,} lines")
        self._characters += len(text)
        return text

    def _put(self, block: list[Any], lines: int) -> None:
        if not self._has_section:
            self.section()
        self._check_time()
        self._count_of_blocks += 1
        if self._count_of_blocks > BLOCKS:
            self._full(f"{BLOCKS:,} paragraphs")
        self._blocks.append(block)
        self._lines += lines
        self._unsent += lines + len(block[1]) // 100
        if self._unsent > FLUSHED:
            self._flush_blocks()

    def _flush(self) -> None:
        self.end_table()
        self._add_later()
        self._flush_blocks()

    def _flush_blocks(self) -> None:
        if self._blocks:
            self._answer({"blocks": self._blocks})
            self._blocks, self._unsent = [], 0

    def _check_time(self) -> None:
        if time.monotonic() > self._end:
            self._end = float("inf")
            self._full(f"{self._seconds:.0f} seconds")

    def _full(self, most: str) -> None:
        self._flush()
        where = f"{self.place}: the" if self.place else "the"
        self._answer({"note": f"{where} rest is cut off at {most}"})
        raise OutputFull


def _within(cells: Sequence[str], characters: int) -> list[str]:
    """The beginning of a row that has so many characters."""
    kept = []
    for cell in cells:
        if characters <= 0:
            break
        kept.append(cell[:characters])
        characters -= len(cell)
    return kept


def clean(text: str) -> str:
    """Text without what is none: control characters, halves of characters, form feeds."""
    text = text.replace("\xad", "")  # a soft hyphen
    if BROKEN.search(text):
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0b", "\n").replace("\x0c", " ")
        text = BROKEN.sub("", text)
    return text
