"""Documents cut into chunks: at headings, between paragraphs, between lines, and only then within a line.

Chunks of one section overlap, so that one of them has a thought at a cut as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...documents.blocks import TextLine
from ...documents.kinds import CODE, MARKDOWN
from ...system.dataclass import dataclass

CHUNK_TOKENS, OVERLAP_TOKENS = 256, 32
HEADING = re.compile(r"(#{1,6})\s")
LONGEST_TITLE = 300
"""Characters; a line of more is text, whatever it begins with."""
FENCE = re.compile(r"\s*(```|~~~)")
LONGEST_PIECE = 2000
"""Characters of a piece of a long line, before its tokens are counted."""
LONGEST_LINE = 10 * LONGEST_PIECE
"""Characters after which a line is cut, however few tokens it has."""

Counter = Callable[[Sequence[str]], Sequence[int]]
"""Tokens of each text."""


@dataclass(frozen=True)
class TextChunk:
    """A passage. ``heading``: the titles above it, joined by " > ". ``first``, ``last``: line (or page) numbers."""

    heading: str
    text: str
    first: int
    last: int

    @property
    def embedded(self) -> str:
        """What the model reads: the passage below its titles."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text


@dataclass(frozen=True)
class _Piece:
    line: TextLine
    tokens: int
    heading: str
    starts_block: bool


def count_words(texts: Sequence[str]) -> list[int]:
    """About how many tokens texts have, where no model counts them."""
    return [len(re.findall(r"\w+|[^\w\s]", text)) * 4 // 3 for text in texts]


def cut(
    kind: str,
    lines: Sequence[TextLine],
    *,
    count: Counter = count_words,
    tokens: int = CHUNK_TOKENS,
    overlap: int = OVERLAP_TOKENS,
) -> list[TextChunk]:
    """The chunks of a document, none with more than ``tokens`` tokens as ``count`` counts its lines."""
    pieces = _pieces(kind, _short_lines(lines, count, tokens), count)
    chunks: list[TextChunk] = []
    current: list[_Piece] = []
    size = 0
    for piece in pieces:
        new_section = current and piece.heading != current[-1].heading
        if new_section or size + piece.tokens > tokens:
            kept, rest = (current, []) if new_section else _at_boundary(current, tokens)
            chunks += _chunk(kept)
            current = [*([] if new_section else _tail(kept, overlap if not rest else 0)), *rest]
            size = sum(each.tokens for each in current)
            start = 0
            while start < len(current) and size + piece.tokens > tokens:
                size -= current[start].tokens
                start += 1
            current = current[start:]
        if current or piece.line.text.strip():  # no chunk begins with a blank line
            current.append(piece)
            size += piece.tokens
    return chunks + _chunk(current)


def _pieces(kind: str, lines: Sequence[TextLine], count: Counter) -> list[_Piece]:
    sizes = count([line.text for line in lines])
    titles: list[tuple[int, str]] = []
    heading = ""
    fenced, after_blank = False, True
    pieces: list[_Piece] = []
    for line, size in zip(lines, sizes, strict=True):
        fenced ^= kind == MARKDOWN and FENCE.match(line.text) is not None
        found = _title_of(line.text) if kind != CODE and not fenced else None
        if found is not None:
            level, title = found
            titles = [(depth, above) for depth, above in titles if depth < level] + [(level, title)]
            heading = " > ".join(title for _, title in titles)
            after_blank = True
            continue
        blank = not line.text.strip()
        top_level = kind != CODE or not line.text[:1].isspace()
        if blank and len(pieces) > 1 and not any(piece.line.text.strip() for piece in pieces[-2:]):
            continue  # no passage is made of blank lines
        pieces.append(_Piece(line, size if not blank else 0, heading, after_blank and not blank and top_level))
        after_blank = blank and not fenced
    return pieces


def _title_of(line: str) -> tuple[int, str] | None:
    """The level and the text of a heading; None for another line."""
    match = HEADING.match(line)
    title = line[match.end() :].strip() if match is not None else ""
    if match is None or not 0 < len(title) <= LONGEST_TITLE:
        return None
    return len(match[1]), title.rstrip("#").rstrip() or title


def _short_lines(lines: Sequence[TextLine], count: Counter, tokens: int) -> list[TextLine]:
    """Lines of at most so many tokens: longer ones are cut after a sentence, else between words, else anywhere."""
    sizes = count([line.text for line in lines])
    short: list[TextLine] = []
    for line, size in zip(lines, sizes, strict=True):
        if size <= tokens and len(line.text) <= LONGEST_LINE:
            short.append(line)
            continue
        step = max(1, min(LONGEST_PIECE, len(line.text) * tokens // max(1, size * 2)))
        short += [replace(line, text=text) for text in _split(line.text, step)]
    return short


def _split(text: str, length: int) -> list[str]:
    parts, start = [], 0
    while len(text) - start > length:
        window = text[start : start + length]
        ends = [match.end() for match in re.finditer(r"[.!?。！？]\s+", window)] or [window.rfind(" ") + 1]
        end = ends[-1] if ends[-1] > length // 4 else length
        parts.append(window[:end].rstrip())
        start += end
    rest = text[start:]
    return [*parts, rest] if rest.strip() else parts


def _at_boundary(pieces: list[_Piece], tokens: int) -> tuple[list[_Piece], list[_Piece]]:
    """Cut before the last block that begins in the second half; what comes after the cut continues."""
    seen, total = 0, sum(piece.tokens for piece in pieces)
    for number in range(len(pieces) - 1, 0, -1):
        seen += pieces[number].tokens
        if total - seen < tokens // 2:
            break
        if pieces[number].starts_block:
            return pieces[:number], pieces[number:]
    return pieces, []


def _tail(pieces: list[_Piece], overlap: int) -> list[_Piece]:
    size, start = 0, len(pieces)
    while start > 0 and size + pieces[start - 1].tokens <= overlap:
        start -= 1
        size += pieces[start].tokens
    return pieces[start:] if start else []


def _chunk(pieces: list[_Piece]) -> list[TextChunk]:
    words = [number for number, piece in enumerate(pieces) if piece.line.text.strip()]
    if not words:
        return []
    pieces = pieces[words[0] : words[-1] + 1]
    text = "\n".join(piece.line.text for piece in pieces)
    return [TextChunk(pieces[0].heading, text, pieces[0].line.number, pieces[-1].line.number)]
