"""An id for every request, and a line of the log: method, path, status, size, time, tokens; never any content."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import secrets
import time
from contextlib import suppress
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics

access_log = logging.getLogger("leap.access")

answers_of_request: ContextVar[list[str] | None] = ContextVar("answers_of_request", default=None)
"""What is counted of each answer to the request that is being served."""
REQUEST_ID = b"x-request-id"
LONGEST_ID = 128
LARGE = 8 * 1024 * 1024
"""Bytes of a request from which on its memory is given back at once, not when Python gets round to it."""
FREE_SECONDS = 0.5
"""From the end of a large request until what refused it is not referred to any more."""


def give_memory_back() -> None:
    """Free what only refers to itself, as an error does to the request in its traceback, and let the system have it."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc keeps what is free
        ctypes.CDLL(None).malloc_trim(0)


class RequestLog:
    """ASGI middleware around all others. A client may name its request by the header X-Request-Id."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        named = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
        usable = 0 < len(named) <= LONGEST_ID and all(33 <= byte <= 126 for byte in named)
        id = named if usable else f"req_{secrets.token_hex(12)}".encode()
        start, status, size = time.monotonic(), 0, 0
        answers: list[str] = []
        answers_of_request.set(answers)

        async def send_named(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (REQUEST_ID, id)]}
            else:
                size += len(message.get("body", b""))
            await send(message)

        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        try:
            await self._app(scope, receive_counted, send_named)
        finally:
            if received > LARGE:
                asyncio.get_running_loop().call_later(FREE_SECONDS, give_memory_back)
            route = scope.get("route")
            path = getattr(route, "path", "other")  # a path that a client makes up is no label
            self._metrics.request(path, status)
            seconds = time.monotonic() - start
            line = f"{id.decode('ascii')} {scope['method']} {path} {status}, {size} bytes, {seconds:.3f} s"
            access_log.info("%s", "; ".join([line, *answers]))
