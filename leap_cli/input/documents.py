"""FILEs of tasks: texts as they are, and the text of PDF and HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..framework.environment import Environment
from .text_files import MOST_BYTES, read_text_file

if TYPE_CHECKING:
    from leap_core.errors import LeapError


@dataclass(frozen=True)
class FileText:
    """``is_extracted``: the file is a PDF or HTML, and the text is not what is in it. ``problem``: why there is no
    text."""

    text: str
    is_extracted: bool = False
    problem: LeapError | None = None


def read_file_text(name: str, env: Environment) -> FileText:
    """The text of a file. Raises UsageError for one that cannot be opened, and for what is no text; a document without
    text in it, or a damaged one, is a problem of its own."""
    from leap_core.search.documents import document_text, is_extracted
    from leap_core.search.pdf_text import UnreadableDocumentError

    path = env.cwd / name
    if not is_extracted(path) or not path.is_file():
        return FileText(read_text_file(name, env))
    try:
        text = document_text(path)
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror or error}") from None
    except UnreadableDocumentError as error:
        error.message = error.message.replace(str(path), name, 1)
        return FileText("", True, error)
    if len(text) > MOST_BYTES:
        return FileText(
            "", True, UnreadableDocumentError(f"the text of {name} is larger than {MOST_BYTES // 1024**2} MiB")
        )
    return FileText(text, True)
