"""Inputs on other machines: ``s3://``, ``gs://``, ``https://`` and what else fsspec reads."""

from __future__ import annotations

import re
import tempfile
from typing import IO

from ...errors import LeapSerializationError

URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
PIECE = 1 << 20


def is_url(path: str) -> bool:
    """Whether this names a file of another machine."""
    return URL.match(path) is not None


def fetched(url: str) -> IO[bytes]:
    """The file's content in a temporary file, which may be read at any place. Raises LeapSerializationError."""
    try:
        import fsspec
    except ImportError:
        raise LeapSerializationError(f"{url} needs fsspec", hint="pip install 'leap-edge[parquet]'") from None
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - its reader closes it
    try:
        with fsspec.open(url, "rb") as stream:
            while piece := stream.read(PIECE):
                file.write(piece)
    except Exception as error:  # each file system has errors of its own
        file.close()
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise LeapSerializationError(f"cannot read {url}: {reason}", hint=_hint(error)) from None
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def _hint(error: Exception) -> str | None:
    """What fsspec lacks for this kind of URL, s3fs for example."""
    return str(error) if isinstance(error, ImportError) else None
