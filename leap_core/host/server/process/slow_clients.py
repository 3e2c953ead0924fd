"""uvicorn's HTTP protocol with bounds on what a client may keep open: connections, and requests that never end."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ....errors import LeapUnavailableError
from ....openai.errors import SERVER, error_object

HEAD_SECONDS = 10.0
"""From the connection, or from a request's first byte, to the end of its head."""
BODY_SECONDS = 20.0
"""A body may take this long, beside what its length takes at the slowest rate that is waited for."""
SLOWEST_RATE = 64 * 1024
"""Bytes a second."""


class BoundedProtocol(H11Protocol):
    """One connection. A subclass made by ``with_limit`` says how many there may be."""

    most_connections = 0
    head_seconds = HEAD_SECONDS
    body_seconds = BODY_SECONDS

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0
    _bytes = 0
    _owes = ""

    @classmethod
    def with_limit(cls, most_connections: int, **seconds: float) -> type[BoundedProtocol]:
        """The protocol of a server with this many connections at most; ``seconds``: other timeouts."""
        return type("BoundedProtocol", (cls,), {"most_connections": most_connections, **seconds})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            message = f"{self.most_connections} connections are open already"
            error = LeapUnavailableError(message, hint="try again in a moment")
            self._refuse("503 Service Unavailable", error, "too_many_connections")
            return
        self._expect("head")

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._bytes += len(data)
        super().data_received(data)
        self._look_what_is_owed()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look_what_is_owed()

    def _look_what_is_owed(self) -> None:
        if self.transport.is_closing():
            self._expect("")
        elif self.conn.their_state is h11.SEND_BODY:
            self._expect("body")
        elif self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self._expect("head")
        else:
            self._expect("")

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("")
        super().connection_lost(exc)

    def _expect(self, part: str) -> None:
        """Begin to wait for this part of a request, or go on waiting for it; "" waits for nothing."""
        if part == self._owes:
            return
        self._owes, self._since, self._bytes = part, time.monotonic(), 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if part:
            self._timer = self.loop.call_later(self._allowed(), self._look)

    def _allowed(self) -> float:
        return self.head_seconds if self._owes == "head" else self.body_seconds + self._bytes / SLOWEST_RATE

    def _look(self) -> None:
        self._timer = None
        rest = self._since + self._allowed() - time.monotonic()
        if rest > 0:
            self._timer = self.loop.call_later(rest, self._look)
        elif self._owes == "head" and self._bytes:
            error = LeapUnavailableError("the request did not come to its end in time")
            self._refuse("408 Request Timeout", error, "request_timeout")
        else:
            self.transport.close()

    def _refuse(self, status: str, error: LeapUnavailableError, code: str) -> None:
        body = json.dumps({"error": error_object(error, SERVER, code)}).encode("ascii")
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Retry-After: 1\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
