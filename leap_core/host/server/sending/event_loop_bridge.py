"""One generation between two worlds: a thread that iterates it, and the event loop that sends it on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TypeAlias

from ....errors import LeapError, LeapGenerationError
from ....responses import Complete, MessageResponse
from ....runner.contract import Generation
from ....runner.giving_up import given_up_when

Item: TypeAlias = MessageResponse | LeapError


MOST_BEGINNING = 8
"""Requests that are prepared at once. Each is a thread, and the event loop takes turns with all that want to run."""
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
