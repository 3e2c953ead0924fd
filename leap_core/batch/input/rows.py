"""The rows of a batch's input, read where they lie: JSON lines, tables, arrays, Parquet, compressed or not."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import IO, Any, cast

from ...errors import LeapSerializationError
from ...system.addresses import shown
from ...system.files import read_at
from .line_parts import MEDIA_FIELDS, of_column
from .remote_files import fetched, is_url

GZIP, ZSTD = ".gz", ".zst"
COMPRESSIONS = (GZIP, ZSTD)


def compression_of(path: str) -> str | None:
    """The ending that says how a file is compressed; None where it is not."""
    ending = PurePath(path).suffix.lower()
    return ending if ending in COMPRESSIONS else None


def without_compression(path: str) -> str:
    """The name without the ending of its compression."""
    ending = compression_of(path)
    return path if ending is None else path[: -len(ending)]


def pyarrow(purpose: str, module: str = "pyarrow") -> Any:
    """pyarrow, or one of its modules. Raises LeapSerializationError where it is not installed."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise LeapSerializationError(f"{purpose} needs pyarrow", hint="pip install 'leap-edge[parquet]'") from None


def decompressed(file: IO[bytes], ending: str) -> IO[bytes]:
    """The file's content; whoever reads it gets OSError where it is damaged."""
    if ending == GZIP:
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    stream: IO[bytes] = pyarrow("zstd").CompressedInputStream(file, "zstd")
    return stream


def compressing(file: IO[bytes], ending: str) -> IO[bytes]:
    """A stream that writes to the file, which is whole once the stream is closed. Equal content, equal bytes."""
    if ending == GZIP:
        return cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
    own = os.fdopen(os.dup(file.fileno()), "wb")  # which pyarrow closes with the stream
    stream: IO[bytes] = pyarrow("zstd").CompressedOutputStream(own, "zstd")
    return stream


ROWS_AT_ONCE = 1000


def parquet_columns(stream: IO[bytes]) -> list[str]:
    """The names of the columns. Raises LeapSerializationError for what is no Parquet file."""
    with _reading():
        return list(_open(stream).schema_arrow.names)


def parquet_rows(stream: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows with their numbers, from 1. The bytes of images and audio become what lines have in their place."""
    number = 0
    with _reading():
        for batch in _open(stream).iter_batches(batch_size=ROWS_AT_ONCE):
            for row in batch.to_pylist():
                number += 1
                yield number, {name: _plain(name, value) for name, value in row.items()}


def _open(stream: IO[bytes]) -> Any:
    return pyarrow("Parquet", "pyarrow.parquet").ParquetFile(stream)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"bytes", "path"}:  # as datasets keep files
        value = value["path"] if value["bytes"] is None else value["bytes"]
    if isinstance(value, bytes):
        if name in MEDIA_FIELDS:
            return of_column(name, value)
        return base64.b64encode(value).decode("ascii")
    return value if _is_json(value) else json.loads(json.dumps(value, default=str))


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:  # pyarrow's errors are of these kinds
        raise LeapSerializationError(f"not a Parquet file: {error}") from None


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


LONGEST_ROW = 16 * 1024 * 1024
"""Bytes. A longer line is refused without reading it into memory."""
BOM = b"\xef\xbb\xbf"


class InputRows:
    """JSON rows, one a line. ``columns`` are those of a table, else empty.

    ``form``: how the source is written. A JSONL file is read where it is; anything else is copied to a temporary file
    first, as JSON lines. Raises LeapSerializationError for a source that cannot be read.
    """

    def __init__(self, source: str, form: str = JSONL, stdin: IO[bytes] | None = None) -> None:
        self.form = form
        self.columns: list[str] = []
        try:
            file = _opened(source) if stdin is None else _spooled(stdin)
            if stdin is None and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                with file:  # a pipe can be read once
                    file = _spooled(file)
            if stdin is None and (ending := compression_of(source)) is not None:
                with file:
                    file = _spooled(decompressed(file, ending))
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise LeapSerializationError(f"cannot read {shown(source)}: {reason}") from None
        self._file = file
        if form != JSONL:
            with file:
                self._file = self._converted(file)

    def __iter__(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Number (from 1), offset, length and bytes of each row that is not blank. A too long one has no bytes."""
        file = self._file
        file.seek(0)
        offset = len(BOM) if file.read(len(BOM)) == BOM else 0
        file.seek(offset)
        count = 0
        while raw := file.readline(LONGEST_ROW):
            count += 1
            length = len(raw)
            if length == LONGEST_ROW and not raw.endswith(b"\n"):
                while (rest := file.readline(LONGEST_ROW)) and not rest.endswith(b"\n"):
                    length += len(rest)
                length += len(rest)
                yield count, offset, length, b""
            elif not raw.isspace():
                yield count, offset, length, raw
            offset += length

    def read(self, offset: int, length: int) -> bytes:
        """A row again."""
        return read_at(self._file.fileno(), length, offset)

    def close(self) -> None:
        """Close the file, and remove a temporary one."""
        self._file.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # the source could not be opened
            self._file.close()

    @property
    def is_table(self) -> bool:
        """Whether every row has the same columns."""
        return self.form in TABLES

    def _converted(self, file: IO[bytes]) -> IO[bytes]:
        if self.form in TABLES:
            self.columns = columns_of(file, self.form)
            file.seek(0)
        rows: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - close closes it
        try:
            last = 0
            for number, raw in as_json_lines(file, self.form):
                if number != last + 1:  # blank lines lie between: rows keep the numbers that an editor shows
                    rows.write(b"\n" * (number - last - 1))
                last = number
                rows.write(raw)
            rows.flush()
        except BaseException:
            rows.close()
            raise
        return rows


def _opened(source: str) -> IO[bytes]:
    return fetched(source) if is_url(source) else open(source, "rb")


def _spooled(stream: IO[bytes]) -> IO[bytes]:
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - its reader closes it
    try:
        shutil.copyfileobj(stream, file, 1 << 20)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file
