"""Bodies of requests read within bounds, JSON and errors sent, and work given up when its client leaves."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive

from .. import errors
from ..errors import LeapError, LeapGenerationError, LeapSerializationError, LeapUnavailableError
from ..protocols.anthropic import error_body
from ..protocols.ollama import error_text
from ..protocols.openai.replies import error_object, status_of
from ..protocols.openai.requests import reading_until
from ..schemas.json_values import JsonObject

AT_ONCE = 10_000
"""Numbers of a list that are written without a pause for other threads: it takes a millisecond."""


class AsciiJSON(JSONResponse):
    """A value as JSON. Half a character, which JSON can spell, is spelled again."""

    def render(self, content: Any) -> bytes:
        fields = content.items() if isinstance(content, dict) else ()
        if not any(isinstance(each, list) and len(each) > AT_ONCE for _, each in fields):
            return _json(content)
        return b"{" + b",".join(_json(str(name)) + b":" + _list_in_pieces(each) for name, each in fields) + b"}"


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _list_in_pieces(value: Any) -> bytes:
    if not isinstance(value, list) or len(value) <= AT_ONCE:
        return _json(value)
    pieces = (value[start : start + AT_ONCE] for start in range(0, len(value), AT_ONCE))
    return b"[" + b",".join(_json(piece)[1:-1] for piece in pieces) + b"]"


ErrorBody = Callable[[int, LeapError, JsonObject], tuple[int, JsonObject]]
ERROR_BODIES: dict[str, ErrorBody] = {}
"""By path, how a feature's protocol writes an error, from the status, the error and OpenAI's body."""
ANTHROPIC = "/v1/messages"
OLLAMA = "/api/"


class Refused(Exception):
    """A request that is answered with this status and error. ``retry_after``: seconds."""

    def __init__(
        self,
        status: int,
        code: str,
        error: LeapError,
        *,
        kind: str = "invalid_request_error",
        retry_after: int | None = None,
    ) -> None:
        super().__init__(error.message)
        self.status, self.code, self.error, self.kind, self.retry_after = status, code, error, kind, retry_after


def unacceptable(error: LeapError) -> LeapError | Refused:
    """An error that came before any work was done: where its class does not say more, the request is at fault."""
    if isinstance(error, LeapGenerationError) and status_of(error)[0] == 500:
        return Refused(400, "invalid_request", error)
    return error


def queue_full(model: str, waiting: int) -> Refused:
    """Too many wait already."""
    error = errors.LeapQueueFullError(
        f"the queue of {model} is full: {waiting} requests wait",
        hint="try again later, or load the model with a larger --queue",
    )
    return Refused(429, "queue_full", error, kind="rate_limit_error", retry_after=1)


def still_loading(model: str) -> Refused:
    """The model is on its way."""
    error = errors.LeapUnavailableError(f"{model} is still being loaded", hint="try again in a moment")
    return Refused(503, "model_loading", error, kind="server_error", retry_after=1)


def stopping() -> Refused:
    """The server ends before the answer does."""
    return Refused(503, "stopped", LeapUnavailableError("the server is being stopped"), kind="server_error")


def too_many_wait(waiting: int) -> Refused:
    """No more requests may wait for their models."""
    error = errors.LeapUnavailableError(f"{waiting} requests wait for models to be loaded", hint="try again later")
    return Refused(503, "overloaded", error, kind="server_error", retry_after=5)


def body_of(failure: LeapError | Refused) -> tuple[int, JsonObject]:
    """Status and OpenAI's error object; ``leap`` in it has the error's class and fields."""
    if isinstance(failure, Refused):
        status, kind, code, error = failure.status, failure.kind, failure.code, failure.error
    else:
        error = failure
        status, kind, code = status_of(error)
    return status, {"error": error_object(error, kind, code)}


def answer(failure: LeapError | Refused, path: str = "") -> AsciiJSON:
    """The refusal as a response, in the form of the protocol that ``path`` belongs to."""
    status, body = body_of(failure)
    if path.startswith(OLLAMA):
        body = error_text(failure.error if isinstance(failure, Refused) else failure)
    elif path.startswith(ANTHROPIC):
        body = error_body(status, failure.error if isinstance(failure, Refused) else failure)
    elif path in ERROR_BODIES:
        status, body = ERROR_BODIES[path](status, failure.error if isinstance(failure, Refused) else failure, body)
    if status != 422 and status < 500:  # the text of an answer that did not fit is kept whole
        body = _shortened(body)
    retry = failure.retry_after if isinstance(failure, Refused) else None
    return AsciiJSON(body, status, {} if retry is None else {"Retry-After": str(retry)})


def _shortened(value: Any) -> Any:
    """A refusal without much of what it refuses."""
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    return errors.shortened(value) if isinstance(value, str) else value


@contextmanager
def client_watch(receive: Receive, leave: Callable[[], object]) -> Iterator[asyncio.Task[None]]:
    """Call ``leave``, on the event loop, when the client leaves while the block runs; the task is done then. The body
    of the request must have been read before."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        leave()

    watching = asyncio.create_task(watch())
    try:
        yield watching
    finally:
        watching.cancel()


Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class Threads:
    """Threads for one kind of work, so that none waits for another kind. ``queue``: calls that may wait for them."""

    def __init__(self, name: str, most: int, queue: int = 256) -> None:
        self._pool, self._name = ThreadPoolExecutor(most, f"leap-{name}"), name
        self._places = threading.BoundedSemaphore(most + queue)

    async def run(
        self, work: Callable[Arguments, Value], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Value:
        """What ``work`` returns. Raises Refused where too many calls wait."""
        if not self._places.acquire(blocking=False):
            error = LeapUnavailableError(f"too many requests wait ({self._name})", hint="try again in a moment")
            raise Refused(503, "overloaded", error, kind="server_error", retry_after=5)
        future = self._pool.submit(copy_context().run, lambda: work(*arguments, **named))
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)


