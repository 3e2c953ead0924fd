"""The tasks that run in the child: read a document, draw pages of a PDF."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from .blocks import UnreadableDocumentError
from .kinds import MODULES
from .output import DocumentOutput, OutputFull

Answer = Callable[[Mapping[str, Any]], None]


def read(request: Mapping[str, Any], answer: Answer) -> None:
    """Read a document of this ``kind``. Raises UnreadableDocumentError; ``{name}`` in it represents the document."""
    kind = request["kind"]
    out = DocumentOutput(
        answer, kind, request["characters"], main_only=request["main_only"], seconds=request["seconds"]
    )
    try:
        with opened(request) as file:
            import_module(f"leap_core.documents.{MODULES[kind]}").read(file, out)
        out.end()
    except OutputFull:
        return
    except (UnreadableDocumentError, OSError, MemoryError):
        raise
    except BaseException as error:  # of damaged files libraries raise nearly anything; a panic of Rust is no Exception
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnreadableDocumentError(f"{{name}} cannot be read as {kind.upper()}: {why}") from None


def draw(request: Mapping[str, Any], answer: Answer) -> None:
    """Answer each of these pages of a PDF as a JPEG."""
    from .pdf import draw_pages

    with opened(request) as file:
        draw_pages(file, request["pages"], request["side"], answer)


def opened(request: Mapping[str, Any]) -> BinaryIO:
    """The document: what came after the request, else the file at its path."""
    return io.BytesIO(request["data"]) if "data" in request else Path(request["path"]).open("rb")
