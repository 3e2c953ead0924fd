"""Markdown for a terminal, while it comes: bold, italics, code, headings and lists; everything else stays as it is.

Text is held back only where a marker may still turn out to be one, at most to the end of its line. A marker that is
never closed is shown. Lines are broken between words, but those of code.
"""

from __future__ import annotations

import re

from ..framework.wrapping import WordWrap

BOLD, NOT_BOLD = "\x1b[1m", "\x1b[22m"
ITALIC, NOT_ITALIC = "\x1b[3m", "\x1b[23m"
CODE, NOT_CODE = "\x1b[36m", "\x1b[39m"

LONGEST_SPAN = 300
"""Characters to wait for a closing marker."""

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_MAY_BECOME_FENCE = re.compile(r" {0,3}(`{0,2}|~{0,2})")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+")
_BULLET = re.compile(r"([ \t]*)[-*+][ \t]+(?=\S)")
_MAY_BECOME_START = re.compile(r"[ \t]*([-*+][ \t]*|#{1,6}[ \t]*|`{1,2}|~{1,2})?")
_MARKER = re.compile(r"[`*_\\]")
_SPANS = (
    (re.compile(r"``(?!`)\s?(.+?)\s?(?<!`)``(?!`)"), CODE, NOT_CODE),
    (re.compile(r"`([^`]+)`"), CODE, NOT_CODE),
    (re.compile(r"\*\*(?=[^\s*])(.+?)(?<=\S)\*\*"), BOLD, NOT_BOLD),
    (re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])"), ITALIC, NOT_ITALIC),
    (re.compile(r"(?<![\w_])_(?=[^\s_])([^_]+?)(?<=\S)_(?![\w_])"), ITALIC, NOT_ITALIC),
)


class MarkdownStream:
    """Takes an answer's text piece by piece, and gives what a terminal is to show of it."""

    def __init__(self, columns: int | None = None) -> None:
        """``columns``: where lines are broken; None leaves them as they are."""
        self._columns = columns
        self._restart()

    def _restart(self) -> None:
        self._wrap = None if self._columns is None else WordWrap(self._columns)
        self._line = ""
        self._shown = 0
        self._begun = False
        self._heading = False
        self._fence = ""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        out = ""
        *ended, rest = (self._line + piece).split("\n")
        for line in ended:
            self._line = line
            out += self._advance(ends=True)
            self._line, self._shown = "", 0
            self._begun = False
        self._line = rest
        return out + self._advance(ends=False)

    def end(self) -> str:
        """What was held back, and the end of every style."""
        out = self._advance(ends=True, feed="") if self._line else ""
        if self._wrap is not None:
            out += self._wrap.end()
        self._restart()
        return out

    def _advance(self, *, ends: bool, feed: str = "\n") -> str:
        if self._fence or (not self._begun and _FENCE.match(self._line)):
            code = self._code_line(ends, feed)
            return code if self._wrap is None else self._wrap.verbatim(code)
        text = self._text_line(ends, feed)
        return text if self._wrap is None else self._wrap.feed(text)

    def _text_line(self, ends: bool, feed: str) -> str:
        out = "" if self._begun else self._begin(ends)
        if self._begun:
            text, self._shown = _inline(self._line, self._shown, ends, bold=not self._heading)
            out += text
        if ends:
            out += (NOT_BOLD if self._heading else "") + feed
            self._heading = False
        return out

    def _begin(self, ends: bool) -> str:
        """Decide what kind of line this is; nothing while that is open."""
        if not ends and _MAY_BECOME_START.fullmatch(self._line):
            return ""
        self._begun = True
        if heading := _HEADING.match(self._line):
            self._heading, self._shown = True, heading.end()
            return BOLD
        if bullet := _BULLET.match(self._line):
            self._shown = bullet.end()
            return f"{bullet[1]}\N{BULLET} "
        return ""

    def _code_line(self, ends: bool, feed: str) -> str:
        """A line of a block of code, or one of the two that fence it, which are not shown."""
        if not self._begun and (fence := _FENCE.match(self._line)):
            closes = fence[1].startswith(self._fence) and not self._line[fence.end() :].strip()
            if not self._fence or closes:
                if ends:
                    self._fence = "" if self._fence else fence[1]
                return ""
        if not self._begun and not ends and _MAY_BECOME_FENCE.fullmatch(self._line):
            return ""
        self._begun = True
        text, self._shown = self._line[self._shown :], len(self._line)
        return (f"{CODE}{text}{NOT_CODE}" if text else "") + (feed if ends else "")


def _inline(line: str, start: int, ends: bool, *, bold: bool = True) -> tuple[str, int]:
    """The line from ``start`` on, as far as it is decided, and how far that is. ``bold`` False: it is bold already."""
    out = ""
    while start < len(line):
        marker = _MARKER.search(line, start)
        if marker is None:
            return out + line[start:], len(line)
        out += line[start : marker.start()]
        start = marker.start()
        waiting = not ends and len(line) - start < LONGEST_SPAN
        if line[start] == "\\":
            if waiting and start + 1 == len(line):
                break
            if line[start + 1 : start + 2] in tuple("`*_\\#"):
                start += 1
            out += line[start : start + 1]
            start += 1
            continue
        for pattern, on, off in _SPANS:
            span = pattern.match(line, start)
            if span is not None and not (waiting and span.end() == len(line)):
                inner = span[1] if on == CODE else _inline(span[1], 0, True, bold=bold and on != BOLD)[0]
                out += f"{on}{inner}{off}" if bold or on != BOLD else inner
                start = span.end()
                break
        else:
            if waiting and _may_open(line, start):
                break
            run = len(line) - start - len(line[start:].lstrip(line[start]))
            out += line[start : start + run]
            start += run
    return out, start


def _may_open(line: str, start: int) -> bool:
    """Whether the markers here can begin a span: something follows them, and no word comes before a ``_``."""
    rest = line[start:].lstrip(line[start])
    inside_word = start > 0 and (line[start - 1].isalnum() or line[start - 1] == "_")
    if line[start] != "`" and inside_word and not line.startswith("**", start):
        return False
    return not rest or not rest[0].isspace() or line[start] == "`"
