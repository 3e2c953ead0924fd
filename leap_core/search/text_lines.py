"""A line of a document's text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextLine:
    """``number``: of the line in the file, of the page in a PDF; counted from 1."""

    number: int
    text: str
