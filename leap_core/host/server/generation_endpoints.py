"""The endpoints that generate: a request is read, begun on its model, and its responses sent on as they come."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...errors import LeapConstraintError, LeapError, LeapGenerationError, LeapSerializationError
from ...in_process.validated_generation import CUT
from ...media.fetching import UrlAccess
from ...messages import ChatMessage
from ...openai.replies import DONE, OpenAIReply, frame
from ...openai.requests import GenerationRequest, read_chat, read_completion
from ...responses import Chunk, Complete, GenerationStats, ReasoningChunk
from ...runner.contract import Generation, ModelRunner
from .event_loop_bridge import GenerationBridge, Item
from .http_errors import Refused, body_of, unacceptable
from .loaded_models import LoadedModel, LoadedModels

JsonObject = dict[str, Any]
Read = TypeVar("Read")
log = logging.getLogger("leap.host")

LARGEST_BODY = 64 * 1024 * 1024
MOST_VALUES = 200_000
"""Python parses JSON without letting other threads run: these take some hundredths of a second."""
QUICK_BODY = 64 * 1024
GENERATION_HEADER = "X-Leap-Generation"


class GenerationEndpoints:
    """/v1/chat/completions and /v1/completions. ``running`` are the generations by the id in their header; ``urls``:
    what the URLs of pictures may reach."""

    def __init__(self, models: LoadedModels, *, urls: UrlAccess = UrlAccess.DATA) -> None:
        self._models = models
        self._urls = urls
        self.running: MutableMapping[str, GenerationBridge] = {}

    async def chat(self, request: Request) -> Response:
        """A conversation's next message."""

        def read(body: Any) -> GenerationRequest:
            return read_chat(body, urls=self._urls)

        return await self._answer(request, await read_body(request, read, slow=self._urls > UrlAccess.DATA))

    async def completion(self, request: Request) -> Response:
        """The continuation of a text."""
        return await self._answer(request, await read_body(request, read_completion))

    async def _answer(self, request: Request, asked: GenerationRequest) -> Response:
        model = self._models.to_answer(asked.model)
        with ExitStack() as using:
            runner = using.enter_context(model.in_use())
            bridge = GenerationBridge(_beginning(runner, asked))
            if not await _start(bridge, request.receive):
                return Response()  # the client left
            reply = OpenAIReply(asked, asked.model or model.name)
            self.running[reply.id] = bridge
            using.callback(self.running.pop, reply.id, None)
            answer = _Answer(asked, reply, bridge, model)
            if asked.stream:
                return Stream(answer, using.pop_all())
            return await self._whole(request, answer)

    async def _whole(self, request: Request, answer: _Answer) -> Response:
        watcher = asyncio.create_task(_stop_when_gone(request.receive, answer.bridge))
        try:
            complete = await answer.complete()
        finally:
            watcher.cancel()
            await answer.bridge.close()
        return JSONResponse(answer.reply.whole(complete), headers={GENERATION_HEADER: answer.reply.id})


class _Answer:
    """What comes of one request, with the speed of its model measured and the end noted in the log."""

    def __init__(
        self, asked: GenerationRequest, reply: OpenAIReply, bridge: GenerationBridge, model: LoadedModel
    ) -> None:
        self.asked, self.reply, self.bridge = asked, reply, bridge
        self._model = model
        self._begun = time.monotonic()
        self._said: list[str] = []
        self._counted = 0

    async def complete(self) -> Complete:
        """Wait for the end. Raises the error with which the generation failed."""
        async for batch in self.bridge.batches():
            for item in batch:
                self.note(item)
                if isinstance(item, LeapError):
                    return self.as_cut(item)
                if isinstance(item, Complete):
                    return item
        raise LeapGenerationError("the generation was given up")

    def note(self, item: Item) -> None:
        """Count a response, before it is sent."""
        if isinstance(item, (Chunk, ReasoningChunk)):
            self._counted += 1
            self._model.throughput.add(1)
            if isinstance(item, Chunk):
                self._said.append(item.text)
        elif isinstance(item, Complete):
            stats = item.stats or GenerationStats(0, 0, 0, 0.0)
            self._model.throughput.add(stats.completion_tokens - self._counted)  # calls come as no pieces of text
            counts = (stats.prompt_tokens, stats.cached_prompt_tokens, stats.completion_tokens)
            seconds = time.monotonic() - self._begun
            log.info("%s: prompt %d+%d, answer %d tokens, %.2f s", self._model.name, *counts, seconds)
        elif isinstance(item, LeapError):
            log.info("%s: %s", self._model.name, type(item).__name__)

    def as_cut(self, error: LeapError) -> Complete:
        """A constrained answer that was cut short is no error in OpenAI's protocol, but one that ends by ``length``.
        Raises the error where it is another, or where leap's own client asks."""
        if not isinstance(error, LeapConstraintError) or self.asked.events:
            raise error
        reasons = [reason for reason, text in CUT.items() if text in error.problems]
        if not reasons:
            raise error
        message = ChatMessage("assistant", error.text)
        return Complete(message, reasons[0], error.stats, error.problems)

    def unsaid(self, text: str) -> str:
        """What of a text has not been sent yet."""
        said = "".join(self._said)
        return text[len(said) :] if text.startswith(said) else ""


