"""The bodies of requests, read within bounds and parsed beside the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from ...errors import LeapSerializationError
from .http_errors import Refused

Read = TypeVar("Read")

LARGEST_BODY = 64 * 1024 * 1024
MOST_VALUES = 200_000
"""Python parses JSON without letting other threads run: these take some hundredths of a second."""
QUICK_BODY = 64 * 1024


async def read_body(request: Request, read: Callable[[Any], Read], *, slow: bool = False) -> Read:
    """What ``read`` makes of the request's body. What takes long (``slow``: any body) happens in a thread, so that
    others are answered."""
    body = await whole_body(request)
    if len(body) <= QUICK_BODY and not slow:
        return read(_parse(body))
    return await asyncio.to_thread(lambda: read(_parse(body)))


async def read_json(request: Request) -> Any:
    """The request's body. Raises Refused when it is too large, LeapSerializationError when it is not JSON."""
    return await read_body(request, lambda value: value)


async def whole_body(request: Request, most: int | None = None) -> bytes:
    """The bytes of the body. Raises Refused when they are more than ``most`` (LARGEST_BODY when None)."""
    most = LARGEST_BODY if most is None else most
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                error = LeapSerializationError(f"the request is larger than {most // 1024**2} MiB")
                raise Refused(413, "request_too_large", error)
    except ClientDisconnect:  # nothing can be answered any more
        raise LeapSerializationError("the connection ended within the request", path="body") from None
    return bytes(body)


def _parse(body: bytes) -> Any:
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MOST_VALUES:
        error = LeapSerializationError(f"the request has more than {MOST_VALUES} values", path="body")
        raise Refused(413, "request_too_large", error)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise LeapSerializationError(f"not JSON: {error}", path="body") from None
