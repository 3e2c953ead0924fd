"""Mail: who, when, what about, all texts of a message, forwarded messages, and what is attached.

The standard library's parser of headers takes gigabytes for a hostile Subject, and its parser of parts keeps all of
them. Here parts are slices of the message, found by their boundaries, and a header has a length.
"""

from __future__ import annotations

import binascii
import io
import quopri
import re
from email.errors import HeaderParseError
from email.header import decode_header
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote_to_bytes

from .blocks import HEADING, MARKER, Block, UnreadableDocumentError
from .html import decoded_page, write_page
from .kinds import MODULES, TEXTS, kind_by_content, kind_of
from .output import DocumentOutput, OutputFull
from .text import decode

SHOWN = ("From", "To", "Cc", "Date", "Subject")
LONGEST_HEADER = 20_000
MOST_HEADERS = 1000
MOST_PARTS = 1000
DEEPEST = 20
PARAMETER = re.compile(r";\s*([\w*!#$&^.+-]+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|[^\s;]*)")
CALENDAR = re.compile(rb"\s*text/calendar\b", re.IGNORECASE)
MAILBOX = re.compile(rb"(?:\A|\n\r?\n)From \S[^\n]*\d\d:\d\d[^\n]*\n")
"""Between the messages of a mailbox."""
ENCODINGS = (b"", b"7bit", b"8bit", b"binary", b"base64", b"quoted-printable")
DIGITS = re.compile(rb"[A-Za-z0-9+/\s]*\Z")
FILLER = re.compile(rb"[^A-Za-z0-9+/]")
STYLES = ("text/css", "text/javascript", "application/javascript")
"""Parts of a saved web page (mht) that nobody reads."""
ENCRYPTED = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """A message, with those within it."""
    data, charset = file.read(), ""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:100]:  # the whole message is in UTF-16
        data, charset = decode(data)[0].encode("utf-8", "replace"), "utf-8"
    writer = _PartWriter(out, charset)
    for message in MAILBOX.split(data)[1:] if MAILBOX.match(data) else [data]:
        headers, _ = _split(message)
        if not headers:
            raise UnreadableDocumentError("{name} is not a message: it has no headers")
        out.section(_words(headers.get("subject", b"")))
        writer.message(message, 0)


class _PartWriter:
    """Writes parts of a message, and counts them. ``charset``: of parts that are not encoded, whatever they declare."""

    def __init__(self, out: DocumentOutput, charset: str = "") -> None:
        self._out, self._parts, self._charset = out, 0, charset

    def message(self, data: bytes, depth: int) -> None:
        """The headers of a message, and its content."""
        headers, _ = _split(data)
        lines = [f"{each}: {words}" for each in SHOWN if (words := _words(headers.get(each.lower(), b"")))]
        self._out.text("\n".join(lines))
        self.part(data, depth)

    def part(self, data: bytes, depth: int, *, texts: bool = True) -> None:
        """A part with what is in it. Without ``texts`` only what is attached to it is named."""
        if not self._may_go_on(depth):
            return
        headers, body = _split(data)
        kind, parameters = _parameters(headers.get("content-type", b"text/plain"))
        disposition, more = _parameters(headers.get("content-disposition", b""))
        name = _words((more.get("filename") or parameters.get("name") or "").encode("utf-8", "replace"))
        if kind in STYLES and not name:
            return
        if (encoding := headers.get("content-transfer-encoding", b"").strip().lower()) not in ENCODINGS:
            self._out.note(f"the transfer encoding {encoding[:40].decode('ascii', 'replace')} is not read")
        if kind in ENCRYPTED and parameters.get("smime-type") != "signed-data":
            self._out.note("the message is encrypted: its text is not read")
        if kind.startswith("multipart/"):
            self._parts_of(kind, body, parameters.get("boundary", ""), depth, texts)
        elif kind == "message/rfc822":
            self._out.add(Block(MARKER, "forwarded message"))
            self.message(_decoded(body, headers), depth + 1)
        elif kind.startswith(("text/", "message/")) and disposition != "attachment" and (texts or not name):
            if texts:
                own = "" if encoding in (b"base64", b"quoted-printable") else self._charset
                self._text(kind, _decoded(body, headers), own or parameters.get("charset", ""))
        else:
            location = _words(headers.get("content-location", b"")).partition("?")[0].rpartition("/")[2]
            self._attached(name or location or kind, _decoded(body, headers), is_text=kind.startswith("text/"))

    def _may_go_on(self, depth: int) -> bool:
        self._parts += 1
        if self._parts <= MOST_PARTS and depth <= DEEPEST:
            return True
        much = f"{MOST_PARTS} parts" if depth <= DEEPEST else f"parts in parts, {DEEPEST} deep"
        self._out.note(f"the message has more than {much}: the rest is not read")
        return False

    def _parts_of(self, kind: str, body: bytes, boundary: str, depth: int, texts: bool) -> None:
        """The parts; of alternatives the first that has text, plain text before HTML, and an invitation beside it."""
        parts = _between(body, boundary) if boundary else [body]
        if kind != "multipart/alternative":
            for part in parts:
                self.part(part, depth + 1, texts=texts)
            return
        chosen = next((part for want in ("text/plain", "") for part in parts if _has_text(part, want)), None)
        for part in parts:
            is_read = part is chosen or CALENDAR.match(_split(part)[0].get("content-type", b"")) is not None
            self.part(part, depth + 1, texts=texts and is_read)

    def _text(self, kind: str, data: bytes, charset: str) -> None:
        if kind == "text/html" and not charset:
            return write_page(decoded_page(data, self._out), self._out)
        text, note = decode(data, charset if charset.lower() != "us-ascii" else "")
        if note:
            self._out.note(note)
        if kind == "text/html":
            return write_page(text, self._out)
        self._out.text(text.replace("\r\n", "\n").strip("\n").rstrip())

    def _attached(self, name: str, data: bytes, *, is_text: bool) -> None:
        """Name an attachment, and read it where it is a document."""
        self._out.add(Block(MARKER, f"attached: {name}"))
        named = kind_of(Path(name))
        try:
            kind = kind_by_content(data[:1024], named, data, name)
            if named is None and kind in TEXTS and not is_text:
                return
            import_module(f"leap_core.documents.{MODULES[kind]}").read(io.BytesIO(data), _Within(self._out, kind, name))
        except (OutputFull, MemoryError):
            raise
        except BaseException as error:  # of damaged files libraries raise nearly anything
            why = " ".join(str(error).split()).replace("{name}", "it")[:200]
            self._out.note(f"the attached {name} is not read: {why}")


