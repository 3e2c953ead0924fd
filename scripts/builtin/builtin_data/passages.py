"""Passages to learn from: the sections of the repository's pages, and docstrings of its modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from builtin_data.phrases import FOLDER, sections

ROOT = Path(__file__).resolve().parents[3]
PAGES = (*sorted((ROOT / "docs").glob("*.md")), *(ROOT / name for name in ("README.md", "ARCHITECTURE.md")))
QUESTIONS = "page_questions"
"""Phrases by which the encoder is measured, which it does not learn from."""
LONGEST, SHORTEST = 110, 8
"""Words of a passage: longer ones are cut at ends of lines."""
WORD = re.compile(r"[A-Za-z][\w'-]*|\d+")
MARKS = re.compile(r"[`*#|]|\[|\]\([^)]*\)|<[^>]+>")


class Passage(NamedTuple):
    """A text with its Markdown, and the words above it: the page's and section's headings, or a definition's name."""

    heading: str
    text: str


def plain(text: str) -> str:
    """Markdown's marks taken out."""
    return re.sub(r"[ \t]+", " ", MARKS.sub(" ", text)).strip()


def page_passages(path: Path) -> Iterator[Passage]:
    heading, lines = path.stem.replace("-", " "), []
    title = ""
    for line in [*path.read_text(encoding="utf-8").splitlines(), "# end"]:
        if re.match(r"#{1,4} ", line):
            yield from _cut(heading, lines)
            name = plain(line.lstrip("#"))
            title = title or name
            heading, lines = name if name == title else f"{title} > {name}", []
        else:
            lines.append(line)


def _cut(heading: str, lines: list[str]) -> Iterator[Passage]:
    part: list[str] = []
    for line in [*map(str.strip, lines), None]:
        if line is None or (len(part) and sum(len(other.split()) for other in part) + len(line.split()) > LONGEST):
            text = "\n".join(part).strip()
            if len(text.split()) >= SHORTEST:
                yield Passage(heading, text)
            part = []
        if line:
            part.append(line)


def docstrings() -> Iterator[Passage]:
    for package in ("leap_core", "leap_cli", "jobs"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    text = ast.get_docstring(node)
                    name = path.stem if isinstance(node, ast.Module) else node.name
                    if text and len(text.split()) >= SHORTEST:
                        yield Passage(name.strip("_").replace("_", " "), text)


@cache
def passages() -> list[Passage]:
    """All of the repository's."""
    return [passage for path in PAGES for passage in page_passages(path)] + list(docstrings())


@cache
def common_words() -> list[str]:
    """Words of the phrases that the built-in model learned from, and of the passages."""
    files = [file.stem for file in sorted(FOLDER.glob("*.txt")) if file.stem != QUESTIONS]
    texts = [entry for file in files for part in sections(file).values() for entry in part]
    texts += [passage.text for passage in passages()]
    return sorted({word.lower() for text in texts for word in WORD.findall(text) if len(word) > 2})
