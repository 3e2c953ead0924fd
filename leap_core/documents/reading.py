"""The one reader of documents: a file, bytes or an address becomes a Document.

Documents come from strangers, so a child process reads each, within bounds of time, memory and size; what it answers is
read under a bound, too. Only plain text of at most a mebibyte is decoded in this process, where it takes no longer
than a child takes to start. Nothing that a document names is fetched, and no macro is run.
"""

from __future__ import annotations

import base64
import io
import json
import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import LeapSerializationError
from ..system.child import child_for, killed_when
from ..system.dataclass import dataclass
from . import PDF_WITHIN
from .blocks import TABLE, Block, Document, Section, UnreadableDocumentError
from .kinds import EML, HTML, IPYNB, LIBRARIES, PDF, TEXTS, UNITS, kind_by_content, kind_of
from .output import CHARACTERS, DocumentOutput, OutputFull
from .output import SECONDS as OWN_SECONDS
from .places import LostPlace, Place, Places

if TYPE_CHECKING:
    from ..conversation.messages import PagePicture

LARGEST_TEXT, LARGEST_DOCUMENT = 32 * 1024**2, 256 * 1024**2
READ_HERE = 1024**2
"""Bytes of plain text that are decoded in this process."""
SECONDS = 28.0
"""Of one document, and of all documents of one request."""
MEMORY_BYTES = 640 * 1024**2
ANSWER_BYTES = 96 * 1024**2
"""More is no answer of a child that counts what it writes."""
QUICK_PLACES, SLOW_PLACES, QUICK_SECONDS = 4, 2, 3.0
"""Children of one process, and for how long a document is quick."""
PICTURE_SIDE = 1536
"""Pixels of the longer side of a page that is looked at."""
PICTURE_BYTES = 256 * 1024**2
MOST_PICTURES = 16
"""Pages of one document that a message holds as pictures."""
_places = Places(QUICK_PLACES, SLOW_PLACES, QUICK_SECONDS)


@dataclass
class ReadingBudget:
    """What is left to read of the documents of one request: seconds, characters of text, bytes of files."""

    seconds: float = SECONDS
    characters: int = CHARACTERS
    bytes: int = LARGEST_DOCUMENT

    def check(self, name: str, size: int) -> None:
        """Raises UnreadableDocumentError where nothing more of this size may be read."""
        if self.seconds <= 0 or self.characters <= 0 or size > self.bytes:
            raise UnreadableDocumentError(
                f"{name} is not read: the documents of one request have {SECONDS:.0f} seconds, {CHARACTERS:,} "
                f"characters and {LARGEST_DOCUMENT // 1024**2} MiB together"
            )


def read_document(
    source: Path | bytes,
    name: str | None = None,
    *,
    stop: threading.Event | None = None,
    budget: ReadingBudget | None = None,
    main_only: bool = False,
) -> Document:
    """Read a document.

    ``name``: what errors call it; it decides which kind of text a text is. By default the path. ``stop``: once it is
    set, the child is killed and UnreadableDocumentError raised. ``budget``: shared by the documents of one request.
    ``main_only``: of a page that marks its main part that part only. Raises UnreadableDocumentError, or OSError.
    """
    shown = str(source) if name is None and isinstance(source, Path) else name or "the document"
    named = kind_of(Path(name or (source if isinstance(source, Path) else "")))
    budget, stop = budget or ReadingBudget(), stop or threading.Event()
    _check_not_stopped(stop, shown)
    head, size = _head(source, shown)
    kind = kind_by_content(head, named, source, shown)
    most = LARGEST_TEXT if kind in (*TEXTS, HTML, EML, IPYNB) else LARGEST_DOCUMENT
    if size > most:
        raise UnreadableDocumentError(f"{shown} is larger than {most // 1024**2} MiB")
    budget.check(shown, size)
    _check_library(kind, shown)
    budget.bytes -= size
    if kind in TEXTS and size <= READ_HERE:
        document = _read_here(kind, source, shown, budget)
    else:
        request = {"task": "read", "kind": kind, "characters": budget.characters, "main_only": main_only}
        request |= {"seconds": min(budget.seconds, OWN_SECONDS)}
        try:
            document = _read_in_child(kind, request, source, shown, budget, stop)
        except LostPlace:
            document = _read_in_child(kind, request, source, shown, budget, stop, is_slow=True)
    budget.characters -= sum(len(block.text) for section in document.sections for block in section.blocks)
    return replace(document, source=source) if kind == PDF else document


