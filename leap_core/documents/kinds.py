"""The kinds of documents: by content, texts by name; the module that reads each, and the library it needs."""

from __future__ import annotations

import io
import mmap
import re
import zipfile
import zlib
from pathlib import Path

from . import OLD_OFFICE
from .blocks import UnreadableDocumentError

TEXT, MARKDOWN, CODE, HTML, PDF = "text", "markdown", "code", "html", "pdf"
DOCX, XLSX, PPTX, EPUB, EML, IPYNB = "docx", "xlsx", "pptx", "epub", "eml", "ipynb"
ODT, ODS, ODP, RTF = "odt", "ods", "odp", "rtf"
DOC, XLS, PPT, XLSB = "doc", "xls", "ppt", "xlsb"
WORD_XML, EXCEL_XML = "word xml", "excel xml"
KINDS = {
    TEXT: ("txt", "text", "rst", "log", "csv", "tsv", "org", "adoc", "tex", "srt", "vtt"),
    MARKDOWN: ("md", "markdown", "mdx"),
    HTML: ("html", "htm", "xhtml"),
    PDF: ("pdf",),
    DOCX: ("docx", "docm", "dotx"),
    XLSX: ("xlsx", "xlsm", "xltx"),
    PPTX: ("pptx", "pptm", "ppsx"),
    DOC: ("doc", "dot"),
    XLS: ("xls", "xlt"),
    XLSB: ("xlsb",),
    PPT: ("ppt", "pps"),
    ODT: ("odt", "ott"),
    ODS: ("ods", "ots"),
    ODP: ("odp", "otp"),
    RTF: ("rtf",),
    EPUB: ("epub",),
    EML: ("eml", "mht", "mhtml"),
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
MODULES = {
    **dict.fromkeys(TEXTS, "text"),
    HTML: "html",
    EML: "mail",
    EPUB: "epub",
    IPYNB: "notebook",
    RTF: "rtf",
    PDF: "pdf",
    DOCX: "word",
    PPTX: "slides",
    **dict.fromkeys((DOC, PPT), "old_office"),
    **dict.fromkeys((WORD_XML, EXCEL_XML), "office_xml"),
    **dict.fromkeys((XLSX, XLSB, XLS), "sheets"),
    **dict.fromkeys((ODT, ODS, ODP), "opendocument"),
}
"""The module of this package whose ``read(file, out)`` reads a kind."""
LIBRARIES = {
    PDF: "pypdfium2",
    **dict.fromkeys((DOC, PPT), "office_oxide"),
    **dict.fromkeys((XLSB, XLS), "python_calamine"),
}
UNITS = {
    PDF: "page",
    EPUB: "chapter",
    **dict.fromkeys((PPTX, PPT, ODP), "slide"),
    **dict.fromkeys((XLSX, XLSB, XLS, ODS, EXCEL_XML), "sheet"),
}
"""What the sections of a kind are called."""

LONGEST_MANIFEST = 1024**2
MOST_UNPACKED = 1024**3
MOST_MEMBERS = 20_000
OPEN_DOCUMENTS = {b"text": ODT, b"spreadsheet": ODS, b"presentation": ODP}
"""What archives say that they are, also for templates and pages of the web."""
PACKED = {"xl/workbook.bin": XLSB, "word/": DOCX, "xl/": XLSX, "ppt/": PPTX, "META-INF/container.xml": EPUB}
"""How names of members begin in archives that are documents."""
OLD_STREAMS = {"EncryptedPackage": None, "WordDocument": DOC, "Workbook": XLS, "Book": XLS, "PowerPoint Document": PPT}
"""Names of streams in a compound file."""
TEXT_KINDS = {
    EXCEL_XML: rb"\s*<\?xml.{0,600}?(progid=.Excel\.Sheet|<(\w+:)?Workbook\b[^>]*office:spreadsheet)",
    WORD_XML: rb"\s*<\?xml.{0,600}?(progid=.Word\.Document|<\w+:wordDocument\b|<pkg:package\b)",
    HTML: rb"(<\?xml[^>]*>|<!--((?!-->).){0,500}-->|\s)*<(!doctype html|html|head|body|meta|title|style|table|div)\b",
    EML: rb"(?=.*^(mime-version|content-type):)[\w-]{1,40}:",
}
"""How the text begins that programs write under names of other formats."""
NAMED_AS_TEXT = (DOC, XLS, XLSB, PPT, RTF)
"""Names that programs give plain text to, and tables of text."""


def kind_of(path: Path) -> str | None:
    """The kind of a file by its name; None for a file that is not indexed."""
    ending = path.suffix.lower().lstrip(".")
    return KIND_OF.get(ending) or (NAMES.get(path.name.lower()) if not ending else None)


def is_extracted(path: Path) -> bool:
    """Whether a file's text differs from its content, as far as its name says."""
    return (kind_of(path) or TEXT) not in TEXTS


def kind_by_content(head: bytes, named: str | None, source: Path | bytes, name: str) -> str:
    """The kind of a document from its first bytes; of texts from its name. Raises UnreadableDocumentError."""
    if b"%PDF-" in head:
        return PDF
    if head.startswith(OLD_OFFICE):
        return _old_kind(source, name)
    if head.startswith(b"PK\x03\x04"):
        return _packed_kind(source, name)
    if head.startswith(b"{\\rtf"):
        return RTF
    return _text_kind(head, named, name)


def _text_kind(head: bytes, named: str | None, name: str) -> str:
    """The kind of what begins like a text. Raises UnreadableDocumentError where it cannot be what its name says."""
    text = head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    flags = re.IGNORECASE | re.DOTALL | re.MULTILINE
    found = next((kind for kind, begins in TEXT_KINDS.items() if re.match(begins, text, flags)), None)
    if found in (EXCEL_XML, WORD_XML) and named != HTML:
        return found
    if found is not None and (named is None or named not in (*TEXTS, HTML, EML, IPYNB)):
        return found
    if found == EML and named == HTML:
        return EML
    if named in NAMED_AS_TEXT and not any(byte < 9 or 13 < byte < 27 for byte in text):
        return TEXT
    if named is not None and named not in (*TEXTS, HTML, EML, IPYNB):
        raise UnreadableDocumentError(f"{name} is not {named.upper() if named == PDF else named}, despite its name")
    return named or TEXT


def _old_kind(source: Path | bytes, name: str) -> str:
    """The kind of a compound file, by the names of its streams."""
    if isinstance(source, bytes):
        kind = _stream_kind(source)
    else:
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            kind = _stream_kind(content)
    if kind is None:
        raise UnreadableDocumentError(f"{name} is encrypted", hint="save it without a password")
    if not kind:
        why = f"{name} is a compound file (an Outlook message or another program's), which leap does not read"
        raise UnreadableDocumentError(why, hint="save it as eml, docx, xlsx, pptx or PDF")
    return kind


def _stream_kind(content: bytes | mmap.mmap) -> str | None:
    for stream, kind in OLD_STREAMS.items():
        if content.find(f"{stream}\0".encode("utf-16-le")) >= 0:
            return kind
    return ""


def _packed_kind(source: Path | bytes, name: str) -> str:
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
    mime = re.search(rb"opendocument\.(\w+)", said.strip() or listed)
    kind = OPEN_DOCUMENTS.get(mime[1]) if mime is not None else None
    starts = (kind for start, kind in PACKED.items() if any(each.startswith(start) for each in names))
    kind = kind or next(starts, None)
    if kind is None:
        raise UnreadableDocumentError(f"{name} is an archive, and no document that leap reads")
    return kind
