"""Notebooks: texts as they are, code in fences, and what the code gave."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any, BinaryIO

from .blocks import CODE, MARKER, PICTURE, Block, UnreadableDocumentError
from .html import write_page
from .output import DocumentOutput

PRINTED = ("text/plain", "text", "text/markdown", "text/latex")
COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """The cells in their order (nbformat 3 and 4)."""
    try:
        notebook = json.load(io.TextIOWrapper(file, "utf-8-sig", "replace"))
        sheets = [notebook] if "cells" in notebook else notebook["worksheets"]
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        language = (notebook.get("metadata") or {}).get("language_info", {}).get("name", "")
        for cell in cells:
            source = _joined(cell.get("source", cell.get("input")))
            if cell.get("cell_type") != "code":
                out.text("#" * min(int(cell.get("level") or 1), 6) + " " + source if "level" in cell else source)
                continue
            out.add(Block(CODE, source, label=str(language)))
            for output in cell.get("outputs") or ():
                _output(output, out)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableDocumentError(f"{{name}} is no notebook: {error or type(error).__name__}") from None


def _output(output: Mapping[str, Any], out: DocumentOutput) -> None:
    data = output.get("data") or output
    if output.get("output_type") in ("error", "pyerr"):
        text = f"{output.get('ename', 'error')}: {output.get('evalue', '')}"
    else:
        text = next((text for each in PRINTED if (text := _joined(data.get(each)))), "")
    if text.strip():
        out.add(Block(CODE, COLORS.sub("", text).rstrip(), label="output"))
    elif page := _joined(data.get("text/html")):
        write_page(page, out)
    elif "application/json" in data:
        out.add(Block(CODE, json.dumps(data["application/json"], ensure_ascii=False), label="output"))
    elif not any(kind.startswith("image/") for kind in data) and (kinds := [each for each in data if "/" in each]):
        out.add(Block(MARKER, f"output: {', '.join(kinds)}"))
    if any(kind.startswith("image/") or kind in ("png", "jpeg") for kind in data):
        out.add(Block(PICTURE, "output"))


def _joined(text: object) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text or "")
