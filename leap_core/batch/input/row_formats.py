"""Forms of input other than JSON lines, as JSON lines: CSV and TSV tables, JSON arrays, and plain lines of text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath
from typing import IO, Any

from ...errors import LeapSerializationError
from .compressed import without_compression
from .parquet_rows import parquet_columns, parquet_rows

JSONL, JSON_ARRAY, CSV, TSV, LINES, PARQUET = "jsonl", "json", "csv", "tsv", "lines", "parquet"
INPUT_FORMATS = (JSONL, JSON_ARRAY, CSV, TSV, LINES, PARQUET)
EXTENSIONS = {".jsonl": JSONL, ".ndjson": JSONL, ".json": JSON_ARRAY, ".csv": CSV, ".tsv": TSV, ".txt": LINES}
EXTENSIONS |= {".parquet": PARQUET}
TABLES = (CSV, TSV, PARQUET)
DELIMITERS = {CSV: ",", TSV: "\t"}
LONGEST_FIELD = 16 * 1024 * 1024
"""Characters of a field of a table."""


def format_of(path: str) -> str:
    """The form of an input by its name's extension; JSON lines where that says nothing."""
    return EXTENSIONS.get(PurePath(without_compression(path)).suffix.lower(), JSONL)


def as_json_lines(stream: IO[bytes], form: str) -> Iterator[tuple[int, bytes]]:
    """The rows of ``stream`` as JSON objects (strings are prompts), each with the number of its line or element, from
    1. Raises LeapSerializationError for a text that is not of this form."""
    if form == LINES:
        yield from _of_lines(stream)
    elif form == PARQUET:
        yield from ((number, _line(row)) for number, row in parquet_rows(stream))
    elif form in TABLES:
        yield from _of_table(stream, form)
    else:
        yield from _of_array(stream)


def columns_of(stream: IO[bytes], form: str) -> list[str]:
    """The names in the first row of a table. Raises LeapSerializationError where they cannot be used."""
    header = parquet_columns(stream) if form == PARQUET else next(_table_rows(stream, form), None)
    if header is None:
        raise LeapSerializationError("the table is empty: its first row names the columns")
    for name in header:
        if not name.strip():
            raise LeapSerializationError("a column has no name", hint="the first row of a table names its columns")
        if header.count(name) > 1:
            raise LeapSerializationError(f"two columns are called {name!r}")
    return header


def _of_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, raw in enumerate(stream, start=1):
        text = _decoded(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw, number).strip()
        if text:
            yield number, _line({"prompt": text})


def _of_table(stream: IO[bytes], form: str) -> Iterator[tuple[int, bytes]]:
    columns = columns_of(stream, form)
    stream.seek(0)
    rows = _table_rows(stream, form)
    next(rows)
    for number, row in enumerate(rows, start=2):
        if len(row) > len(columns):
            raise LeapSerializationError(f"row {number} has {len(row)} fields, and the table {len(columns)} columns")
        yield number, _line(dict(zip(columns, [*row, *[""] * (len(columns) - len(row))], strict=True)))


def _table_rows(stream: IO[bytes], form: str) -> Iterator[list[str]]:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    csv.field_size_limit(LONGEST_FIELD)
    try:
        yield from (row for row in csv.reader(text, delimiter=DELIMITERS[form], strict=True) if row)
    except UnicodeDecodeError:
        raise LeapSerializationError("the table is not UTF-8 text") from None
    except csv.Error as error:
        raise LeapSerializationError(f"not a {form.upper()} table: {error}") from None
    finally:
        with suppress(ValueError):  # the stream is closed already
            text.detach()


def _of_array(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    data = stream.read().removeprefix(b"\xef\xbb\xbf")
    if data.lstrip().startswith(b"{"):  # JSON lines under this name, as many write them
        for number, raw in enumerate(io.BytesIO(data), start=1):
            if raw.strip():
                yield number, raw
        return
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise LeapSerializationError("the file is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise LeapSerializationError(f"not JSON: {error}", hint="--input-format jsonl reads a value a line") from None
    if not isinstance(value, list):
        raise LeapSerializationError("expected a JSON array", hint="--input-format jsonl reads a value a line")
    for number, item in enumerate(value, start=1):
        yield number, _line(item)


def _decoded(raw: bytes, number: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LeapSerializationError(f"line {number} is not UTF-8 text (byte {error.start + 1})") from None


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
