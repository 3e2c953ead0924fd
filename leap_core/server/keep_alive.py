"""Keep-alives of streams: bytes that mean nothing, sent when there was no data for a while.

A stream begins before its request is accepted where that takes longer: while its model loads, or its prompt is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ..errors import LeapError, LeapGenerationError
from ..protocols.openai.replies import ReplyWriter
from .http import Refused

log = logging.getLogger("leap.host")

PING_SECONDS = 1.0
"""Without data until a keep-alive, where neither the server nor the request says another number."""


class Pinging:
    """``send`` of one stream. Within its block it also sends what ``ping`` returns after each ``interval`` seconds
    without data; an interval of 0 sends none. One task of the event loop, and no thread."""

    def __init__(self, send: Send, interval: float, ping: Callable[[], bytes]) -> None:
        self._send, self._interval, self._ping = send, interval, ping
        self._turn = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time
        self._last = self._clock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Pinging:
        if self._interval:
            self._task = asyncio.create_task(self._ping_when_silent())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, message: Message) -> None:
        """Send a part of the stream."""
        async with self._turn:
            await self._send(message)
            self._last = self._clock()
            if self._task is not None and not message.get("more_body", True):
                self._task.cancel()

    async def _ping_when_silent(self) -> None:
        while True:
            await asyncio.sleep(self._last + self._interval - self._clock())
            async with self._turn:
                if self._clock() >= self._last + self._interval:
                    await self._send({"type": "http.response.body", "body": self._ping(), "more_body": True})
                    self._last = self._clock()


class AcceptedAnswer(Response):
    """The answer to a request that was accepted."""

    async def send_rest(self, receive: Receive, send: Send) -> None:
        """Send the body of a stream whose head is sent."""
        raise NotImplementedError

    async def discard(self) -> None:
        """Give the answer up."""
        raise NotImplementedError


async def answer_or_stream(
    preparing: asyncio.Task[Response], writer: Callable[[], ReplyWriter], interval: float
) -> Response:
    """What ``preparing`` returns or raises; where it takes longer than ``interval`` seconds, a stream that begins with
    keep-alives and then continues with that. Errors that come later end the stream in the form of ``writer``."""
    try:
        await asyncio.wait({preparing}, timeout=interval)
    except asyncio.CancelledError:
        await _give_up(preparing)
        raise
    return preparing.result() if preparing.done() else _EarlyStream(preparing, writer(), interval)


async def _give_up(preparing: asyncio.Task[Response]) -> None:
    preparing.cancel()
    (result,) = await asyncio.gather(preparing, return_exceptions=True)
    if isinstance(result, AcceptedAnswer):
        await result.discard()


class _EarlyStream(Response):
    def __init__(self, preparing: asyncio.Task[Response], writer: ReplyWriter, interval: float) -> None:
        super().__init__()
        self._preparing, self._writer, self._interval = preparing, writer, interval

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", self._writer.media_type.encode("ascii")), (b"cache-control", b"no-cache")]
        try:
            async with Pinging(send, self._interval, self._writer.ping) as pinging:
                await pinging.send({"type": "http.response.start", "status": 200, "headers": headers})
                await pinging.send({"type": "http.response.body", "body": self._writer.ping(), "more_body": True})
                await asyncio.wait({self._preparing})
                await self._go_on(receive, pinging.send)
        finally:
            if not self._preparing.done():
                await _give_up(self._preparing)

    async def _go_on(self, receive: Receive, send: Send) -> None:
        rest = b""
        try:
            answer = self._preparing.result()
            if isinstance(answer, AcceptedAnswer):
                await answer.send_rest(receive, send)
                return
        except LeapError as error:
            rest = self._writer.failed(error)
        except Refused as refusal:
            rest = self._writer.failed(refusal.error)
        except Exception as error:
            log.error("a stream failed before its answer began", exc_info=error)
            bug = LeapGenerationError(f"{type(error).__name__}: {error}", hint="this is a bug in leap")
            rest = self._writer.failed(bug)
        with suppress(OSError):  # the client left
            await send({"type": "http.response.body", "body": rest, "more_body": False})


class PingedStream(StreamingResponse):
    """A stream of ``content`` with keep-alives."""

    def __init__(
        self, content: AsyncIterator[bytes], media_type: str, interval: float, ping: Callable[[], bytes]
    ) -> None:
        super().__init__(content, media_type=media_type)
        self._interval, self._ping = interval, ping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with Pinging(send, self._interval, self._ping) as pinging:
            await super().__call__(scope, receive, pinging.send)
