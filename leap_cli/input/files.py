"""Files that go into a prompt: texts, pictures, sound, documents.

report.txt:
    ```
    the text of the file
    ```

The fence is longer than every run of backticks in the text, so that no file can end it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leap_core.system.dataclass import dataclass

from ..framework.arguments import reading
from ..framework.environment import Environment
from ..framework.output import Output, one_line

if TYPE_CHECKING:
    from leap_core.conversation.media.audio import Converted
    from leap_core.conversation.messages import Audio, Image, PagePicture
    from leap_core.documents.blocks import Document
    from leap_core.errors import LeapError

MOST_BYTES = 16 * 1024 * 1024
"""A text for a prompt has at most these."""


def attach(name: str, env: Environment) -> str:
    """The part of a prompt that a file becomes: its text, a document's too, or an address's. Raises UsageError for what
    is no text. Pages that are images are not included; see ``pictures_in``."""
    if (kind := kind_of_file(name, env)) is not None:
        what, flag = ("picture", "--image") if kind == "image" else ("sound", "--audio")
        raise click.UsageError(f"{one_line(name)} is a {what}: {flag} or, in leap chat, /attach sends it")
    if name and os.path.isdir(env.cwd / name):
        how = f"`leap index make NAME {name}` makes its files searchable, and `leap ask NAME` answers from them"
        raise click.UsageError(f"cannot read {name}: Is a directory; {how}")
    whole = read_file_text(name, env)
    if whole.problem is not None and whole.scan is None:
        raise whole.problem
    if whole.document is not None:
        from leap_core.documents.reading import notes_of

        _say(notes_of(whole.document), name, env)
    text = whole.text.replace("\f", "").rstrip("\r\n")
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{one_line(name)}:\n{fence}\n{text}\n{fence}"


def pictures_in(names: Sequence[str], env: Environment) -> list[PagePicture]:
    """The pages of these documents that are pictures, up to MOST_PICTURES of each. Raises UsageError."""
    if not names:
        return []
    from leap_core.documents.reading import page_pictures

    found = []
    for name in names:
        scan = None if kind_of_file(name, env) else read_file_text(name, env).scan
        found += [] if scan is None else page_pictures(scan, one_line(name))
    return found


def kind_of_file(name: str, env: Environment) -> str | None:
    """``"image"`` or ``"audio"`` where the file begins like one; None for all else: also for what cannot be read, and
    for a pipe, which gives its beginning only once."""
    from leap_core.conversation.media.audio import SNIFFED_BYTES, kind_of_medium

    try:
        if not (env.cwd / name).is_file():
            return None
        with (env.cwd / name).open("rb") as file:
            return kind_of_medium(file.read(SNIFFED_BYTES))
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None


def read_text_file(name: str, env: Environment) -> str:
    """The text of a file that is no document, or of a pipe that has a name, in any charset. Raises UsageError naming
    it, and what is wrong with it."""
    from leap_core.documents import is_document
    from leap_core.documents.text import decode

    _check_is_file(name)
    with reading(name), (env.cwd / name).open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    check_size(data, name)
    if is_document(data):
        raise click.UsageError(f"{name} is a document, and only plain text is read here; leap -f FILE reads documents")
    text, note = decode(data)
    if "\0" in text:
        raise click.UsageError(f"{name} is not text")
    if note:
        Output(env).note(f"{one_line(name)}: {note}")
    return text


def _check_is_file(name: str) -> None:
    if name in ("", "-"):
        why = "a '-' among the words of the prompt says where standard input belongs" if name else "its name is empty"
        raise click.UsageError(f"{name!r} is no file: {why}")


def check_size(data: bytes, source: str) -> None:
    """More than any model could read is a usage error that names the source."""
    if len(data) > MOST_BYTES:
        raise too_large(source)


def too_large(source: str) -> click.UsageError:
    """The error for a text that no model could read."""
    return click.UsageError(f"{source} is larger than {MOST_BYTES // 1024**2} MiB, which no model could read")


def decode_text(data: bytes, source: str) -> str:
    """The text of lines that a program wrote, which is UTF-8, a byte order mark dropped; anything else is a usage error
    that names the source."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{source} is not UTF-8 text (byte {error.start + 1})") from None


MOST_MEDIA_BYTES = 512 * 1024 * 1024
"""No larger file is read at all; pictures and pieces of sound have narrower limits of their own."""
STDIN = "-"


def read_image(name: str, env: Environment, output: Output) -> Image:
    """The picture in a file of any common format, or with ``-`` on standard input. Raises UsageError."""
    from leap_core.conversation.media.images import as_jpeg
    from leap_core.conversation.messages import Image

    return Image(_converted(name, read_bytes(name, env), as_jpeg, output), name=source_name(name))


