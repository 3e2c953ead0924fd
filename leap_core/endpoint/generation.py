"""One answer of an endpoint, and the check of its shape."""

from __future__ import annotations

from ..json_fields import JsonObject
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import LeapEndpointError, LeapError, LeapGenerationError, LeapOptionsError
from ..options import GenerationOptions
from ..responses import Complete, MessageResponse
from ..runner.generator import Generation
from .connection import Connection, Reads
from .errors import NoSuchPathError
from .replies import ReplyReader



@dataclass(frozen=True)
class Way:
    """One of the addresses that answer a request: its body, and what reads its answer for a chat's reader."""

    path: str
    body: Callable[[], JsonObject]
    reader: Callable[[ReplyReader], Reads] = lambda reply: reply


class EndpointGeneration(Generation):
    """The responses of one answer, as the connection's loop brings them."""

    def __init__(
        self,
        connection: Connection,
        ways: Sequence[Way],
        options: GenerationOptions,
        on_end: Callable[[EndpointGeneration], object],
    ) -> None:
        self._connection, self._on_end = connection, on_end
        self._reply = ReplyReader(options, time.monotonic())
        self._events: queue.SimpleQueue[MessageResponse | LeapError | None] = queue.SimpleQueue()
        self._ready: deque[MessageResponse | LeapError | None] = deque()
        self._delivered: list[MessageResponse] = []
        self._stopped = self._ended = False
        self._cut: LeapError | None = None
        self._task: Future[None] = connection.submit(_exchange(connection, ways, self._reply, self._events.put))

    def wait(self, seconds: float) -> None:
        """Wait until the answer has begun, at most so long. Raises the error that came instead."""
        with suppress(queue.Empty):
            first = self._events.get(timeout=seconds)
            if isinstance(first, LeapError):
                self.close()
                raise self._cut or first
            self._ready.append(first)

    def __next__(self) -> MessageResponse:
        while not self._ended:
            if self._cut is not None:
                self.close()
                raise self._cut
            if self._stopped:
                self.close()
                return self._reply.interrupted(self._delivered)
            response = self._ready.popleft() if self._ready else self._events.get()
            if self._stopped or self._cut is not None or response is None:
                continue  # None: who stops or cuts wakes the reader
            if isinstance(response, LeapError):
                self.close()
                raise response
            if isinstance(response, Complete):
                self.close()
            else:
                self._delivered.append(response)
            return response
        raise StopIteration

    def stop(self) -> None:
        self._stopped = True
        self._wake()

    def cut(self, error: LeapGenerationError) -> None:
        """From any thread: give the answer up, and let its reader see this error."""
        self._cut = error
        self._wake()

    def _wake(self) -> None:
        self._task.cancel()
        self._events.put(None)

    def close(self) -> None:
        self._ended = True
        self._task.cancel()
        self._on_end(self)

    def __del__(self) -> None:
        with suppress(Exception):
            self._task.cancel()


async def _exchange(
    connection: Connection,
    ways: Sequence[Way],
    reply: ReplyReader,
    put: Callable[[MessageResponse | LeapError], object],
) -> None:
    """Puts the responses, Complete last, or an error. Knows no generation, so that one that nobody reads is freed."""
    again: list[str] = []
    try:
        await _by_a_way_that_is_there(connection, ways, reply, put, again.append)
        if again:
            reply.warnings.append(_asked_again(again))
        for response in reply.finish():
            put(response)
    except LeapError as error:
        put(error)
    except Exception as error:  # what an endpoint sends must not hang its reader
        put(LeapEndpointError(f"the answer could not be read: {type(error).__name__}", of_request=True))


async def _by_a_way_that_is_there(
    connection: Connection,
    ways: Sequence[Way],
    reply: ReplyReader,
    put: Callable[[MessageResponse | LeapError], object],
    on_again: Callable[[str], object],
) -> None:
    """Ask by the first way that the endpoint has, and remember it. Raises what the first one raised where it has
    none."""
    missing: NoSuchPathError | None = None
    for way in ways[connection.way if connection.way < len(ways) else 0 :]:
        try:
            body = way.body()
        except LeapOptionsError as error:
            if missing is None:
                raise
            missing.hint = f"{missing.hint}; if it has the Responses API alone, leave {error.option} out"
            break
        try:
            await connection.exchange(way.path, body, way.reader(reply), put, on_again)
        except NoSuchPathError as error:
            missing = missing or error
            continue
        connection.way = ways.index(way)
        return
    assert missing is not None
    raise missing


def _asked_again(reasons: list[str]) -> str:
    return f"the endpoint was asked {len(reasons) + 1} times: {', '.join(dict.fromkeys(reasons))}"


@dataclass(frozen=True)
class ShapeCheck:
    """What the finished text of an answer is held to: an endpoint promises nothing."""

    validate: Callable[[str], list[str]]
    exact: bool = False
    calls: bool = False

    def problems_of_cut(self, text: str, called: bool) -> list[str]:
        """What is wrong with an answer that was cut."""
        return self.validate(text)


def shape_check(options: GenerationOptions) -> ShapeCheck | None:
    """The check of the shape that the options ask for, None where they ask for none. Raises LeapSchemaError."""
    if options.json_schema_constraint is not None:
        from ..schemas.json_schema import read_schema

        return ShapeCheck(read_schema(options.json_schema_constraint).problems)
    choices = options.choices_constraint
    if choices is None:
        return None

    def validate(text: str) -> list[str]:
        return [] if text in choices else [f"{text[:100]!r} is none of {', '.join(choices)}"]

    return ShapeCheck(validate)