def _read_in_child(
    kind: str,
    request: Mapping[str, Any],
    source: Path | bytes,
    name: str,
    budget: ReadingBudget,
    stop: threading.Event,
    *,
    is_slow: bool = False,
) -> Document:
    with _asking(request, source, name, budget.seconds, stop, is_slow=is_slow) as answers:
        started, lost = time.monotonic(), 0.0
        try:
            return _document(kind, answers)
        except LostPlace:
            lost = time.monotonic() - started  # the time of a reading that begins again does not count
            raise
        finally:
            budget.seconds -= time.monotonic() - started - lost


def _head(source: Path | bytes, name: str) -> tuple[bytes, int]:
    if isinstance(source, bytes):
        return source[:PDF_WITHIN], len(source)
    status = source.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        raise UnreadableDocumentError(f"{name} is not a file")
    with source.open("rb") as file:
        return file.read(PDF_WITHIN), status.st_size


def _check_library(kind: str, name: str) -> None:
    """Raises UnreadableDocumentError where the library for a kind is not installed."""
    from importlib.util import find_spec

    library = LIBRARIES.get(kind)
    if library is None or find_spec(library) is not None:
        return
    hint = f"pip install leap-edge[{PDF if kind == PDF else 'documents'}]"
    if library == "office_oxide":
        hint += " (for macOS, Windows on x64, Linux with glibc 2.34 or musl), or save it as docx or pptx"
    raise UnreadableDocumentError(f"{name}: {kind} needs the library {library.replace('_', '-')}", hint=hint)


def _read_here(kind: str, source: Path | bytes, name: str, budget: ReadingBudget) -> Document:
    from .text import read

    answers: list[dict[str, Any]] = []
    out = DocumentOutput(answers.append, kind, budget.characters)
    try:
        read(io.BytesIO(source if isinstance(source, bytes) else source.read_bytes()), out)
        out.end()
    except OutputFull:
        pass
    except UnreadableDocumentError as error:
        raise UnreadableDocumentError(error.message.replace("{name}", name), hint=error.hint) from None
    return _document(kind, iter(answers))


def _document(kind: str, answers: Iterator[Mapping[str, Any]]) -> Document:
    """The document of what a child answers."""
    sections: list[Section] = []
    blocks: list[Block] = []
    notes: dict[str, None] = {}
    for answer in answers:
        if "section" in answer:
            if sections:
                sections[-1] = replace(sections[-1], blocks=tuple(blocks))
            title, is_scan = answer["section"]
            sections.append(Section(title, is_scan=is_scan))
            blocks = []
        elif "scan" in answer:
            sections[-1] = replace(sections[-1], is_scan=True)
        elif "title" in answer:
            sections[-1] = replace(sections[-1], title=answer["title"])
        elif "blocks" in answer:
            blocks += map(_block, answer["blocks"])
        elif "note" in answer:
            notes[answer["note"]] = None
    if sections:
        sections[-1] = replace(sections[-1], blocks=tuple(blocks))
    return Document(kind, tuple(sections), tuple(notes), UNITS.get(kind, ""))


def _block(fields: Sequence[Any]) -> Block:
    kind, text, level, label, line, *table = fields
    if kind != TABLE:
        return Block(kind, text, level, label, line=line)
    return Block(kind, rows=tuple(map(tuple, table[0])), numbers=tuple(table[1]), line=line)


@contextmanager
def _asking(
    request: Mapping[str, Any],
    source: Path | bytes,
    name: str,
    seconds: float,
    stop: threading.Event,
    *,
    is_slow: bool,
) -> Iterator[Iterator[dict[str, Any]]]:
    """The answers of a child to a request for a document. Raises UnreadableDocumentError for what the child refuses,
    and where it dies, takes too long, or is stopped, and LostPlace."""
    data = source if isinstance(source, bytes) else None
    place = {} if isinstance(source, bytes) else {"path": str(source.absolute())}
    limits = {"cpu_seconds": int(seconds) + 1, "memory_bytes": MEMORY_BYTES}
    asked = {**request, **place, **limits, "task": f"leap_core.documents.child:{request['task']}"}
    with (
        _places.hold(lambda: _check_not_stopped(stop, name), is_slow=is_slow) as held,
        open(os.devnull, "wb") as nowhere,
        child_for(asked, data=data, stdout=subprocess.PIPE, stderr=nowhere) as process,
        killed_when(lambda: stop.is_set() or held.is_lost(), process, seconds) as late,
    ):
        yield _answers(process, name, stop, late, held)


