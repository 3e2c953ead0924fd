"""Names that come from outside, such as a manifest's or a hub's, and what of them may become a name on this disk."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from ...errors import LeapModelDownloadError

REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*")
"""owner/name, as the hub allows it."""

LONGEST_FILE_NAME = 200
"""Bytes. File systems allow 255, and a partial file's name is longer than the file's."""
RESERVED_ON_WINDOWS = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
OWN_ENDINGS = (".part", ".state", ".new", ".lock")
"""Files that leap itself puts beside a model's end so."""
UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')


def safe_file_name(name: str, source: str) -> str:
    """``name`` if a file in the model's directory may be called so on every system.

    Raises LeapModelDownloadError, naming the ``source``, for one that leaves the directory or hides in it.
    """
    too_long = len(name.encode("utf-8", "surrogatepass")) > LONGEST_FILE_NAME
    if not name or UNSAFE.search(name) or name.startswith((".", "-")) or name.endswith((".", " ")) or too_long:
        raise LeapModelDownloadError(f"{source} names a file {name[:80]!r}, which cannot be a file's name here")
    if RESERVED_ON_WINDOWS.fullmatch(name) or not name.isprintable() or name.lower().endswith(OWN_ENDINGS):
        raise LeapModelDownloadError(f"{source} names a file {name!r}, which cannot be a file's name here")
    return name


def file_name_of_url(url: str) -> str:
    """The last part of a URL's path, checked by ``safe_file_name``."""
    return safe_file_name(unquote(urlsplit(url).path.rpartition("/")[2]), url)


def safe_repository_path(path: str, source: str) -> str:
    """``path`` if it is a plain relative path within a repository. Raises LeapModelDownloadError."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise LeapModelDownloadError(f"{source} names a file {path[:80]!r}, which leaves the repository")
    safe_file_name(parts[-1], source)
    return path


def directory_name(model: str, quantization: str) -> str:
    """The name of a model's directory in the store: ``<model>-<quantization>``."""
    name = f"{model}-{quantization}" if quantization else model
    return safe_file_name(re.sub(r"[^\w.+-]+", "-", name).strip("-."), "the model")
