"""Outputs that are written at once: Parquet, compressed lines, and lines for another machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ..input.compressed import compressing, pyarrow
from .whole_file import WholeFile

ROWS_AT_ONCE = 10_000


class LinesFile(WholeFile):
    """Lines as they come. ``count``: with the header, if there is one."""

    def begin(self, file: IO[bytes]) -> None:
        return None

    def add(self, file: IO[bytes], line: str) -> None:
        file.write(line.encode() + b"\n")

    def finish(self, file: IO[bytes]) -> None:
        return None


class CompressedFile(WholeFile):
    """Lines, compressed as the ending says. ``count``: with the header, if there is one."""

    def __init__(self, path: Path, count: int, ending: str, url: str | None = None) -> None:
        super().__init__(path, count, url)
        self._ending = ending

    def begin(self, file: IO[bytes]) -> None:
        self._stream = compressing(file, self._ending)

    def add(self, file: IO[bytes], line: str) -> None:
        self._stream.write(line.encode() + b"\n")

    def finish(self, file: IO[bytes]) -> None:
        self._stream.close()

    def give_up(self) -> None:
        self._stream.close()


class ParquetFile(WholeFile):
    """A table whose columns have the types that fit all rows. Lines are JSON objects."""

    def begin(self, file: IO[bytes]) -> None:
        self._rows: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - finish closes it

    def add(self, file: IO[bytes], line: str) -> None:
        self._rows.write(line.encode() + b"\n")

    def finish(self, file: IO[bytes]) -> None:
        arrow, parquet = pyarrow("Parquet"), pyarrow("Parquet", "pyarrow.parquet")
        with self._rows:
            schema = arrow.schema([])
            for rows in self._batches():
                found = arrow.Table.from_pylist(rows).schema
                schema = arrow.unify_schemas([schema, found], promote_options="permissive")
            # A column without any value would have no type that readers can use.
            fields = [field.with_type(arrow.string()) if arrow.types.is_null(field.type) else field for field in schema]
            with parquet.ParquetWriter(file, arrow.schema(fields)) as writer:
                for rows in self._batches():
                    writer.write_table(arrow.Table.from_pylist(rows, schema=arrow.schema(fields)))

    def give_up(self) -> None:
        self._rows.close()

    def _batches(self) -> Iterator[list[Any]]:
        self._rows.seek(0)
        while lines := list(islice(self._rows, ROWS_AT_ONCE)):
            yield [json.loads(line) for line in lines]
