"""Outputs that are written at once: Parquet, compressed lines, and lines for another machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ...tasks.evidence.cells import COLUMNS
from ..input.compressed import compressing, pyarrow
from .whole_file import WholeFile

ROWS_AT_ONCE = 10_000
EVIDENCE = "evidence"
"""The column of where values are, in rows of extractions."""


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
    """A table whose columns have the types that fit all rows; ``evidence`` is a list of structures, one a value. Lines
    are JSON objects."""

    def begin(self, file: IO[bytes]) -> None:
        self._rows: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - finish closes it

    def add(self, file: IO[bytes], line: str) -> None:
        self._rows.write(line.encode() + b"\n")

    def finish(self, file: IO[bytes]) -> None:
        arrow, parquet = pyarrow("Parquet"), pyarrow("Parquet", "pyarrow.parquet")
        with self._rows:
            schema, has_evidence = arrow.schema([]), False
            for rows in self._batches():
                evidence = [row.pop(EVIDENCE, None) for row in rows]
                has_evidence = has_evidence or any(each is not None for each in evidence)
                found = arrow.Table.from_pylist(rows).schema
                schema = arrow.unify_schemas([schema, found], promote_options="permissive")
            # A column without any value would have no type that readers can use.
            fields = [field.with_type(arrow.string()) if arrow.types.is_null(field.type) else field for field in schema]
            fields += [_evidence_of(arrow)] if has_evidence else []
            with parquet.ParquetWriter(file, arrow.schema(fields)) as writer:
                for rows in self._batches():
                    writer.write_table(arrow.Table.from_pylist(rows, schema=arrow.schema(fields)))

    def give_up(self) -> None:
        self._rows.close()

    def _batches(self) -> Iterator[list[Any]]:
        self._rows.seek(0)
        while lines := list(islice(self._rows, ROWS_AT_ONCE)):
            yield [json.loads(line) for line in lines]


def _evidence_of(arrow: Any) -> Any:
    """The column of evidence, which has the same type in every table."""
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    fields = [arrow.field(name, types[kind]) for name, kind in COLUMNS.items()]
    return arrow.field(EVIDENCE, arrow.list_(arrow.struct(fields)))
