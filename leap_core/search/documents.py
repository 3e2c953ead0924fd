"""Files as lines of text with their numbers: text, Markdown, code as they are, HTML without tags, PDF by pages."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from .charsets import UTF_16, UnknownCharsetError, decoded, decoded_page
from .html_text import html_lines
from .pdf_text import UnreadableDocumentError, pdf_pages
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
    kind = kind_of(path) or TEXT
    if kind == PDF:
        pages = enumerate(_pages(path), 1)
        return kind, [TextLine(number, line) for number, page in pages for line in [*page.splitlines(), ""]]
    data = _bytes(path)
    if kind == HTML:
        return kind, html_lines(_page(data, path))
    return kind, [TextLine(number, line) for number, line in enumerate(_lines(decoded(data)), 1)]


def is_extracted(path: Path) -> bool:
    """Whether a file's text is something else than what is in the file."""
    return kind_of(path) in (PDF, HTML)


def document_text(path: Path) -> str:
    """The text of a PDF, in which a form feed ends each page, or of HTML: a line a block. Raises
    UnreadableDocumentError, also for one without text; or OSError."""
    if kind_of(path) == PDF:
        pages = [page.replace("\r\n", "\n").replace("\r", "\n").rstrip() for page in _pages(path)]
        if not any(pages):
            raise UnreadableDocumentError(
                f"{path} has no text: its pages are pictures, or empty", hint="give the pages as pictures, with --image"
            )
        return "".join(f"{page}\n\f" for page in pages)
    text = "\n".join(line.text for line in html_lines(_page(_bytes(path), path))).rstrip()
    if not text:
        raise UnreadableDocumentError(f"{path} has no text that a browser would show")
    return text


def _page(data: bytes, path: Path) -> str:
    try:
        return decoded_page(data)
    except UnknownCharsetError as error:
        raise UnreadableDocumentError(f"{path}: {error.message}") from None


def _pages(path: Path) -> list[str]:
    _check(path)
    return pdf_pages(path)


def _bytes(path: Path) -> bytes:
    _check(path)
    data = path.read_bytes()
    if b"\0" in data and not data.startswith(UTF_16):
        raise UnreadableDocumentError(f"{path} is not text")
    return data


def _check(path: Path) -> None:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        raise UnreadableDocumentError(f"{path} is no file")
    if status.st_size > LARGEST_FILE:
        raise UnreadableDocumentError(f"{path} is larger than {LARGEST_FILE // 1024**2} MiB")


def _lines(text: str) -> list[str]:
    """As editors count them: a form feed, among others, ends no line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