def _answers(
    process: subprocess.Popen[bytes], name: str, stop: threading.Event, late: threading.Event, place: Place
) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    left = ANSWER_BYTES
    while (line := process.stdout.readline(left)) and line.endswith(b"\n"):
        left -= len(line)
        answer = json.loads(line)
        if "error" in answer:
            error = answer["error"]
            if error.get("memory"):
                break
            raise UnreadableDocumentError(error["message"].replace("{name}", name), hint=error.get("hint"))
        if "result" in answer:
            return
        if "jpeg" in answer:
            left = PICTURE_BYTES  # each is taken as it comes
        yield answer
    _check_not_stopped(stop, name)
    if place.was_lost:
        raise LostPlace
    why = f"more than {SECONDS:.0f} seconds" if late.is_set() else "more time or memory than a document may"
    raise UnreadableDocumentError(f"{name} cannot be read: it takes {why}")


def _check_not_stopped(stop: threading.Event, name: str) -> None:
    if stop.is_set():
        raise UnreadableDocumentError(f"{name} was not read: the reading was stopped")


def pictures_of(
    document: Document, numbers: Sequence[int], *, stop: threading.Event | None = None
) -> Iterator[tuple[int, bytes]]:
    """Pages of a PDF as JPEG pictures, by their numbers. Raises UnreadableDocumentError."""
    request = {"task": "draw", "pages": list(numbers), "side": PICTURE_SIDE}
    name = document.source.name if isinstance(document.source, Path) else "the document"
    with _asking(request, document.source, name, SECONDS, stop or threading.Event(), is_slow=True) as answers:
        for answer in answers:
            yield answer["page"], base64.b64decode(answer["jpeg"])


def document_text(source: Path | bytes, name: str | None = None) -> str:
    """The text of a document. Raises UnreadableDocumentError, also for one without text; or OSError."""
    document = read_document(source, name)
    check_has_text(document, name or str(source))
    return document.text


def check_has_text(document: Document, name: str) -> None:
    """Raises UnreadableDocumentError for a document without any text."""
    if document.has_text:
        return
    if document.kind == PDF:
        why = f"{name} has no text: its pages are pictures, or empty"
        raise UnreadableDocumentError(why, hint="a model that sees can read them: name one with -m")
    if document.kind == HTML:
        raise UnreadableDocumentError(f"{name} has no text that a browser would show")
    raise UnreadableDocumentError(f"{name} has no text")


def read_address(url: str, *, allow_private: bool = False, stop: threading.Event | None = None) -> Document:
    """The document at a web address. ``allow_private``: a person typed it, so it may be one of this machine or its
    networks. Raises LeapSerializationError."""
    from urllib.parse import unquote, urlsplit

    from ..conversation.media.fetching import UrlAccess, fetch

    name = Path(unquote(urlsplit(url).path)).name or "page"
    data = fetch(url, UrlAccess.TYPED if allow_private else UrlAccess.WEB)
    return read_document(data, name if "." in name else f"{name}.html", stop=stop, main_only=True)


def data_url(data: bytes, kind: str) -> str:
    """An address that holds the data itself."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def parts_of(document: Document, name: str, *, stop: threading.Event | None = None) -> list[dict[str, Any]]:
    """A document as parts of a chat message: its text under its name, and pictures of pages that are scans. Raises
    LeapSerializationError for one without either."""
    pictures = page_pictures(document, name, stop=stop)
    if not document.has_text and not pictures:
        raise LeapSerializationError(f"{name} has no text")
    text = document.text.replace("\f", "\n").strip()
    return [{"type": "text", "text": f"{name}:\n{text}\n"}, *(picture.to_json() for picture in pictures)]


def page_pictures(document: Document, name: str, *, stop: threading.Event | None = None) -> list[PagePicture]:
    """The pages of a document that are pictures, at most MOST_PICTURES of them. Raises UnreadableDocumentError."""
    numbers = document.blank[:MOST_PICTURES]
    if not numbers:
        return []
    from ..conversation.messages import PagePicture

    drawn = pictures_of(document, numbers, stop=stop)
    return [PagePicture(picture, name, number, is_needed=not document.has_text) for number, picture in drawn]


def notes_of(document: Document) -> list[str]:
    """What a model is not given of a document, whether it sees or not: a sentence each."""
    more = document.blank[MOST_PICTURES:]
    if not more:
        return list(document.notes)
    from ..conversation.page_pictures import numbers_text

    pages = f"{'page' if len(more) == 1 else 'pages'} {numbers_text(more)}"
    return [*document.notes, f"{pages}: left out, for at most {MOST_PICTURES} pages are sent as pictures"]