class Stream(Response):
    """Server-sent events as they come. When the reader leaves, the generation ends. ``using`` is closed at the end."""

    def __init__(self, answer: _Answer, using: ExitStack) -> None:
        super().__init__()
        self._answer = answer
        self._using = using
        self.init_headers(
            {
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                GENERATION_HEADER: answer.reply.id,
            }
        )
        self.raw_headers = [header for header in self.raw_headers if header[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bridge = self._answer.bridge
        watcher = asyncio.create_task(_stop_when_gone(receive, bridge))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _send(send, self._answer.reply.begin())
            async for batch in bridge.batches():
                await _send(send, b"".join(piece for item in batch for piece in self._frames(item)))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # the reader left
        finally:
            watcher.cancel()
            await bridge.close()
            self._using.close()

    def _frames(self, item: Item) -> list[bytes]:
        reply = self._answer.reply
        self._answer.note(item)
        if isinstance(item, LeapError):
            try:
                complete = self._answer.as_cut(item)
            except LeapError as error:
                return [frame(body_of(error)[1]), DONE]
            rest = Chunk(self._answer.unsaid(complete.full_message.text))
            return [*(reply.pieces(rest) if rest.text else ()), *reply.pieces(complete), DONE]
        return [*reply.pieces(item), *([DONE] if isinstance(item, Complete) else ())]


async def _send(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _stop_when_gone(receive: Receive, bridge: GenerationBridge) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            bridge.stop()
            return


async def _start(bridge: GenerationBridge, receive: Receive) -> bool:
    """Start a generation; whether its client stayed until it was accepted. Raises the error with which it was refused.

    What has to be done before (a schema to compile, a template to render) may take a while, and ends with its client.
    """
    starting = asyncio.ensure_future(bridge.start())
    watcher = asyncio.create_task(_stop_when_gone(receive, bridge))
    try:
        await asyncio.wait({starting, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            await bridge.close()
            starting.cancel()
            return False
        starting.result()
        return True
    except LeapError as error:
        raise unacceptable(error) from None
    except asyncio.CancelledError:
        bridge.abandon()
        raise
    finally:
        watcher.cancel()


def _beginning(runner: ModelRunner, asked: GenerationRequest) -> Callable[[], Generation]:
    prompt = asked.prompt
    if prompt is None:
        return lambda: runner.start(asked.messages, asked.functions, asked.options)
    return lambda: runner.start_text(prompt, asked.options)


async def read_body(request: Request, read: Callable[[Any], Read], *, slow: bool = False) -> Read:
    """What ``read`` makes of the request's body. What takes long (``slow``: any body) happens in a thread, so that
    others are answered."""
    body = await _whole_body(request)
    if len(body) <= QUICK_BODY and not slow:
        return read(_parse(body))
    return await asyncio.to_thread(lambda: read(_parse(body)))


async def read_json(request: Request) -> Any:
    """The request's body. Raises Refused when it is too large, LeapSerializationError when it is not JSON."""
    return await read_body(request, lambda value: value)


async def _whole_body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST_BODY:
                error = LeapSerializationError(f"the request is larger than {LARGEST_BODY // 1024**2} MiB")
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
