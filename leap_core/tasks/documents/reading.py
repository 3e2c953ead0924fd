"""The one reader of documents: a file, bytes or an address becomes text with places, and pages that have no text can be
seen as pictures.

What a document is says its content; of texts (Markdown, code, HTML) its name. What a library reads, it reads in a
process of its own, within bounds of time and memory: such files come from strangers. Nothing that a document names is
fetched, and no macro is run.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import subprocess
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ...errors import LeapSerializationError
from ...system.child import child_for, kill, killed_when
from ...system.dataclass import dataclass
from . import OLD_OFFICE, PDF_WITHIN, is_document
from .html import (
    CELL_END,
    UTF_16,
    TextLine,
    UnknownCharsetError,
    UnreadableDocumentError,
    decoded,
    decoded_page,
    html_lines,
    main_lines,
)

TEXT, MARKDOWN, CODE, HTML, PDF = "text", "markdown", "code", "html", "pdf"
DOCX, XLSX, PPTX, EPUB, EML, IPYNB = "docx", "xlsx", "pptx", "epub", "eml", "ipynb"
ODT, ODS, ODP, RTF = "odt", "ods", "odp", "rtf"
KINDS = {
    TEXT: ("txt", "text", "rst", "log", "csv", "tsv", "org", "adoc", "tex", "srt", "vtt"),
    MARKDOWN: ("md", "markdown", "mdx"),
    HTML: ("html", "htm", "xhtml"),
    PDF: ("pdf",),
    DOCX: ("docx", "docm", "dotx"),
    XLSX: ("xlsx", "xlsm", "xltx"),
    PPTX: ("pptx", "pptm", "ppsx"),
    ODT: ("odt", "ott"),
    ODS: ("ods", "ots"),
    ODP: ("odp", "otp"),
    RTF: ("rtf",),
    EPUB: ("epub",),
    EML: ("eml",),
    IPYNB: ("ipynb",),
    CODE: (
        *("py", "pyi", "js", "mjs", "ts", "tsx", "jsx", "c", "h", "cc", "cpp", "hpp", "cu", "m", "mm", "java", "kt"),
        *("swift", "go", "rs", "rb", "php", "pl", "lua", "r", "jl", "scala", "hs", "ml", "ex", "exs", "erl", "clj"),
        *("sh", "bash", "zsh", "fish", "ps1", "sql", "css", "scss", "json", "jsonl", "yaml", "yml", "toml", "ini"),
        *("cfg", "xml", "cmake", "gradle", "tf", "proto", "cs", "dart", "zig", "vue"),
    ),
}
KIND_OF = {ending: kind for kind, endings in KINDS.items() for ending in endings}
NAMES = {"makefile": CODE, "dockerfile": CODE, "readme": TEXT, "license": TEXT, "changelog": TEXT, "authors": TEXT}
TEXTS = (TEXT, MARKDOWN, CODE)
"""Kinds whose text is what is in the file."""
PACKED = {
    "word/document.xml": DOCX,
    "xl/workbook.xml": XLSX,
    "ppt/presentation.xml": PPTX,
    "META-INF/container.xml": EPUB,
}
"""What archives hold that are documents."""
LONGEST_MANIFEST = 1024**2
OPEN_DOCUMENTS = {
    f"application/vnd.oasis.opendocument.{name}": kind
    for name, kind in (("text", ODT), ("spreadsheet", ODS), ("presentation", ODP))
}
"""What archives say that they are."""
UNITS = {PDF: "page", PPTX: "slide", ODP: "slide", XLSX: "sheet", ODS: "sheet", EPUB: "chapter"}
"""What the pages of a kind are called."""
LARGEST_TEXT, LARGEST_DOCUMENT = 32 * 1024**2, 256 * 1024**2
MOST_UNPACKED = 1024**3
MOST_MEMBERS = 20_000
CPU_SECONDS, WALL_SECONDS = 60, 180.0
MEMORY_BYTES = 2 * 1024**3
PICTURE_SIDE = 1536
"""Pixels of the longer side of a page that is seen."""
BROKEN = re.compile("[\x00\f\ud800-\udfff]")
"""What no text holds, and a page must not, because a form feed ends it."""


@dataclass(frozen=True)
class Page:
    """``title``: a sheet's name, or a chapter's. ``lines`` are numbered within the page. ``is_drawn``: there is
    something on it, be it text or a picture."""

    lines: tuple[TextLine, ...]
    title: str = ""
    is_drawn: bool = True

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines).rstrip()


@dataclass(frozen=True)
class Document:
    """``kind``: see ``KINDS``. ``pages``: one for what has none. ``source``: what it was read from, for pictures."""

    kind: str
    pages: tuple[Page, ...]
    source: Path | bytes = b""

    @property
    def unit(self) -> str:
        """What its pages are: page, slide, sheet, chapter; empty for a document without any."""
        return UNITS.get(self.kind, "")

    @property
    def blank(self) -> list[int]:
        """The numbers of a PDF's pages that have no text, and are not empty: pictures."""
        drawn = (n for n, page in enumerate(self.pages, 1) if page.is_drawn and not page.text.strip())
        return list(drawn) if self.kind == PDF else []

    @property
    def text(self) -> str:
        """All text; a form feed ends each page, where there are pages."""
        if not self.unit:
            return "\n".join(page.text for page in self.pages)
        return "".join(f"{page.text}\n\f" for page in self.pages)

    @property
    def lines(self) -> list[TextLine]:
        """The lines with their places: the number of the page where there are pages, else of the line."""
        if not self.unit:
            return [line for page in self.pages for line in page.lines]
        return [
            TextLine(number, text)
            for number, page in enumerate(self.pages, 1)
            for text in [*(line.text for line in page.lines), ""]
        ]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The rows of a workbook's sheets after their first, which names the columns: where each is (``Sheet!3``, as
        spreadsheets count), and its cells by the columns' names."""
        found = []
        for page in self.pages if self.kind in (XLSX, ODS) else ():
            names: list[str] = []
            for line in page.lines[1:]:
                cells = line.text.split(CELL_END)
                if not names:
                    names = cells if line.text.strip() else []
                elif line.text.strip():
                    named = zip_longest(names, cells, fillvalue="")
                    text = "\n".join(f"{name}: {cell}" if name else cell for name, cell in named if cell)
                    found.append((f"{page.title}!{line.number - 1}", text))
        return found

    def with_texts(self, texts: Mapping[int, str]) -> Document:
        """The document with these texts on pages of these numbers."""
        pages = list(self.pages)
        for number, text in texts.items():
            lines = (TextLine(n, line) for n, line in enumerate(text.splitlines(), 1))
            pages[number - 1] = Page(tuple(lines), pages[number - 1].title)
        return Document(self.kind, tuple(pages), self.source)

    def pictures(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Pages of a PDF as JPEG pictures, by their numbers. Raises UnreadableDocumentError."""
        request = {**_source(self.source), "pages": list(numbers), "side": PICTURE_SIDE}
        name = self.source.name if isinstance(self.source, Path) else "the document"
        with _asking("pictures", request, name) as answers:
            for answer in answers:
                if "page" in answer:
                    yield answer["page"], base64.b64decode(answer["jpeg"])


def kind_of(path: Path) -> str | None:
    """The kind of a file by its name; None for what is not indexed."""
    ending = path.suffix.lower().lstrip(".")
    return KIND_OF.get(ending) or (NAMES.get(path.name.lower()) if not ending else None)


def read_document(source: Path | bytes, name: str | None = None, *, stop: threading.Event | None = None) -> Document:
    """A document. ``name``: what errors call it, and says what kind of text it is; by default the path. Once ``stop``
    is set it is read no further. Raises UnreadableDocumentError, or OSError."""
    if stop is not None and stop.is_set():
        raise UnreadableDocumentError("the reading was stopped")
    shown = str(source) if name is None and isinstance(source, Path) else name or "the document"
    named = kind_of(Path(name or (source if isinstance(source, Path) else "")))
    head = _head(source, shown)
    kind = _kind(head, named, source, shown)
    if kind in TEXTS or kind == HTML:
        data = _bytes(source, shown, LARGEST_TEXT)
        if kind == HTML:
            try:
                lines = html_lines(decoded_page(data))
            except UnknownCharsetError as error:
                raise UnreadableDocumentError(f"{shown}: {error.message}") from None
        else:
            lines = [TextLine(n, line) for n, line in enumerate(_lines(decoded(data)), 1)]
        return Document(kind, (Page(tuple(lines)),))
    if kind in (EML, IPYNB):
        from .office import email_pages, notebook_pages

        read = email_pages if kind == EML else notebook_pages
        return Document(kind, _pages(read(_bytes(source, shown, LARGEST_TEXT), shown)))
    _check_library(kind, shown)
    with _asking("parse", {**_source(source), "kind": kind}, shown, stop) as answers:
        found = next((answer["result"] for answer in answers if "result" in answer), None)
    return Document(kind, _pages(found or []), source)


def document_text(source: Path | bytes, name: str | None = None) -> str:
    """The text of a document. Raises UnreadableDocumentError, also for one without text; or OSError."""
    document = read_document(source, name)
    check_has_text(document, name or str(source))
    return document.text


def check_has_text(document: Document, name: str) -> None:
    """Raises UnreadableDocumentError for a document without any text."""
    if any(page.text.strip() for page in document.pages):
        return
    if document.kind == PDF:
        why = f"{name} has no text: its pages are pictures, or empty"
        raise UnreadableDocumentError(why, hint="a model that sees can read them: name one with -m")
    if document.kind == HTML:
        raise UnreadableDocumentError(f"{name} has no text that a browser would show")
    raise UnreadableDocumentError(f"{name} has no text")


def is_extracted(path: Path) -> bool:
    """Whether a file's text is something else than what is in the file, as far as its name says."""
    return (kind_of(path) or TEXT) not in TEXTS


def _head(source: Path | bytes, name: str) -> bytes:
    if isinstance(source, bytes):
        return source[:PDF_WITHIN]
    status = source.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        raise UnreadableDocumentError(f"{name} is no file")
    with source.open("rb") as file:
        head = file.read(PDF_WITHIN)
    _check_size(status.st_size, name, LARGEST_DOCUMENT if is_document(head) else LARGEST_TEXT)
    return head


def _check_size(size: int, name: str, most: int) -> None:
    if size > most:
        raise UnreadableDocumentError(f"{name} is larger than {most // 1024**2} MiB")


def _kind(head: bytes, named: str | None, source: Path | bytes, name: str) -> str:
    """What a document is: by its content, of texts by its name. Raises UnreadableDocumentError."""
    if b"%PDF-" in head:
        return PDF
    if head.startswith(OLD_OFFICE):
        why = f"{name} is encrypted, or of an office program before 2007"
        raise UnreadableDocumentError(why, hint="save it as docx, xlsx or pptx without a password")
    if head.startswith(b"PK\x03\x04"):
        return _packed_kind(source, name)
    if head.startswith(b"{\\rtf"):
        return RTF
    if named in (PDF, DOCX, XLSX, PPTX, EPUB, ODT, ODS, ODP, RTF):
        raise UnreadableDocumentError(
            f"{name} is no {named.upper() if named == PDF else named}, whatever its name says"
        )
    if named is None and re.match(rb"\s*<(!doctype html|html)\b", head, re.IGNORECASE):
        return HTML
    return named or TEXT


def _packed_kind(source: Path | bytes, name: str) -> str:
    import io
    import zlib

    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
            members = archive.infolist()
            unpacked = sum(member.file_size for member in members)
            if unpacked > MOST_UNPACKED or len(members) > MOST_MEMBERS:
                much = f"{unpacked // 1024**2} MiB in {len(members)} parts"
                most = f"at most {MOST_UNPACKED // 1024**2} MiB in {MOST_MEMBERS} are read"
                raise UnreadableDocumentError(f"{name} unpacks to {much}; {most}")
            names = {member.filename for member in members}
            locked = any(member.flag_bits & 1 for member in members)
            said, listed = (
                archive.open(part).read(LONGEST_MANIFEST) if part in names and not locked else b""
                for part in ("mimetype", "META-INF/manifest.xml")
            )
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise UnreadableDocumentError(f"{name} is damaged: {error}") from None
    if locked or b"encryption-data" in listed:
        raise UnreadableDocumentError(f"{name} is encrypted", hint="take the password off")
    kind = OPEN_DOCUMENTS.get(said.decode("latin-1").strip().removesuffix("-template"))
    kind = kind or next((kind for part, kind in PACKED.items() if part in names), None)
    if kind is None:
        raise UnreadableDocumentError(f"{name} is an archive, and no document that leap reads")
    return kind


def _bytes(source: Path | bytes, name: str, most: int) -> bytes:
    data = source if isinstance(source, bytes) else source.read_bytes()
    _check_size(len(data), name, most)
    if b"\0" in data and not data.startswith(UTF_16):
        raise UnreadableDocumentError(f"{name} is not text")
    return data


def _lines(text: str) -> list[str]:
    """As editors count them: a form feed, among others, ends no line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


LIBRARIES = {PDF: "pypdfium2", DOCX: "mammoth", RTF: "striprtf", XLSX: "openpyxl", PPTX: "pptx"}


def _check_library(kind: str, name: str) -> None:
    """Raises UnreadableDocumentError where the library for a kind is not there."""
    from importlib.util import find_spec

    if kind in LIBRARIES and find_spec(LIBRARIES[kind]) is None:
        extra = PDF if kind == PDF else "documents"
        what = kind.upper() if kind == PDF else kind
        raise UnreadableDocumentError(f"{name}: {what} needs a library", hint=f"pip install leap-edge[{extra}]")


def _pages(found: Sequence[tuple[str, str, bool]]) -> tuple[Page, ...]:
    """Pages of titles and texts, and whether there is anything on them."""
    return tuple(
        Page(tuple(TextLine(n, line) for n, line in enumerate(_lines(BROKEN.sub(" ", text)), 1) if text), title, drawn)
        for title, text, drawn in found
    )


def _source(source: Path | bytes) -> dict[str, Any]:
    if isinstance(source, bytes):
        return {"data": base64.b64encode(source).decode("ascii")}
    return {"path": str(source.absolute())}


@contextmanager
def _asking(
    task: str, request: Mapping[str, Any], name: str, stop: threading.Event | None = None
) -> Iterator[Iterator[dict[str, Any]]]:
    """The answers of a child that does a task of ``office``. Raises UnreadableDocumentError for what it refuses, and
    where it dies, or takes too long."""
    limits = {"cpu_seconds": CPU_SECONDS, "memory_bytes": MEMORY_BYTES}
    asked = {"task": f"leap_core.tasks.documents.office:{task}", **request, **limits}
    with open(os.devnull, "wb") as nowhere, child_for(asked, stdout=subprocess.PIPE, stderr=nowhere) as process:
        timer = threading.Timer(WALL_SECONDS, kill, [process])
        timer.start()

        def answers() -> Iterator[dict[str, Any]]:
            assert process.stdout is not None
            ended = False
            for line in process.stdout:
                answer = json.loads(line)
                if "error" in answer:
                    error = answer["error"]
                    raise UnreadableDocumentError(error["message"].replace("{name}", name), hint=error.get("hint"))
                ended = ended or "result" in answer
                yield answer
            if not ended:
                process.wait()
                raise UnreadableDocumentError(f"{name} cannot be read: it took more time or memory than a document may")

        try:
            with killed_when(stop or threading.Event(), process):
                yield answers()
        finally:
            timer.cancel()


def read_address(url: str) -> Document:
    """The document at a public address of the web, of a page its main part. Raises LeapSerializationError."""
    from urllib.parse import unquote, urlsplit

    from ...conversation.media.fetching import UrlAccess, fetch

    name, data = Path(unquote(urlsplit(url).path)).name or "page", fetch(url, UrlAccess.WEB)
    document = read_document(data, name if "." in name else f"{name}.html")
    return (
        replace(document, pages=(Page(tuple(main_lines(decoded_page(data)))),)) if document.kind == HTML else document
    )


def data_url(data: bytes, kind: str) -> str:
    """An address that holds the data itself."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def parts_of(document: Document, name: str) -> list[dict[str, Any]]:
    """A document as parts of a chat message: its text under its name, and pictures of pages without text. Raises
    LeapSerializationError for one without either."""
    text = document.text.replace("\f", "\n").strip()
    pictures = list(document.pictures(document.blank[:MOST_PICTURES])) if document.blank else []
    if not text and not pictures:
        raise LeapSerializationError(f"{name} has no text")
    parts: list[dict[str, Any]] = [{"type": "text", "text": f"{name}:\n{text}\n"}] if text else []
    for number, picture in pictures:
        url = data_url(picture, "image/jpeg")
        parts += [
            {"type": "text", "text": f"{name}, page {number}:\n"},
            {"type": "image_url", "image_url": {"url": url}},
        ]
    return parts


MOST_PICTURES = 16
"""Pages of one document that a message holds as pictures."""
