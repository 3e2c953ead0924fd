"""An answer on its way out: from the thread that generates it, through the event loop, to the client."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeAlias, cast

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ..conversation.generator import Generation, PromptProgress, given_up_when
from ..conversation.messages import ChatMessage
from ..conversation.request_causes import departed
from ..conversation.request_facts import failed
from ..conversation.responses import (
    Chunk,
    Complete,
    FunctionCalls,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
)
from ..errors import GenerationStats, LeapConstraintError, LeapError, LeapGenerationError
from ..protocols.openai.replies import OpenAIReply, ReplyWriter
from ..protocols.openai.requests import GenerationRequest
from .http import AsciiJSON, client_watch, unacceptable
from .keep_alive import AcceptedAnswer, Pinging
from .metrics import Metrics, answers_of_request, id_of_request
from .models.loaded_model import LoadedModel
from .models.loaded_models import LoadedModels

Item: TypeAlias = MessageResponse | LeapError


MOST_BEGINNING = 8
"""Requests that are prepared at once. Each is a thread, and the event loop takes turns with all that want to run."""
PROGRESS_SECONDS = 0.5
"""Between two looks at how far a prompt is read."""
_beginning = threading.BoundedSemaphore(MOST_BEGINNING)


class GenerationBridge:
    """Runs ``begin`` and then what it returns. Everything but ``begin`` is called on the event loop."""

    def __init__(self, begin: Callable[[], Generation]) -> None:
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._guard = threading.Lock()
        self._generation: Generation | None = None
        self._stopped = self._abandoned = False
        self._items: list[Item] = []
        self._ended = False
        self._arrived = asyncio.Event()
        self._finished = asyncio.Event()
        self._begun = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="leap-bridge", daemon=True)

    async def start(self) -> None:
        """Start; returns when the request was accepted, and raises the error with which it was refused."""
        self._thread.start()
        await asyncio.shield(self._started)

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt, where they are known before the end."""
        return None if self._generation is None else self._generation.prompt_tokens

    async def reading(self) -> AsyncIterator[PromptProgress]:
        """How far the prompt is read, each time that it is further, until something of the answer comes."""
        processed, begun = -1, False
        while not begun:
            with suppress(asyncio.TimeoutError):
                begun = await asyncio.wait_for(self._arrived.wait(), PROGRESS_SECONDS)
            progress = None if self._generation is None else self._generation.progress
            if progress is not None and progress.processed > processed:
                processed = progress.processed
                yield progress

    async def wait_for_first(self) -> None:
        """Wait until the prompt is computed: something of the answer came, or its end."""
        await self._begun.wait()

    async def batches(self) -> AsyncIterator[list[Item]]:
        """What came since the last time, until the end; an error is the last item."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            self._begun.set()
            with self._guard:
                items, self._items = self._items, []
                ended = self._ended
            if items:
                yield items
            if ended:
                return

    def stop(self) -> None:
        """End within one token; Complete follows."""
        with self._guard:
            self._stopped = True
            generation = self._generation
        if generation is not None:
            generation.stop()

    def abandon(self) -> None:
        """Give the generation up; nothing more is delivered."""
        self._abandoned = True
        self.stop()

    async def close(self) -> None:
        """Give the generation up, and return when it has ended."""
        if not self._finished.is_set():
            self.abandon()
            await asyncio.shield(self._finished.wait())

    def _run(self) -> None:
        try:
            with _beginning:
                if self._abandoned:
                    self._on_loop(self._settle, None)
                    self._end(None)
                    return
                with given_up_when(lambda: self._abandoned):
                    generation = self._begin()
        except BaseException as error:
            self._on_loop(self._settle, error)
            self._end(None)
            return
        with self._guard:
            self._generation = generation
            stopped = self._stopped
        if stopped:
            generation.stop()
        self._on_loop(self._settle, None)
        failure: LeapError | None = None
        try:
            for response in generation:
                if self._abandoned:
                    break
                self._deliver(response)
                if isinstance(response, Complete):
                    break
        except LeapError as error:
            failure = error
        except Exception as error:  # a bug: its client gets an error, and the others are served on
            failure = LeapGenerationError(f"{type(error).__name__}: {error}", hint="this is a bug in leap")
        finally:
            generation.close()
            self._end(failure)

    def _deliver(self, item: Item) -> None:
        with self._guard:
            first = not self._items
            self._items.append(item)
        if first:  # otherwise the loop has been woken already and has not looked yet
            self._on_loop(self._arrived.set)

    def _end(self, failure: LeapError | None) -> None:
        with self._guard:
            if failure is not None:
                self._items.append(failure)
            self._ended = True
        self._on_loop(self._arrived.set)
        self._on_loop(self._finished.set)

    def _settle(self, error: BaseException | None) -> None:
        if self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)

    def _on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: no client listens any more
            self._loop.call_soon_threadsafe(call, *arguments)


log = logging.getLogger("leap.host")

GENERATION_HEADER = "X-Leap-Generation"
WRITE_SECONDS = 60.0
"""How long a client may take to read what is ready."""


class ServedAnswer:
    """What comes of one request, with its counts measured and its end noted in the log. ``loading``: seconds that it
    waited for its model. ``own_client``: it gets the facts of its request too, which may quote an earlier one."""

    def __init__(
        self,
        generation_request: GenerationRequest,
        reply: ReplyWriter,
        bridge: GenerationBridge,
        model: LoadedModel,
        metrics: Metrics,
        loading: float = 0.0,
        *,
        own_client: bool = False,
    ) -> None:
        self.request, self.reply, self.bridge = generation_request, reply, bridge
        self._model, self._metrics = model, metrics
        self._counts, self._id = answers_of_request.get(), id_of_request.get()
        self._loading, self._own_client = loading, own_client
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
        if not isinstance(item, Complete):
            return None
        return item if self._own_client else replace(item, facts=None)

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
            restored = stats.cached_prompt_tokens
            counts = f"prompt {stats.prompt_tokens - restored}+{restored}, answer {stats.completion_tokens} tokens"
            log.info("%s: %s, %.2f s", name, counts, now - self._begun)
            if (departure := self._note_facts(item, now)) is not None:
                counts += f", {departure}"
            if self._counts is not None:  # what was not done as asked is told here too: few clients show it
                request = self.request
                self._counts += [counts, *request.notes, *request.document_notes, *item.left_out, *item.warnings]
        elif isinstance(item, LeapError):
            self._metrics.failed(name, type(item).__name__)
            self._note_facts(item, now)
            log.info("%s: %s", name, type(item).__name__)

    def _note_facts(self, ended: Complete | LeapError, now: float) -> str | None:
        """Keep how the request went; where its prefix departed from an earlier one, if that cost something."""
        facts = failed(ended) if isinstance(ended, LeapError) else ended.facts
        if facts is None:
            return None
        searches, finish = (
            (len(ended.searches), ended.finish_reason.value) if isinstance(ended, Complete) else (0, None)
        )
        facts = replace(facts, searches=searches, loading=self._loading)
        record: dict[str, Any] = {"id": self._id, "model": self._model.name, "seconds": now - self._begun}
        record |= {"asked": time.time() - record["seconds"], "finish": finish}
        if isinstance(ended, LeapError):  # without the details, which may quote the answer
            record |= {"finish": getattr(ended, "cut_by", None), "error": ended.message.partition(": ")[0]}
        self._metrics.recent.append({**record, "facts": facts.to_json()})
        return departed(facts)

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


BeginNext = Callable[[int], Awaitable[ServedAnswer]]
"""Starts the answer of this number. Raises LeapError where it is refused."""
MOST_UNSENT = 64
"""Pieces that wait for a slow reader; then the answers are read on more slowly."""


class Answers(AcceptedAnswer):
    """The answers to one request, from their start to the last byte: whole, or as they come. ``using`` holds the model
    until then. When the reader leaves, all end.

    ``begin_next`` starts those after ``first``: ``prompts`` times the choices of each. Several have one head, and each
    of their chunks its index. ``ping_interval``: seconds without data until a stream sends a keep-alive, 0 for never.
    """

    def __init__(
        self,
        first: ServedAnswer,
        using: ExitStack,
        begin_next: BeginNext,
        *,
        prompts: int = 1,
        ping_interval: float = 0.0,
    ) -> None:
        super().__init__()
        self._ping_interval = ping_interval
        self._reply, self._answers, self._begin_next, self._using = first.reply, [first], begin_next, using
        self._several = cast(OpenAIReply, first.reply)  # no other protocol asks for more than one
        self._share_prompt = prompts == 1
        self._count = prompts * first.request.choices
        self._streams = first.request.stream
        self._stopped = False

    def stop(self) -> None:
        """End all answers within one token, and begin no more."""
        self._stopped = True
        for answer in self._answers:
            answer.bridge.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held():
            with client_watch(receive, self.stop):
                if self._streams:
                    headers = event_stream_headers(self._reply.id, self._reply.media_type)
                    async with Pinging(send, self._ping_interval, self._reply.ping) as pinging:
                        await pinging.send({"type": "http.response.start", "status": 200, "headers": headers})
                        await self._stream(pinging.send)
                else:
                    whole = AsciiJSON(await self._whole(), headers={GENERATION_HEADER: self._reply.id})
                    await whole(scope, receive, send)

    async def send_rest(self, receive: Receive, send: Send) -> None:
        async with self._held():
            with client_watch(receive, self.stop):
                await self._stream(send)

    async def discard(self) -> None:
        async with self._held():
            self.stop()

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        """End all answers with the block. A reader that left, or reads no more, is no error."""
        try:
            with suppress(OSError, asyncio.TimeoutError):
                yield
        finally:
            for answer in self._answers:
                answer.bridge.abandon()
            await asyncio.gather(*(answer.bridge.close() for answer in self._answers))
            self._using.close()

    async def _whole(self) -> dict[str, Any]:
        first = self._answers[0]
        if self._count == 1:
            return await first.whole(await first.complete())
        return self._several.several(await self._each(lambda answer, _: answer.complete()))

    async def _stream(self, send: Send) -> None:
        if self._count == 1:
            first = self._answers[0]
            await _send(send, self._reply.begin())
            if first.request.return_progress and isinstance(self._reply, OpenAIReply):
                async for progress in first.bridge.reading():
                    await _send(send, self._reply.progress(progress))
            async for batch in first.bridge.batches():
                await _send(send, b"".join([piece for item in batch for piece in await first.frames(item)]))
                if isinstance(batch[-1], (Complete, LeapError)):
                    break  # no keep-alive may follow while the generation closes
        else:
            await self._stream_several(send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream_several(self, send: Send) -> None:
        unsent: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_UNSENT)
        making = asyncio.create_task(self._make(unsent))
        try:
            while (piece := await unsent.get()) is not None:
                await _send(send, piece)
        finally:
            making.cancel()
            with suppress(asyncio.CancelledError):
                await making

    async def _make(self, unsent: asyncio.Queue[bytes | None]) -> None:
        """Put what is to be sent into the queue, at last None."""
        try:
            completes = await self._each(lambda answer, n: self._pass_on(answer, n, unsent))
            await unsent.put(self._several.end_of_several(completes))
        except LeapError as error:
            await unsent.put(self._reply.failed(error))
        await unsent.put(None)

    async def _pass_on(self, answer: ServedAnswer, n: int, unsent: asyncio.Queue[bytes | None]) -> Complete:
        reply = self._several.of_choice(n)
        await unsent.put(reply.begin())
        if n == 0 and answer.request.return_progress:
            async for progress in answer.bridge.reading():
                await unsent.put(reply.progress(progress))
        async for batch in answer.bridge.batches():
            for item in batch:
                complete = answer.taken(item)
                if complete is not None:
                    await unsent.put(b"".join(answer.ending(item, complete, reply)))
                    return complete
                assert not isinstance(item, LeapError)
                await unsent.put(b"".join(reply.pieces(item)))
        raise answer.given_up()

    async def _each(self, take: Callable[[ServedAnswer, int], Awaitable[Complete]]) -> list[Complete]:
        """What ``take`` makes of each answer; one that fails ends them all."""
        first = self._answers[0]
        tasks = [asyncio.ensure_future(take(first, 0))]
        prompt_is_computed = asyncio.ensure_future(first.bridge.wait_for_first())
        try:
            if self._share_prompt:
                await asyncio.wait({tasks[0], prompt_is_computed}, return_when=asyncio.FIRST_COMPLETED)
            for n in range(1, self._count):
                if self._stopped:
                    break
                self._answers.append(await self._begin_next(n))
                if self._stopped:  # while it began
                    self._answers[n].bridge.stop()
                tasks.append(asyncio.ensure_future(take(self._answers[n], n)))
            return await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, prompt_is_computed):
                task.cancel()
            await asyncio.gather(*tasks, prompt_is_computed, return_exceptions=True)


async def reserved(
    models: LoadedModels,
    name: str | None,
    request: Request,
    using: ExitStack,
    *,
    embeds: bool = False,
    keep_alive: float | None = None,
    any_kind: bool = False,
) -> LoadedModel:
    """The model that a request names, loaded where it is offered, and kept until ``using`` is closed; see
    ``LoadedModels.reserve``. The body of the request must have been read before."""
    reserving = asyncio.ensure_future(models.reserve(name, embeds=embeds, keep_alive=keep_alive, any_kind=any_kind))
    with client_watch(request.receive, reserving.cancel) as watching:
        try:
            model = await reserving
        except asyncio.CancelledError:
            if reserving.done() and not reserving.cancelled() and reserving.exception() is None:
                reserving.result().release()
            if watching.done():
                raise LeapGenerationError("the client left") from None
            raise
    using.callback(model.release)
    return model


async def start_bridge(bridge: GenerationBridge, receive: Receive) -> bool:
    """Start a generation; whether its client stayed until it was accepted. Raises the error with which it was refused.

    What has to be done before (a schema to compile, a template to render) may take a while, and ends with its client.
    """
    starting = asyncio.ensure_future(bridge.start())
    try:
        with client_watch(receive, bridge.abandon) as watching:
            await asyncio.wait({starting, watching}, return_when=asyncio.FIRST_COMPLETED)
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
