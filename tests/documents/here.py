"""Documents read in this process, as the child reads them."""

from __future__ import annotations

import io
from contextlib import suppress
from importlib import import_module

from leap_core.documents.blocks import Document
from leap_core.documents.kinds import MODULES
from leap_core.documents.output import DocumentOutput, OutputFull
from leap_core.documents.reading import _document


def read_here(kind: str, data: bytes, *, main_only: bool = False, characters: int = 8_000_000) -> Document:
    answers: list[dict] = []
    out = DocumentOutput(answers.append, kind, characters, main_only=main_only)
    with suppress(OutputFull):
        import_module(f"leap_core.documents.{MODULES[kind]}").read(io.BytesIO(data), out)
        out.end()
    return _document(kind, iter(answers))
