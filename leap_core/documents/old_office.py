"""doc and ppt, which offices wrote before 2007, by office-oxide, as HTML."""

from __future__ import annotations

import io
from typing import BinaryIO

from . import html
from .output import Output


def read(file: BinaryIO, out: Output) -> None:
    """Write the text of a doc or ppt."""
    from office_oxide import Document

    with Document.from_bytes(file.read(), out.kind) as document:
        html.read(io.BytesIO(f'<meta charset="utf-8">{document.to_html()}'.encode()), out)
