"""The rows of a Parquet file as JSON objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from ...errors import LeapSerializationError
from ...media.conversion import naming_source
from .compressed import pyarrow
from .line_media import MEDIA_FIELDS

ROWS_AT_ONCE = 1000


def parquet_columns(stream: IO[bytes]) -> list[str]:
    """The names of the columns. Raises LeapSerializationError for what is no Parquet file."""
    with _reading():
        return list(_open(stream).schema_arrow.names)


def parquet_rows(stream: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows with their numbers, from 1. The bytes of pictures and sounds become what lines have in their place."""
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
            with naming_source(f"the column {name}"):
                value = MEDIA_FIELDS[name].from_bytes(value).data
            return {"name": f"the column {name}", "data": base64.b64encode(value).decode("ascii")}
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
