"""Files on other machines: ``s3://``, ``gs://``, ``https://`` and what else fsspec reads and writes."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from ...errors import LeapError, LeapSerializationError, LeapUnavailableError
from ...system.addresses import as_shown, shown

URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
PIECE = 1 << 20
READ_ONLY = re.compile(r"https?://", re.IGNORECASE)
PARAMETERS = re.compile(r"[?#].*", re.DOTALL)


def is_url(path: str) -> bool:
    """Whether this names a file of another machine."""
    return URL.match(path) is not None


def name_in(url: str) -> str:
    """The file's own name, without directories and parameters."""
    return PARAMETERS.sub("", url).rpartition("/")[2]


def fetched(url: str) -> IO[bytes]:
    """The file's content in a temporary file, which may be read at any place: each line is read again when its turn
    comes, at the place where it was checked. Raises LeapSerializationError."""
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - its reader closes it
    try:
        with _naming(url, "cannot read {}", LeapSerializationError), _fsspec(url).open(url, "rb") as stream:
            shutil.copyfileobj(stream, file, PIECE)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def exists(url: str) -> bool:
    """Raises LeapSerializationError where that cannot be found out."""
    with _naming(url, "cannot look for {}", LeapSerializationError):
        files, path = _fsspec(url).core.url_to_fs(url)
        files.invalidate_cache()
        return bool(files.exists(path))


def check_writable(url: str) -> None:
    """Begin to write the file, and give that up; nothing is there afterwards that was not before. Raises
    LeapSerializationError where it cannot be written."""
    if READ_ONLY.match(url):
        raise LeapSerializationError(
            f"{shown(url)} cannot be written to",
            hint="give a file, or a URL that takes files, such as s3://BUCKET/NAME",
        )
    if not name_in(url):
        raise LeapSerializationError(f"{shown(url)} is a directory, not a file to write to")
    with _naming(url, "{} cannot be written to", LeapSerializationError):
        files, path = _fsspec(url).core.url_to_fs(url)
        file = files.open(path, "wb", autocommit=False)
        try:
            if hasattr(file, "_initiate_upload"):  # a store of objects hears of a file with its first part
                file._initiate_upload()
        finally:
            _give_up(file)


def send(file: IO[bytes], url: str) -> None:
    """Write the whole file there, in parts; it is there at once when the last part is, and after an error it is what it
    was. Raises LeapUnavailableError."""
    with _naming(url, "cannot write {}", LeapUnavailableError):
        files, path = _fsspec(url).core.url_to_fs(url)
        target = files.open(path, "wb", autocommit=False)
        try:
            shutil.copyfileobj(file, target, PIECE)
            target.close()
            target.commit()
        except BaseException:
            _give_up(target)
            raise


def _give_up(file: Any) -> None:
    with suppress(AttributeError):  # files of this machine cannot be marked so
        file.closed = True  # or its end would write what it has
    with suppress(Exception):  # what is given up is not worth another error
        file.discard()


def _fsspec(url: str) -> Any:
    try:
        import fsspec
    except ImportError:
        raise LeapSerializationError(f"{shown(url)} needs fsspec", hint="pip install 'leap-edge[parquet]'") from None
    return fsspec


@contextmanager
def _naming(url: str, what: str, kind: type[LeapError]) -> Iterator[None]:
    """Each file system has errors of its own, which quote the URL."""
    try:
        yield
    except LeapError:
        raise
    except Exception as error:
        said = as_shown(url, str(error))
        reason = next(iter(said.splitlines()), "") or type(error).__name__
        # ImportError: what fsspec lacks for this kind of URL, s3fs for example
        raise kind(
            f"{what.format(shown(url))}: {reason}", hint=said if isinstance(error, ImportError) else None
        ) from None
