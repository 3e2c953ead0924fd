"""Several answers to one request: the first computes the prompt, and the others begin when that is done, if they share
it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....errors import LeapError
from ....openai.replies import OpenAIReply
from ....responses import Complete
from .answers import GENERATION_HEADER, WRITE_SECONDS, Answer, event_stream_headers
from .client_watch import client_watch
from .json_response import AsciiJSON

BeginNext = Callable[[int], Awaitable[Answer]]
"""Starts the answer of this number. Raises LeapError where it is refused."""
MOST_UNSENT = 64
"""Pieces that wait for a slow reader; then the answers are read on more slowly."""


class SeveralAnswers(Response):
    """Sends ``reply.several`` or, where the request streams, chunks of all answers as they come, distinguished by their
    index. When the reader leaves, all end. ``using`` is closed at the end. ``prompts``: as many were given."""

    def __init__(
        self, reply: OpenAIReply, first: Answer, begin_next: BeginNext, using: ExitStack, *, prompts: int = 1
    ) -> None:
        super().__init__()
        self._reply, self._answers, self._begin_next, self._using = reply, [first], begin_next, using
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
        try:
            with client_watch(receive, self.stop):
                await (self._stream(scope, receive, send) if self._streams else self._whole(scope, receive, send))
        finally:
            for answer in self._answers:
                answer.bridge.abandon()
            await asyncio.gather(*(answer.bridge.close() for answer in self._answers))
            self._using.close()

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        completes = await self._each(lambda answer, _: answer.complete())
        headers = {GENERATION_HEADER: self._reply.id}
        await AsciiJSON(self._reply.several(completes), headers=headers)(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        unsent: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_UNSENT)
        making = asyncio.create_task(self._make(unsent))
        try:
            headers = event_stream_headers(self._reply.id, self._reply.media_type)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while (piece := await unsent.get()) is not None:
                if piece:
                    body = {"type": "http.response.body", "body": piece, "more_body": True}
                    await asyncio.wait_for(send(body), WRITE_SECONDS)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (OSError, asyncio.TimeoutError):
            pass  # the reader left, or reads no more
        finally:
            making.cancel()
            with suppress(asyncio.CancelledError):
                await making

    async def _make(self, unsent: asyncio.Queue[bytes | None]) -> None:
        """Put what is to be sent into the queue, at last None."""
        try:
            completes = await self._each(lambda answer, n: self._pass_on(answer, n, unsent))
            await unsent.put(self._reply.end_of_several(completes))
        except LeapError as error:
            await unsent.put(self._reply.failed(error))
        await unsent.put(None)

    async def _pass_on(self, answer: Answer, n: int, unsent: asyncio.Queue[bytes | None]) -> Complete:
        reply = self._reply.of_choice(n)
        await unsent.put(reply.begin())
        async for batch in answer.bridge.batches():
            for item in batch:
                complete = answer.taken(item)
                if complete is not None:
                    await unsent.put(b"".join(answer.ending(item, complete, reply)))
                    return complete
                assert not isinstance(item, LeapError)
                await unsent.put(b"".join(reply.pieces(item)))
        raise answer.given_up()

    async def _each(self, take: Callable[[Answer, int], Awaitable[Complete]]) -> list[Complete]:
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
