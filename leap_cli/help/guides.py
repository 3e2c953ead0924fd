"""The guides: which there are, which one is about a command, and how they are laid out for a terminal.

The result is Markdown again, for whatever styles and wraps it.

The pages are those of ``docs/``; an installed leap has them in its distribution's data files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..framework.help_text import broken_shell
from ..framework.wrapping import columns as columns_of
from ..framework.wrapping import wrapped

GAP, INDENT = 2, "    "
SHELL = ("sh", "console", "bash")
_FENCE = re.compile(r"```(\w*)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_COMMENT = re.compile(r"(.*\S)\s{2,}#\s(.*)")


def laid_out(text: str, columns: int, topics: tuple[str, ...]) -> str:
    """The Markdown of a guide for lines of so many columns. ``topics``: the guides that links may name."""
    lines: list[str] = []
    for block, language in _blocks(text):
        if language is not None:
            lines += _code(block, language, columns)
        elif block[0].startswith("|"):
            lines += _table([_linked(line, topics) for line in block], columns)
        else:
            lines += [_linked(line, topics) for line in _joined(block)]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _blocks(text: str) -> Iterator[tuple[list[str], str | None]]:
    """Lines between empty ones; blocks of code whole, with their language."""
    block: list[str] = []
    language: str | None = None
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if language is not None:
            if fence:
                yield block, language
                block, language = [], None
            else:
                block.append(line)
            continue
        if fence or not line.strip():
            if block:
                yield block, None
            block = []
            language = fence[1] if fence else None
        else:
            block.append(line)
    if block:
        yield block, language


def _joined(block: list[str]) -> list[str]:
    """A paragraph, or each item of a list, on one line."""
    lines: list[str] = []
    for line in block:
        if not lines or _ITEM.match(line) or line.startswith("#") or lines[-1].startswith("#"):
            lines.append(line)
        else:
            lines[-1] = f"{lines[-1]} {line.strip()}"
    return lines


def _code(block: list[str], language: str, columns: int) -> list[str]:
    """Code as it is; in lines that are too long comments go above, and shell continues after a backslash."""
    lines = []
    for line in block:
        if columns_of(line) > columns and language in (*SHELL, "toml") and (comment := _COMMENT.match(line)):
            lines += wrapped(f"# {comment[2]}", columns, "# ").split("\n")
            line = comment[1]
        if columns_of(line) > columns and language in SHELL and not _opens_quote(line):
            first, *others = broken_shell(line, columns)
            lines += [first, *(INDENT + other for other in others)]
        else:
            lines.append(line)
    return [f"```{language}", *lines, "```"]


def _opens_quote(line: str) -> bool:
    """Whether the line cannot be divided into words by itself."""
    return line.count("'") % 2 == 1 or line.count('"') % 2 == 1 or line.startswith((" ", "#")) or "<<" in line


def _table(block: list[str], columns: int) -> list[str]:
    """Columns side by side where they fit; else each row's first cell, and below it the others."""
    rows = [[cell.replace("\0", "|").strip() for cell in _cells(line)] for line in block]
    heading, rows = rows[0], [row for row in rows[1:] if not all(set(cell) <= set("-: ") for cell in row)]
    count = max(len(row) for row in [heading, *rows])
    widths = [max(columns_of(_plain(row[n])) if n < len(row) else 0 for row in [heading, *rows]) for n in range(count)]
    if sum(widths) + GAP * (count - 1) <= columns:
        shown = [heading] * any(heading) + rows
        return [_aligned([_upper(cell) if row is heading else cell for cell in row], widths) for row in shown]
    lines = []
    for row in rows:
        lines.append(row[0] or "-")
        named = zip(heading[1:], row[1:], strict=False)
        lines += [
            f"{INDENT}{name}: {cell}" if name and count > 2 else f"{INDENT}{cell}" for name, cell in named if cell
        ]
    return lines


def _cells(line: str) -> list[str]:
    return line.replace("\\|", "\0").strip().strip("|").split("|")


def _aligned(row: list[str], widths: list[int]) -> str:
    cells = (cell + " " * (width - columns_of(_plain(cell))) for cell, width in zip(row, widths, strict=False))
    return (" " * GAP).join(cells).rstrip()


def _upper(cell: str) -> str:
    return cell if "`" in cell else cell.upper()


def _plain(cell: str) -> str:
    """The cell without the marks of code and emphasis, which take no space."""
    return re.sub(r"`|\*\*", "", cell)


def _linked(line: str, topics: tuple[str, ...]) -> str:
    """Links as words: a guide's command, an address, or the text alone."""

    def words(match: re.Match[str]) -> str:
        text, target = match.groups()
        page = target.partition("#")[0].rpartition("/")[2].removesuffix(".md")
        if "://" in target:
            return f"{text} ({target})"
        if page in topics and "/" not in target.removeprefix("docs/"):
            return f"`leap help {page}`" if text == f"{page}.md" else f"{text} (`leap help {page}`)"
        return text

    return _LINK.sub(words, line)
