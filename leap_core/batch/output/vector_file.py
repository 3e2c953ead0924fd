"""Vectors of a batch as a NumPy array: a .npy file that is there once it is whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO

from ...openai.embeddings import decoded
from .whole_file import WholeFile

HEADER_BYTES = 128
"""Of a .npy file of two dimensions; numpy leaves room in it for the largest numbers."""


class VectorFile(WholeFile):
    """float32, shape [vectors, dimensions], in the order of ``write``. Lines are vectors in base64; one without vectors
    is a row of NaN."""

    def __init__(self, path: Path, count: int, url: str | None = None) -> None:
        super().__init__(path, count, url)
        self._rows, self._missing, self._width = 0, 0, 0

    def begin(self, file: IO[bytes]) -> None:
        file.write(bytes(HEADER_BYTES))

    def add(self, file: IO[bytes], line: str) -> None:
        if not line:
            self._missing += 1
        for vector in map(decoded, line.split()):
            self._width = len(vector)
            self._fill(file)
            file.write(vector.astype("<f4").tobytes())
            self._rows += 1

    def finish(self, file: IO[bytes]) -> None:
        self._fill(file)
        file.seek(0)
        file.write(self._header())

    def _fill(self, file: IO[bytes]) -> None:
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
