"""The bodies of requests, read within bounds and parsed beside the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from ....errors import LeapSerializationError, LeapUnavailableError
from ..sending.http_errors import Refused

Read = TypeVar("Read")

LARGEST_BODY = 64 * 1024 * 1024
MOST_VALUES = 200_000
"""Python parses JSON without letting other threads run: these take some hundredths of a second."""
MOST_DEPTH = 100
"""Objects and lists may be nested this deep; what goes through them calls itself for each level."""
QUICK_BODY = 64 * 1024
LARGE_BODY = 1024 * 1024
TURN_SECONDS = 0.01
_large_bodies = threading.Lock()
MOST_HELD = 512 * 1024 * 1024
"""The bodies of all requests take at most this at once: while one is parsed, it takes about three times its size."""
LONGEST_COUNTED = 2 * 1024 * 1024
"""Characters: some seconds for the worst texts, and more than any context holds."""


class _Held:
    """Bytes of bodies in memory, of all requests. Used on the event loop."""

    bytes = 0


async def read_body(
    request: Request,
    read: Callable[[Any], Read],
    *,
    slow: bool = False,
    most_values: int | None = MOST_VALUES,
    largest: int | None = None,
) -> Read:
    """What ``read`` makes of the request's body, of ``largest`` bytes at most (LARGEST_BODY by default). What takes
    long (``slow``: any body) happens in a thread, so that others are answered."""
    async with _whole_body(request, largest) as body:
        if len(body) <= QUICK_BODY and not slow:
            return read(parse_body(body, most_values))
        return await asyncio.to_thread(lambda: read(_parse_in_turn(body, most_values)))


async def read_json(request: Request, *, most_values: int | None = MOST_VALUES, largest: int | None = None) -> Any:
    """The request's body. Raises Refused when it is too large, LeapSerializationError when it is not JSON."""
    return await read_body(request, lambda value: value, most_values=most_values, largest=largest)


@asynccontextmanager
async def _whole_body(request: Request, largest: int | None) -> AsyncIterator[bytearray]:
    """The bytes of the body, which count as held until the block ends. Raises Refused when they are more than the
    ``largest``, or with those of other requests more than MOST_HELD."""
    body = bytearray()
    largest = LARGEST_BODY if largest is None else largest
    try:
        async for piece in request.stream():
            body += piece
            _Held.bytes += len(piece)
            if len(body) > largest:
                error = LeapSerializationError(f"the request is larger than {largest // 1024**2} MiB")
                raise Refused(413, "request_too_large", error)
            if _Held.bytes > MOST_HELD:
                held = LeapUnavailableError(
                    f"requests of {MOST_HELD // 1024**2} MiB are being read", hint="try again in a moment"
                )
                raise Refused(503, "overloaded", held, kind="server_error", retry_after=1)
        yield body
    except ClientDisconnect:  # nothing can be answered any more
        raise LeapSerializationError("the connection ended within the request", path="body") from None
    finally:
        _Held.bytes -= len(body)


def check_countable(*texts: str) -> None:
    """Raises Refused for texts that are too long to be taken apart into tokens, which cannot be stopped half way."""
    if sum(map(len, texts)) > LONGEST_COUNTED:
        error = LeapSerializationError(f"texts of more than {LONGEST_COUNTED // 1024**2} MiB are not counted")
        raise Refused(413, "request_too_large", error)


def _parse_in_turn(body: bytearray, most_values: int | None) -> Any:
    """``parse_body``, large bodies one after the other: none lets other threads run, the pause between two does."""
    if len(body) <= LARGE_BODY:
        return parse_body(body, most_values)
    with _large_bodies:
        value = parse_body(body, most_values)
        time.sleep(TURN_SECONDS)
        return value


def parse_body(body: bytearray, most_values: int | None) -> Any:
    """The JSON value of a body. Raises Refused for more values, LeapSerializationError for what is none or too deep."""
    if most_values is not None and body.count(b",") + body.count(b"[") + body.count(b"{") > most_values:
        error = LeapSerializationError(f"the request has more than {most_values} values", path="body")
        raise Refused(413, "request_too_large", error)
    try:
        value = json.loads(body)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise LeapSerializationError(f"not JSON: {error}", path="body") from None
    level = [value]
    for _ in range(MOST_DEPTH):
        containers = (each for each in level if isinstance(each, (dict, list)))
        level = [part for each in containers for part in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return value
    raise _too_deep()


def _too_deep() -> LeapSerializationError:
    return LeapSerializationError(f"objects and lists are nested more than {MOST_DEPTH} deep", path="body")
