"""Compressed inputs and outputs, by the ending of their names: gzip, and zstd with pyarrow."""

from __future__ import annotations

import gzip
import os
from pathlib import PurePath
from typing import IO, Any, cast

from ...errors import LeapSerializationError

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
