"""Media by URL: ``data:``, ``file:`` and, only where that was allowed, ``http:`` and ``https:``."""

from __future__ import annotations

import base64
import binascii
import os
from enum import IntEnum
from typing import TYPE_CHECKING

from ...errors import LeapSerializationError
from ...system.addresses import is_public

if TYPE_CHECKING:
    import httpx

MOST_BYTES = 64 * 1024 * 1024
TIMEOUT_SECONDS = 30.0
LONGEST_SECONDS = 300.0
"""For all that one URL needs: a server that sends a byte now and then would occupy a thread without end."""
MOST_REDIRECTS = 5


class UrlAccess(IntEnum):
    """What the URLs of a message may reach beside ``data:``."""

    DATA = 0
    """``data:`` alone: the message carries its media."""
    FILES = 1
    """Files of this machine."""
    WEB = 2
    """Other machines, by their public addresses; they learn that this one asked. No files."""
    TYPED = 3
    """An address that a person typed: also one of this machine or its networks. Errors say why it cannot be fetched."""


def fetch(url: str, access: UrlAccess = UrlAccess.FILES) -> bytes:
    """The bytes that a URL leads to. Raises LeapSerializationError for what cannot be had, or may not."""
    scheme = url.partition(":")[0].lower()
    if scheme == "data":
        return _data(url)
    if scheme == "file":
        if access is not UrlAccess.FILES:
            raise LeapSerializationError(
                "file: URLs are not taken here", hint="send the data itself, as data:…;base64,…"
            )
        return _file(url)
    if scheme in ("http", "https"):
        if access not in (UrlAccess.WEB, UrlAccess.TYPED):
            raise LeapSerializationError(
                f"{scheme}: URLs are not fetched unless that is allowed",
                hint="download it first, or send the data itself",
            )
        return _web(url, access is UrlAccess.TYPED)
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


def _web(url: str, is_typed: bool) -> bytes:
    """What an address answers. Why one fails is said to a person who typed it only: clients of a server would learn
    which of this network's ports are open. A public address may not redirect to a private one."""
    from ...system.http import Loop, ended

    with Loop() as loop:
        followed = loop.submit(_followed(url, may_be_private=is_typed))
        if not ended(followed, None, LONGEST_SECONDS):
            why = f"the file takes longer than {LONGEST_SECONDS:.0f} seconds"
        else:
            try:
                return followed.result()
            except ValueError as error:
                why = str(error)[:300]
    if is_typed:
        raise LeapSerializationError(f"cannot fetch {url[:200]}: {why}")
    raise LeapSerializationError(f"cannot fetch {url[:200]}", hint="download it first, and send the data itself")


async def _followed(url: str, *, may_be_private: bool) -> bytes:
    """Raises ValueError with the reason why there is nothing."""
    import asyncio

    import httpx

    from ...system.http import client, failure

    host = "it"
    try:
        target = httpx.URL(url)
        async with client(httpx.AsyncClient, timeout=TIMEOUT_SECONDS) as asking:
            for _ in range(MOST_REDIRECTS + 1):
                host = target.host
                address, may_be_private = await asyncio.to_thread(_address, target, may_be_private)
                data = await _get(asking, target, address)
                if isinstance(data, bytes):
                    return data
                target = data
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise ValueError(str(failure(error, host))) from None
    raise ValueError(f"it redirects more than {MOST_REDIRECTS} times")


def _address(target: httpx.URL, may_be_private: bool) -> tuple[str, bool]:
    """The address that a URL's host has, and whether it is one of this machine or its networks. Raises OSError for one
    that may not be asked: without ``may_be_private`` all that the host has are public, and asked at HTTP's own port."""
    import socket

    usual = 443 if target.scheme == "https" else 80
    port = target.port or usual
    found = {str(each[4][0]) for each in socket.getaddrinfo(target.host, port, type=socket.SOCK_STREAM)}
    is_private = not found or not all(map(is_public, found))
    if not may_be_private and (is_private or port != usual):
        wanted = "a public address" if is_private else "the port of HTTP"
        raise OSError(f"it redirects to {target.host}: that is not {wanted}")
    return min(found, key=lambda each: (":" in each, each)), is_private


async def _get(asking: httpx.AsyncClient, target: httpx.URL, address: str) -> bytes | httpx.URL:
    """What is at one URL, or where it redirects to. Raises ValueError for anything else."""
    request = asking.build_request(
        "GET",
        target.copy_with(host=address),  # the address that was checked, not what the name means next
        headers={"Host": target.netloc.decode("ascii"), "Accept-Encoding": "identity"},
        extensions={"sni_hostname": target.host},
    )
    response = await asking.send(request, stream=True)
    try:
        if response.has_redirect_location:
            return target.join(response.headers["location"])
        if response.status_code != 200:
            raise ValueError(f"the server answers {response.status_code} {response.reason_phrase}".rstrip())
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ValueError("the server answers in a compressed form")
        data = bytearray()
        async for block in response.aiter_raw():
            data += block
            _check_size(len(data), str(target)[:200])
        return bytes(data)
    finally:
        await response.aclose()


def _check_size(size: int, source: str) -> None:
    if size > MOST_BYTES:
        raise LeapSerializationError(f"{source} is larger than {MOST_BYTES // 1024**2} MiB")