class _Within:
    """The output for a document within a message: its pages begin no sections."""

    def __init__(self, out: DocumentOutput, kind: str, name: str) -> None:
        self._out, self.kind, self._name, self.main_only, self.expected = out, kind, name, False, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def section(self, title: str = "", *, is_scan: bool = False) -> None:
        self._out.end_table()
        if title:
            self._out.add(Block(HEADING, title, 2))
        if is_scan:
            self.scan()

    def scan(self) -> None:
        self._out.note(f"pages of the attached {self._name} are pictures: they are not read")


def _split(data: bytes) -> tuple[dict[str, bytes], bytes]:
    """The headers by their names in lower case, each the first of its name, and the body."""
    end = re.compile(rb"\r?\n\r?\n").search(data)
    head, body = (data, b"") if end is None else (data[: end.start()], data[end.end() :])
    if head[:1] in (b"\r", b"\n"):
        return {}, data.lstrip(b"\r\n")
    headers: dict[str, bytes] = {}
    for line in re.split(rb"\r?\n(?![ \t])", head, maxsplit=MOST_HEADERS)[:MOST_HEADERS]:
        name, colon, value = line[: LONGEST_HEADER + 100].partition(b":")
        if colon and name.isascii() and not name.strip().count(b" "):
            headers.setdefault(name.strip().lower().decode(), re.sub(rb"\r?\n", b"", value.strip())[:LONGEST_HEADER])
    return headers, body


def _between(body: bytes, boundary: str) -> list[bytes]:
    """The parts between lines of a boundary, MOST_PARTS and one at most."""
    mark = re.escape(boundary.encode("utf-8", "surrogateescape"))
    found: list[bytes] = []
    start = None
    for line in re.finditer(rb"^--" + mark + rb"(--)?[ \t]*\r?$", body, re.MULTILINE):
        if start is not None:
            found.append(body[start : line.start()].removesuffix(b"\n").removesuffix(b"\r"))
        start = line.end() + 1
        if line[1] or len(found) > MOST_PARTS:
            return found
    return found if start is None else [*found, body[start:]]


def _has_text(part: bytes, kind: str, depth: int = 0) -> bool:
    """Whether there is a text of this kind in a part; of any kind where that is empty."""
    headers, body = _split(part)
    own, parameters = _parameters(headers.get("content-type", b"text/plain"))
    if own.startswith("multipart/") and depth < 4:
        return any(_has_text(each, kind, depth + 1) for each in _between(body, parameters.get("boundary", "")))
    return own.startswith(kind or "text/") and bool(_decoded(body, headers).strip(b" \t\r\n\xa0"))


def _parameters(header: bytes) -> tuple[str, dict[str, str]]:
    """A header's value in lower case, and its parameters; those in pieces (RFC 2231) are joined."""
    text = header.decode("utf-8", "surrogateescape")
    found: dict[str, bytes] = {}
    charsets: dict[str, str] = {}
    for match in PARAMETER.finditer(text):
        name, value = match[1].lower(), match[2].strip('"').replace("\\", "")
        base, star, _ = name.partition("*")
        if name.endswith("*") and base not in found and value.count("'") > 1:
            charsets[base], _, value = value.split("'", 2)
        piece = unquote_to_bytes(value) if name.endswith("*") else value.encode("utf-8", "surrogateescape")
        found[base] = (found.get(base, b"") if star else b"") + piece
    parameters = {name: decode(value, charsets.get(name, ""))[0] for name, value in found.items()}
    return text.partition(";")[0].strip().lower(), parameters


def _words(header: bytes) -> str:
    """A header's text, its encoded words decoded."""
    text, _ = decode(header)
    if "=?" in text:
        try:
            parts = decode_header(text)
        except (HeaderParseError, ValueError):
            return text
        text = "".join(decode(part, charset or "")[0] if isinstance(part, bytes) else part for part, charset in parts)
    return " ".join(text.split())


def _decoded(body: bytes, headers: dict[str, bytes]) -> bytes:
    encoding = headers.get("content-transfer-encoding", b"").strip().lower()
    if encoding == b"base64":
        pieces: list[bytes] = []
        for piece in re.split(rb"=+", body):  # some programs encode pieces, each with an end of its own
            if pieces and not DIGITS.match(piece):
                break  # what a mailing list adds below
            digits = FILLER.sub(b"", piece)
            digits = digits[: -1 if len(digits) % 4 == 1 else None]
            pieces.append(binascii.a2b_base64(digits + b"=" * (-len(digits) % 4)))
        return b"".join(pieces)
    return quopri.decodestring(body) if encoding == b"quoted-printable" else body