def read_audio(name: str, env: Environment, output: Output) -> Audio:
    """The sound in a file of any common format, or with ``-`` on standard input. Raises UsageError."""
    from leap_core.conversation.media.audio import as_wav
    from leap_core.conversation.messages import Audio

    return Audio(_converted(name, read_bytes(name, env), as_wav, output), name=source_name(name))


def read_bytes(name: str, env: Environment) -> bytes:
    """All of a file, or with ``-`` of standard input. Raises UsageError naming it."""
    source = source_name(name)
    with reading(source):
        if name == STDIN:
            data = env.read_stdin(MOST_MEDIA_BYTES + 1)
        else:
            with (env.cwd / name).open("rb") as file:
                data = file.read(MOST_MEDIA_BYTES + 1)
    if len(data) > MOST_MEDIA_BYTES:
        raise click.UsageError(f"{source} is larger than {MOST_MEDIA_BYTES // 1024**2} MiB")
    return data


def source_name(name: str) -> str:
    """What a message calls the source."""
    return "standard input" if name == STDIN else one_line(name)


def _converted(name: str, data: bytes, convert: Callable[[bytes], Converted], output: Output) -> bytes:
    from leap_core.conversation.media.audio import naming_source

    with naming_source(source_name(name)):
        converted = convert(data)
    if converted.changes:
        output.note(f"{source_name(name)}: {converted.changes}")
    return converted.data


@dataclass(frozen=True)
class FileText:
    """``problem``: why there is no text. ``document``: what the text was read from, where that is a file."""

    text: str
    problem: LeapError | None = None
    document: Document | None = None

    @property
    def is_extracted(self) -> bool:
        """Whether the text is not what is in the file, but a document's."""
        from leap_core.documents.kinds import TEXTS

        return self.problem is not None or (self.document is not None and self.document.kind not in TEXTS)

    @property
    def scan(self) -> Document | None:
        """The document, where pages of it are pictures."""
        return self.document if self.document is not None and self.document.blank else None


def read_file_text(name: str, env: Environment, *, is_typed: bool = True) -> FileText:
    """The text of a document of any kind: of a file, a pipe that has a name, or an address. Raises UsageError for one
    that cannot be opened; a document without text in it, or a damaged one, is a problem of its own. ``is_typed``: the
    user typed an address, which may be a private one."""
    from leap_core.documents import is_address
    from leap_core.documents.blocks import UnreadableDocumentError
    from leap_core.documents.kinds import TEXTS
    from leap_core.documents.reading import check_has_text
    from leap_core.errors import LeapSerializationError

    _check_is_file(name)
    try:
        document, text = _document(name, env, is_typed)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise click.UsageError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    except UnreadableDocumentError as error:
        if not is_address(name) and not _is_document_file(env.cwd / name):
            raise click.UsageError(error.message) from None
        return FileText("", error)
    except LeapSerializationError as error:
        raise click.UsageError(f"{error.message} ({error.hint})" if error.hint else error.message) from None
    try:
        if document.kind not in TEXTS:
            check_has_text(document, name)
    except UnreadableDocumentError as error:
        return FileText("", error, document)
    return FileText(text, document=document)


def _is_document_file(path: Path) -> bool:
    """Whether a file is meant as a document: by its name, or as it begins."""
    from leap_core.documents import PDF_WITHIN, is_document
    from leap_core.documents.kinds import is_extracted

    with path.open("rb") as file:
        return is_extracted(path) or is_document(file.read(PDF_WITHIN))


def say_notes(document: Document | None, name: str, env: Environment) -> None:
    """Say on standard error what of a document could not be read."""
    _say(() if document is None else document.notes, name, env)


def _say(notes: Sequence[str], name: str, env: Environment) -> None:
    for note in notes:
        Output(env).note(f"{one_line(name)}: {note}")


def _document(name: str, env: Environment, is_typed: bool) -> tuple[Document, str]:
    """The document that a name means, and its text; of a text each character that is in the file. One is read once,
    however often it is asked for."""
    from leap_core.documents import is_address
    from leap_core.documents.kinds import TEXTS

    if is_address(name):
        return _document_of(name, None, (is_typed,))
    path = env.cwd / name
    status = path.stat()
    found = _document_of(name, path, (status.st_ino, status.st_size, status.st_mtime_ns))
    if status.st_size > MOST_BYTES and found[0].kind in TEXTS:
        raise too_large(name)
    return found


@lru_cache(maxsize=8)
def _document_of(name: str, path: Path | None, version: tuple[int, ...]) -> tuple[Document, str]:
    from leap_core.documents.kinds import TEXTS
    from leap_core.documents.reading import read_address, read_document
    from leap_core.documents.text import decode

    if path is None:
        document = read_address(name, allow_private=bool(version[0]))
        return document, document.text
    if path.is_file():
        document = read_document(path, name)
        return document, decode(path.read_bytes())[0] if document.kind in TEXTS else document.text
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    check_size(data, name)
    document = read_document(data, name)
    return document, decode(data)[0] if document.kind in TEXTS else document.text
