"""Vectors of a batch as a NumPy array: a .npy file that is there once it is whole."""

from __future__ import annotations

import io
import os
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from ...openai.embeddings import decoded
from ...storage.locks import Busy, locked
from ..journal.journal import being_written
from .output_file import Lines

HEADER_BYTES = 128
"""The header of a .npy file of two dimensions has this size; numpy leaves room in it for the largest numbers."""


class VectorFile:
    """float32, shape [vectors, dimensions], in the order of ``write``. It takes the file's name when it is closed after
    ``count`` lines; a line without vectors is a row of NaN."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path.resolve()
        self._fresh = self.path.with_name(f".{self.path.name}.new")
        self._count, self._lines, self._rows, self._missing = count, 0, 0, 0
        self._width = 0
        self._file: BinaryIO | None = None
        self._locks = ExitStack()

    def open(self, lines: Lines) -> None:
        """Raises LeapUnavailableError when another batch writes to it."""
        try:
            self._locks.enter_context(locked(self._fresh, wait=False))
        except Busy:
            raise being_written(self.path) from None
        self._file = self._fresh.open("wb")
        self._file.write(bytes(HEADER_BYTES))
        for line in lines():
            self.write(line)

    def write(self, line: str) -> None:
        """``line``: vectors in base64, as ``Result.render`` writes them."""
        assert self._file is not None
        self._lines += 1
        if not line:
            self._missing += 1
        for vector in map(decoded, line.split()):
            self._width = len(vector)
            self._fill(self._file)
            self._file.write(vector.astype("<f4").tobytes())
            self._rows += 1

    def leave(self) -> None:
        if not self.path.exists():
            self.path.write_bytes(self._header())

    def close(self) -> None:
        with self._locks:
            file, self._file = self._file, None
            if file is None:
                return
            with file:
                if self._lines == self._count:
                    self._fill(file)
                    file.seek(0)
                    file.write(self._header())
                    file.flush()
                    os.fsync(file.fileno())
            if self._lines == self._count:
                os.replace(self._fresh, self.path)
            else:
                self._fresh.unlink(missing_ok=True)

    def _fill(self, file: BinaryIO) -> None:
        """The rows that are missing before the next one, now that their width is known."""
        import numpy as np

        file.write(np.full(self._missing * self._width, np.nan, "<f4").tobytes())
        self._rows += self._missing
        self._missing = 0

    def _header(self) -> bytes:
        import numpy as np

        header = io.BytesIO()
        value = {"descr": "<f4", "fortran_order": False, "shape": (self._rows, self._width)}
        np.lib.format.write_array_header_1_0(header, value)
        assert len(header.getvalue()) == HEADER_BYTES
        return header.getvalue()