WORK = Threads("work", 8, 1000)
BODIES = Threads("bodies", 8)
READING = Threads("reading", 12, 24)
"""Documents, images and audio. Documents that take long wait for each other in some of these threads."""
LOADING = Threads("loading", 8)
PULLING = Threads("pulling", 4, 16)
STORE = Threads("store", 4)
"""What is kept on disk, batches and jobs."""


async def finish(request: Request, work: Callable[[threading.Event], Value], threads: Threads = WORK) -> Value:
    """What ``work`` returns; its event is set when the client is gone, and it does not begin where that is so. Raises
    LeapGenerationError then."""
    cancelled = threading.Event()

    def begin() -> Value:
        result = None if cancelled.is_set() else work(cancelled)
        if cancelled.is_set():
            raise LeapGenerationError("the client left")
        return cast(Value, result)

    with client_watch(request.receive, cancelled.set):
        try:
            return await threads.run(begin)
        except asyncio.CancelledError:
            raise stopping() from None
        finally:
            cancelled.set()


Read = TypeVar("Read")

LARGEST_BODY = 64 * 1024 * 1024
MOST_VALUES = 200_000
"""Python parses JSON without letting other threads run: these take some hundredths of a second."""
MOST_DEPTH = 100
"""Objects and lists may be nested this deep; what goes through them calls itself for each level."""
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


MEDIA = {"file", "input_file", "document", "image", "image_url", "input_image", "input_audio"}
"""Types of parts whose content is decoded or fetched."""


def _holds_media(body: object) -> bool:
    """Whether there are parts that take long to read."""
    parts = [body]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            kind = part.get("type")
            if (isinstance(kind, str) and kind in MEDIA) or any(isinstance(part.get(n), list) for n in LISTED):
                return True
            parts += part.values()
        elif isinstance(part, (list, tuple)):
            parts += part
    return False


LISTED = ("images", "files")
"""Fields of Ollama's and System One's protocols."""


async def read_body(
    request: Request,
    read: Callable[[Any], Read],
    *,
    load: Callable[[Any], Any] | None = None,
    most_values: int | None = MOST_VALUES,
    largest: int | None = None,
) -> Read:
    """What ``read`` makes of the request's body, of ``largest`` bytes at most (LARGEST_BODY by default), in a thread.
    ``load``: what is kept that the body continues from; then ``read`` gets both. Documents and media have threads of
    their own, and are read no further when their client leaves."""
    async with _whole_body(request, largest) as body:

        def begin() -> tuple[Any, list[Read]]:
            value = _parse_in_turn(body, most_values)
            value = value if load is None else (value, load(value))
            return value, [] if _holds_media(value) else [read(value)]

        value, result = await BODIES.run(begin)

        def go_on(left: threading.Event) -> Read:
            with reading_until(left):
                return read(value)

        return result[0] if result else await finish(request, go_on, READING)


async def read_json(request: Request, *, most_values: int | None = MOST_VALUES, largest: int | None = None) -> Any:
    """The request's body. Raises Refused when it is too large, LeapSerializationError when it is not JSON."""
    return await read_body(request, lambda value: value, most_values=most_values, largest=largest)


@asynccontextmanager
async def _whole_body(request: Request, largest: int | None) -> AsyncIterator[bytearray]:
    """The bytes of the body, which count as held until the block ends. Raises Refused when they are more than the
    ``largest``, or with those of other requests more than MOST_HELD."""
    body = bytearray()
    largest = LARGEST_BODY if largest is None else largest
    check_declared(request, largest)
    try:
        async for piece in request.stream():
            body += piece
            _Held.bytes += len(piece)
            if len(body) > largest:
                raise _too_large(largest)
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


def check_declared(request: Request, largest: int) -> None:
    """Raises Refused for a body of which the head says that it is larger."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > largest:
        raise _too_large(largest)


def _too_large(largest: int) -> Refused:
    error = LeapSerializationError(f"the request is larger than {largest // 1024**2} MiB")
    return Refused(413, "request_too_large", error)


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
