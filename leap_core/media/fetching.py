"""Media by URL: ``data:``, ``file:`` and, only where that was allowed, ``http:`` and ``https:``."""

from __future__ import annotations

import base64
import binascii
import os
from enum import IntEnum

from ..errors import LeapSerializationError

MOST_BYTES = 64 * 1024 * 1024
TIMEOUT_SECONDS = 30.0
MOST_REDIRECTS = 5


class UrlAccess(IntEnum):
    """What the URLs of a message may reach; each includes those before it."""

    DATA = 0
    """``data:`` alone: the message carries its media."""
    FILES = 1
    """Files of this machine."""
    WEB = 2
    """Other machines: they learn that this one asked."""


def fetch(url: str, access: UrlAccess = UrlAccess.FILES) -> bytes:
    """The bytes that a URL stands for. Raises LeapSerializationError for what cannot be had, or may not."""
    scheme = url.partition(":")[0].lower()
    if scheme == "data":
        return _data(url)
    if scheme == "file":
        if access < UrlAccess.FILES:
            raise LeapSerializationError(
                "file: URLs are not taken here", hint="send the data itself, as data:…;base64,…"
            )
        return _file(url)
    if scheme in ("http", "https"):
        if access < UrlAccess.WEB:
            raise LeapSerializationError(
                f"{scheme}: URLs are not fetched unless that is allowed",
                hint="download it first, or send the data itself",
            )
        return _web(url)
    raise LeapSerializationError(f"expected a data:, file: or https: URL, not {url[:40]!r}")


def _data(url: str) -> bytes:
    """RFC 2397."""
    head, comma, body = url.partition(",")
    if not comma:
        raise LeapSerializationError("the data: URL has no comma, so no data")
    if not head.lower().endswith(";base64"):
        from urllib.parse import unquote_to_bytes

        return unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise LeapSerializationError("not valid base64") from None


def _file(url: str) -> bytes:
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise LeapSerializationError(f"{url[:200]} names the machine {parts.netloc!r}; only files of this one are read")
    return read_file(url2pathname(parts.path))


def read_file(path: str | os.PathLike[str]) -> bytes:
    """All of a file. Raises LeapSerializationError for one that cannot be read, or has more than MOST_BYTES."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise LeapSerializationError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    _check_size(len(data), str(path))
    return data


def _web(url: str) -> bytes:
    import httpx

    data = bytearray()
    try:
        with (
            httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=True, max_redirects=MOST_REDIRECTS) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != 200:
                raise LeapSerializationError(f"{url[:200]} answers with status {response.status_code}")
            for block in response.iter_bytes():
                data += block
                _check_size(len(data), url[:200])
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise LeapSerializationError(f"cannot fetch {url[:200]}: {error or type(error).__name__}") from None
    return bytes(data)


def _check_size(size: int, source: str) -> None:
    if size > MOST_BYTES:
        raise LeapSerializationError(f"{source} is larger than {MOST_BYTES // 1024**2} MiB")
