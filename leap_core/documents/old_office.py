"""doc and ppt, which offices wrote before 2007, by office-oxide, as HTML."""

from __future__ import annotations

import io
import re
from typing import BinaryIO

from . import html
from .kinds import DOC
from .output import DocumentOutput


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """Write the text of a doc or ppt, whose lists come without the kind of their marks."""
    from office_oxide import Document

    with Document.from_bytes(file.read(), out.kind) as document:
        page = re.sub(r"<(/?)ol\b", r"<\1ul", document.to_html())
        html.read(io.BytesIO(f'<meta charset="utf-8">{page}'.encode()), out)
    lost = "numbers of lists, marks of footnotes" if out.kind == DOC else "lists, tables, charts"
    out.note(f"{lost} and equations of {out.kind} are not read: save it as {out.kind}x to keep them")
