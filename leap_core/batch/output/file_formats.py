"""Outputs that are written whole: Parquet, compressed lines, arrays of vectors, sound a line."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ...conversation.messages import Speech
from ...conversation.responses import Complete
from ...protocols.openai.embeddings import decoded
from ...system.dataclass import dataclass
from ...system.files import replacing
from ...tasks.evidence.evidence import COLUMNS
from ..input.rows import compressing, pyarrow
from .output_file import WholeFile

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


HEADER_BYTES = 128
"""Of a .npy file of two dimensions; numpy leaves space in it for the largest numbers."""


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


UNHEARD = "the model spoke, and no directory was named for what it says"
SAFE = re.compile(r"[\w-][\w.-]{0,99}")


@dataclass(frozen=True)
class SpokenLines:
    """Writes to ``directory``, which is made when the first line speaks; None keeps no sound."""

    directory: Path | None = None

    def take(self, complete: Complete, custom_id: str, key: str) -> tuple[Complete, str | None]:
        """The answer without its sound, and the file that has it. Raises OSError where it cannot be written."""
        message = complete.full_message
        speech = next((part for part in message.content if isinstance(part, Speech)), None)
        if speech is None:
            return complete, None
        silent = replace(message, content=tuple(part for part in message.content if not isinstance(part, Speech)))
        complete = replace(complete, full_message=silent)
        if self.directory is None:
            return replace(complete, warnings=(*complete.warnings, UNHEARD)), None
        path = self.directory / f"{custom_id if SAFE.fullmatch(custom_id) else key}.wav"
        _write(path, speech.data)
        return complete, str(path)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o600) as file:
        file.write(data)
