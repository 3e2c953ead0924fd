"""Files as lines of text with their numbers: text, Markdown, code as they are, HTML without tags, PDF by pages."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from ..errors import LeapError
from .html_text import html_lines
from .text_lines import TextLine

TEXT, MARKDOWN, CODE, HTML, PDF = "text", "markdown", "code", "html", "pdf"
KINDS = {
    TEXT: ("txt", "text", "rst", "log", "csv", "tsv", "org", "adoc", "tex", "srt", "vtt"),
    MARKDOWN: ("md", "markdown", "mdx"),
    HTML: ("html", "htm", "xhtml"),
    PDF: ("pdf",),
    CODE: (
        *("py", "pyi", "js", "mjs", "ts", "tsx", "jsx", "c", "h", "cc", "cpp", "hpp", "cu", "m", "mm", "java", "kt"),
        *("swift", "go", "rs", "rb", "php", "pl", "lua", "r", "jl", "scala", "hs", "ml", "ex", "exs", "erl", "clj"),
        *("sh", "bash", "zsh", "fish", "ps1", "sql", "css", "scss", "json", "jsonl", "yaml", "yml", "toml", "ini"),
        *("cfg", "xml", "cmake", "gradle", "tf", "proto", "cs", "dart", "zig", "vue"),
    ),
}
KIND_OF = {ending: kind for kind, endings in KINDS.items() for ending in endings}
NAMES = {"makefile": CODE, "dockerfile": CODE, "readme": TEXT, "license": TEXT, "changelog": TEXT, "authors": TEXT}
SKIPPED_DIRECTORIES = {"node_modules", "__pycache__", "venv", "build", "dist", "target", "site-packages"}
LARGEST_FILE = 32 * 1024**2


class UnreadableDocumentError(LeapError):
    """A file that cannot be indexed: not text, too large, or damaged."""


def kind_of(path: Path) -> str | None:
    """text, markdown, code, html or pdf, by the file's name; None for what is not indexed."""
    ending = path.suffix.lower().lstrip(".")
    return KIND_OF.get(ending) or (NAMES.get(path.name.lower()) if not ending else None)


Skip = Callable[[str, str], object]
"""Hears of a file or directory that is left out, and why."""


def files_below(
    paths: Sequence[Path],
    patterns: Sequence[str] = (),
    on_skipped: Skip = lambda _path, _reason: None,
) -> Iterator[Path]:
    """The files to index, in a fixed order: those named, and those below directories whose kind is known, without
    hidden ones, what tools made and links that lead out of the directory. ``patterns``: only those whose path or name
    fits one (``*.md``, ``docs/*``)."""
    for path in paths:
        if os.path.isdir(path):
            inside = os.path.realpath(path)
            yield from (file for file in _walk(path, inside, on_skipped) if _fits(file, path, patterns))
        else:
            yield path


def _walk(directory: Path, inside: str, on_skipped: Skip) -> Iterator[Path]:
    try:
        with os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        on_skipped(str(directory), str(error.strerror))
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_DIRECTORIES:
                    yield from _walk(Path(entry.path), inside, on_skipped)
            elif kind_of(Path(entry.name)) is not None and entry.is_file():
                if not entry.is_symlink() or Path(os.path.realpath(entry.path)).is_relative_to(inside):
                    yield Path(entry.path)
                else:
                    on_skipped(entry.path, "it is a link to a file elsewhere; name that file to have it")
        except OSError as error:  # a link to itself, for one
            on_skipped(entry.path, str(error.strerror))


def _fits(file: Path, below: Path, patterns: Sequence[str]) -> bool:
    relative = file.relative_to(below).as_posix()
    return not patterns or any(fnmatch(relative, pattern) or fnmatch(file.name, pattern) for pattern in patterns)


def read_document(path: Path) -> tuple[str, list[TextLine]]:
    """A file's kind and its lines. Raises UnreadableDocumentError, or OSError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        raise UnreadableDocumentError(f"{path} is no file")
    if status.st_size > LARGEST_FILE:
        raise UnreadableDocumentError(f"{path} is larger than {LARGEST_FILE // 1024**2} MiB")
    kind = kind_of(path) or TEXT
    if kind == PDF:
        return kind, _pdf_pages(path)
    data = path.read_bytes()
    if b"\0" in data and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UnreadableDocumentError(f"{path} is not text")
    text = _decoded(data)
    if kind == HTML:
        return kind, html_lines(text)
    return kind, [TextLine(number, line) for number, line in enumerate(_lines(text), 1)]


def _lines(text: str) -> list[str]:
    """As editors count them: a form feed, among others, ends no line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def _decoded(data: bytes) -> str:
    for encoding in ("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", "replace")


def _pdf_pages(path: Path) -> list[TextLine]:
    try:
        from pypdf import PdfReader
    except ImportError:
        raise UnreadableDocumentError(f"{path}: PDF needs a library", hint="pip install leap-edge[pdf]") from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what is wrong with a file is reported once, here
    try:
        pages = [page.extract_text() for page in PdfReader(path).pages]
    except OSError:
        raise
    except Exception as error:  # of damaged files it raises nearly anything
        raise UnreadableDocumentError(f"{path} cannot be read as PDF: {error or type(error).__name__}") from None
    return [TextLine(number, line) for number, page in enumerate(pages, 1) for line in [*page.splitlines(), ""]]
