"""Lines broken between words for a terminal, while their text comes or all at once.

Counts columns: escape codes and combining characters have none, East Asian wide characters two.
"""

from __future__ import annotations

import re

LINE_START = re.compile(r"\s*(?:(?:•|[-*+]|\d{1,3}[.)])\s+)?")
"""White space and the mark of a list's item, under which the lines that continue are not written."""
DEEPEST_INDENT = 12
_PIECES = re.compile(r"\n|[^\S\n]+|[^\s]+")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def columns(text: str) -> int:
    """How many columns of a terminal a text without line ends takes."""
    plain = _ESCAPES.sub("", text)
    if plain.isascii():
        return len(plain)
    import unicodedata  # a megabyte that plain text does not need

    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in plain)


class WordWrap:
    """Breaks text that comes piece by piece. A word is held back until it is known to end, so that it can go to the
    next line as a whole; one that fits no line is left to the terminal."""

    def __init__(self, width: int) -> None:
        self._width = max(width, 10)
        self._start_line()

    def _start_line(self) -> None:
        self._column = 0
        self._indent: int | None = None
        self._space = self._word = ""

    def feed(self, text: str) -> str:
        """What can be shown now."""
        out = ""
        for piece in _PIECES.findall(text):
            if piece == "\n":
                out += self._flush() + "\n"
                self._start_line()
            elif piece.isspace():
                out += self._flush()
                self._space += piece
            else:
                self._word += piece
                if not piece.isascii():
                    out += self._break_wide()
        return out

    def end(self) -> str:
        """What was held back."""
        out = self._flush() + self._space
        self._space = ""
        return out

    def verbatim(self, text: str) -> str:
        """Text that is shown as it is, such as code."""
        out = self.end() + text
        last = text.rpartition("\n")[2]
        if "\n" in text:
            self._start_line()
        self._column += columns(last)
        return out

    def _flush(self) -> str:
        word, self._word = self._word, ""
        if not word:
            return ""
        space, self._space = self._space, ""
        length = columns(word)
        if self._indent is None:
            self._indent = self._indent_of(space + _ESCAPES.sub("", word) + " ")
        if self._column and self._column + columns(space) + length > self._width:
            self._column = self._indent + length
            return "\n" + " " * self._indent + word
        self._column += columns(space) + length
        return space + word

    def _break_wide(self) -> str:
        """Chinese and Japanese have no spaces: a line may end after any of their characters."""
        import unicodedata

        out = ""
        for char in list(self._word):
            if unicodedata.east_asian_width(char) in "WF":
                head, _, rest = self._word.partition(char)
                self._word = head + char
                out += self._flush()
                self._word = rest
        return out

    def _indent_of(self, begin: str) -> int:
        match = LINE_START.match(begin)
        indent = columns(match.group()) if match is not None else 0
        return indent if indent <= DEEPEST_INDENT else 0


def wrapped(text: str, width: int, indent: str = "") -> str:
    """One line as lines of at most ``width`` columns; those after the first begin with ``indent``."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and columns(line) + 1 + columns(word) > width:
            lines.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


GAP = 2
"""Columns between two cells of a table."""
NARROWEST = 8
"""Columns that a shortened cell keeps at least."""


def fitting_widths(widths: list[int], width: int, *, whole: bool = False) -> list[int]:
    """The widths of a table's columns so that all fit: the widest are shortened first, then the last left out. With
    ``whole`` the first, a name that people type in other commands, is shortened only where there is nothing else."""
    if whole and len(widths) > 1 and width - widths[0] - GAP >= min(widths[1], NARROWEST):
        return [widths[0], *fitting_widths(widths[1:], width - widths[0] - GAP)]
    if whole:
        return [min(widths[0], width)]
    fitted = list(widths)
    while len(fitted) > 1 and sum(min(each, NARROWEST) + GAP for each in fitted) - GAP > width:
        fitted.pop()
    while (over := sum(fitted) + GAP * (len(fitted) - 1) - width) > 0:
        widest = max(fitted)
        if widest <= NARROWEST:
            break
        second = max((each for each in fitted if each < widest), default=NARROWEST)
        count = fitted.count(widest)
        cut = min(widest - max(second, NARROWEST), -(-over // count)) or 1
        fitted = [each - cut if each == widest else each for each in fitted]
    return fitted


def fitted_cell(cell: str, width: int) -> str:
    """A cell of exactly so many columns, with an ellipsis where it was longer."""
    if columns(cell) > width:
        room, end = width - 1, 0
        while (room := room - columns(cell[end])) >= 0:
            end += 1
        cell = cell[:end] + "…"
    return cell + " " * (width - columns(cell))
