"""The text of a PDF's pages."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from ..errors import LeapError

HEADER, HEADER_WITHIN = b"%PDF-", 1024
BROKEN = re.compile("[\x00\f\ud800-\udfff]")
"""What no text holds, and a page must not, because a form feed ends it."""


class UnreadableDocumentError(LeapError):
    """A file that cannot be read: not text, too large, or damaged."""


def pdf_pages(path: Path) -> list[str]:
    """The text of each page. Raises UnreadableDocumentError, or OSError."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, FileNotDecryptedError, WrongPasswordError
    except ImportError:
        raise UnreadableDocumentError(f"{path}: PDF needs a library", hint="pip install leap-edge[pdf]") from None
    with path.open("rb") as file:
        if HEADER not in file.read(HEADER_WITHIN):
            raise UnreadableDocumentError(f"{path} is no PDF, whatever its name says")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what is wrong with a file is reported once, here
    try:
        return [BROKEN.sub("\ufffd", page.extract_text()) for page in PdfReader(path).pages]
    except OSError:
        raise
    except (FileNotDecryptedError, WrongPasswordError):
        raise UnreadableDocumentError(
            f"{path} is encrypted, and opens with a password only", hint="take the password off, with qpdf --decrypt"
        ) from None
    except DependencyError as error:
        raise UnreadableDocumentError(f"{path} is encrypted: {error}", hint="pip install cryptography") from None
    except Exception as error:  # of damaged files it raises nearly anything
        why = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableDocumentError(f"{path} cannot be read as PDF: {why}") from None
