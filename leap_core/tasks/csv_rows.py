"""Rows of CSV, as spreadsheets read them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence


def table_row(values: Sequence[object], delimiter: str = ",") -> str:
    """A row without its line end; what is no text is written as JSON."""
    text = io.StringIO()
    cells = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerow(cells)  # what is in it is quoted
    return text.getvalue().removesuffix("\r\n")
