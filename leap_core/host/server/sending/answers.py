"""One answer on its way to the client: whole, or as server-sent events as they come."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....errors import LeapConstraintError, LeapError, LeapGenerationError
from ....messages import ChatMessage
from ....openai.requests import GenerationRequest
from ....responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
)
from ....statistics import GenerationStats
from ..models.loaded_model import LoadedModel
from ..process.metrics import Metrics
from ..process.request_log import answers_of_request
from .client_watch import client_watch
from .event_loop_bridge import GenerationBridge, Item

log = logging.getLogger("leap.host")

GENERATION_HEADER = "X-Leap-Generation"
WRITE_SECONDS = 60.0
"""How long a client may take to read what is ready."""


class ReplyWriter(Protocol):
    """Writes an answer in one protocol."""

    media_type: str
    """Of a stream."""
    id: str
    stores: bool
    """Whether writing the end waits for the disk."""

    def whole(self, complete: Complete) -> dict[str, Any]:
        """The answer in one piece."""
        ...

    def begin(self) -> bytes:
        """What a stream opens with."""
        ...

    def pieces(self, response: MessageResponse) -> Iterator[bytes]:
        """The events that one response becomes."""
        ...

    def end(self) -> bytes:
        """What a stream closes with."""
        ...

    def failed(self, error: LeapError) -> bytes:
        """What a stream closes with when the generation failed."""
        ...


class Answer:
    """What comes of one request, with its counts measured and its end noted in the log."""

    def __init__(
        self,
        generation_request: GenerationRequest,
        reply: ReplyWriter,
        bridge: GenerationBridge,
        model: LoadedModel,
        metrics: Metrics,
    ) -> None:
        self.request, self.reply, self.bridge = generation_request, reply, bridge
        self._model, self._metrics = model, metrics
        self._counts = answers_of_request.get()
        self._begun = time.monotonic()
        self._last: float | None = None
        self._texts: list[str] = []
        self._counted = 0

    async def complete(self) -> Complete:
        """Wait for the end. Raises the error with which the generation failed."""
        async for batch in self.bridge.batches():
            for item in batch:
                complete = self.taken(item)
                if complete is not None:
                    return complete
        raise self.given_up()

    def taken(self, item: Item) -> Complete | None:
        """Count a response; the end where it is one. Raises the error with which the generation failed."""
        self.note(item)
        if isinstance(item, LeapError):
            return self.as_cut(item)
        return item if isinstance(item, Complete) else None

    def given_up(self) -> LeapError:
        """The error of an answer that has no end."""
        return LeapGenerationError("the generation was given up")

    def ending(self, item: Item, complete: Complete, reply: ReplyWriter) -> Iterator[bytes]:
        """The events with which an answer ends; where ``item`` says that it was cut, with what was not sent yet."""
        rest = self.unsent(complete.full_message.text) if isinstance(item, LeapError) else ""
        if rest:
            yield from reply.pieces(Chunk(rest))
        yield from reply.pieces(complete)

    def note(self, item: Item) -> None:
        """Count a response, before it is sent."""
        name, now = self._model.name, time.monotonic()
        if isinstance(item, (Chunk, ReasoningChunk, FunctionCalls)):
            if self._last is None:
                self._metrics.first_token(name, now - self._begun)
            else:
                self._metrics.next_token(name, now - self._last)
            self._last = now
        if isinstance(item, (Chunk, ReasoningChunk)):
            self._counted += 1
            self._model.throughput.add(1)
            if isinstance(item, Chunk):
                self._texts.append(item.text)
        elif isinstance(item, Complete):
            stats = item.stats or GenerationStats(0, 0, 0, 0.0)
            self._model.throughput.add(stats.completion_tokens - self._counted)  # calls come as no pieces of text
            self._metrics.answered(name, stats, item.finish_reason.value)
            computed, restored = stats.prompt_tokens, stats.cached_prompt_tokens
            counts = f"prompt {computed}+{restored}, answer {stats.completion_tokens} tokens"
            log.info("%s: %s, %.2f s", name, counts, now - self._begun)
            if self._counts is not None:
                self._counts.append(counts)
        elif isinstance(item, LeapError):
            self._metrics.failed(name, type(item).__name__)
            log.info("%s: %s", name, type(item).__name__)

    def as_cut(self, error: LeapError) -> Complete:
        """A constrained answer that was cut short is no error in OpenAI's protocol, but one that ends by ``length``.
        Raises the error where it is another, or where leap's own client asks."""
        if not isinstance(error, LeapConstraintError) or self.request.events:
            raise error
        if error.cut_by is None:
            raise error
        message = ChatMessage("assistant", error.text)
        return Complete(message, GenerationFinishReason(error.cut_by), error.stats, error.problems)

    def unsent(self, text: str) -> str:
        """What of a text has not been sent yet."""
        sent = "".join(self._texts)
        return text[len(sent) :] if text.startswith(sent) else ""

    async def whole(self, complete: Complete) -> dict[str, Any]:
        """The body of a whole answer."""
        if self.reply.stores:
            return await asyncio.to_thread(self.reply.whole, complete)
        return self.reply.whole(complete)

    async def frames(self, item: Item) -> list[bytes]:
        """The events of a stream that one item becomes, the end included."""
        reply = self.reply
        try:
            complete = self.taken(item)
        except LeapError as error:
            return [reply.failed(error)]
        if complete is not None:
            end = complete

            def write() -> list[bytes]:
                return [*self.ending(item, end, reply), reply.end()]

            return await asyncio.to_thread(write) if reply.stores else write()
        assert not isinstance(item, LeapError)
        return list(reply.pieces(item))


class EventStream(Response):
    """Server-sent events as they come. When the reader leaves, the generation ends. ``using`` is closed at the end."""

    def __init__(self, answer: Answer, using: ExitStack) -> None:
        super().__init__()
        self._answer = answer
        self._using = using

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bridge = self._answer.bridge
        try:
            with client_watch(receive, bridge.stop):
                headers = event_stream_headers(self._answer.reply.id, self._answer.reply.media_type)
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await _send(send, self._answer.reply.begin())
                async for batch in bridge.batches():
                    await _send(send, b"".join([piece for item in batch for piece in await self._answer.frames(item)]))
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (OSError, asyncio.TimeoutError):
            pass  # the reader left, or reads no more
        finally:
            await bridge.close()
            self._using.close()


def event_stream_headers(generation: str, media_type: str) -> list[tuple[bytes, bytes]]:
    """The headers of a stream of events; ``generation`` is the id by which it can be stopped."""
    return [
        (b"content-type", media_type.encode("ascii")),
        (b"cache-control", b"no-cache"),
        (GENERATION_HEADER.lower().encode("ascii"), generation.encode("ascii")),
    ]


async def _send(send: Send, data: bytes) -> None:
    if data:
        await asyncio.wait_for(send({"type": "http.response.body", "body": data, "more_body": True}), WRITE_SECONDS)
