"""The rows of a batch's input, read where they lie: a file that can be read at any place holds them, never memory."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from ...addresses import shown
from ...errors import LeapSerializationError
from ...storage.positioned import read_at
from .compressed import compression_of, decompressed
from .remote_files import fetched, is_url
from .row_formats import JSONL, TABLES, as_json_lines, columns_of

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
