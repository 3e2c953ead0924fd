"""HTTP with an endpoint: one event loop in a thread of its own, so that any request can be given up at any moment."""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

import httpx

from ...conversation.responses import MessageResponse
from ...errors import LeapEndpointError, LeapError
from ...models.endpoints import Endpoint
from ...models.hub_settings import CERTIFICATE_FILES
from ...schemas.json_values import JsonObject
from ...system.dataclass import dataclass
from .errors import PASSING, Refusal, Words


@dataclass(frozen=True)
class Patience:
    """Times in seconds. ``retries`` of a request that failed, each after about twice the wait of the one before;
    ``held_back``: most that a request waits altogether where it is told to (429). ``connect`` and ``silence`` end a
    wait for the connection, and for the next byte."""

    retries: int = 3
    first_wait: float = 0.5
    longest_wait: float = 20.0
    held_back: float = 600.0
    connect: float = 10.0
    silence: float = 300.0

    def wait(self, failures: int) -> float:
        """The wait after so many failures."""
        return min(self.first_wait * float(2 ** (failures - 1)), self.longest_wait) * random.uniform(0.75, 1.25)


class HoldBack:
    """Until when no request is sent, because the endpoint asked for that: one for all requests of a runner. Used from
    its event loop only."""

    def __init__(self) -> None:
        self._until = 0.0

    def extend(self, seconds: float) -> None:
        """Leave the endpoint alone for so long from now on."""
        self._until = max(self._until, time.monotonic() + seconds)

    async def over(self) -> None:
        """Wait until requests may be sent, not all in the same moment."""
        while (rest := self._until - time.monotonic()) > 0:
            await asyncio.sleep(rest + random.uniform(0, min(rest, 1.0) / 4))


MOST_REDIRECTS = 3
MOST_OF_ERROR = 64 * 1024
LONGEST_EVENT = 64 * 1024 * 1024
LONGEST_ANSWER = 256 * 1024 * 1024
"""Bytes of a whole answer, decoded; the longest of a million tokens has less, log-probabilities included."""
PIECE = 256 * 1024
"""Bytes that are decoded at once: a small piece of what is compressed may hold a thousand times as much."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ENCODINGS = {"": None, "identity": None, "gzip": 31, "x-gzip": 31, "deflate": 15}
"""Encodings of HTTP that are read, as zlib's window bits."""
END_SECONDS = 5.0
WHOLE_SILENCES = 2
"""An answer in one piece may take so many silences."""
REDIRECTS = (301, 302, 303, 307, 308)
STREAM, JSON = "text/event-stream", "application/json"


class Reads(Protocol):
    """Takes an answer in pieces, or whole."""

    @property
    def has_begun(self) -> bool: ...

    @property
    def has_ended(self) -> bool: ...

    def feed(self, value: object) -> Iterator[MessageResponse]: ...


class Connection:
    """Requests to one endpoint. ``submit`` may be called from any thread; coroutines run in the loop's. ``what`` the
    endpoint is asked for, in errors."""

    def __init__(self, endpoint: Endpoint, key: str | None, patience: Patience, what: str = "chats") -> None:
        self.endpoint, self.patience = endpoint, patience
        self.words = Words(endpoint, key, what)
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        self._headers = {"Content-Type": JSON, "Accept-Encoding": "gzip", **authorization, **dict(endpoint.headers)}
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: httpx.AsyncClient | None = None
        self._hold_back = HoldBack()
        self._knows_schemas: bool | None = None
        """Whether it takes schemas as OpenAI writes them, or as llama-cpp-python's server does; None before it took
        one."""
        self.way = 0
        """Which of the addresses that answer a request the endpoint has."""
        self._substitutes: dict[str, str | None] = {}
        """Fields that this endpoint refuses, and those that say the same, if any."""

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine in the loop; cancelling the future cancels it."""
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="leap-endpoint", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop and every connection. Requests that run are cancelled."""
        with self._guard:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        end = asyncio.run_coroutine_threadsafe(self._end(), loop)
        if thread is threading.current_thread():  # collected there
            loop.call_soon(loop.stop)
            return
        with suppress(Exception):
            end.result(END_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_SECONDS)
        if not thread.is_alive():
            loop.close()

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def ask(self, method: str, url: str, body: JsonObject | None = None, seconds: float = 30.0) -> Any:
        """A short answer as JSON. Raises LeapEndpointError, without asking again."""
        return self.submit(self._ask(method, url, body)).result(seconds)

    async def _ask(self, method: str, url: str, body: JsonObject | None) -> Any:
        try:
            content = None if body is None else _encoded(body)
            async with self._ready().stream(method, url, content=content, headers=self._headers) as answer:
                data = await self._bounded(answer, LONGEST_EVENT if answer.status_code == 200 else MOST_OF_ERROR)
        except httpx.HTTPError as error:
            raise self._in_words(error, 1, self.patience.silence) from None
        if answer.status_code != 200:
            raise self.words.of_refusal(Refusal(answer.status_code, answer.reason_phrase, answer.headers, data))
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise LeapEndpointError(f"{self.endpoint.host} answered with what is no JSON") from None

    async def exchange(
        self,
        path: str,
        body: JsonObject,
        reply: Reads,
        put: Callable[[MessageResponse], object],
        on_again: Callable[[str], object],
    ) -> None:
        """Send a request, and hand over the responses of its answer, without its end. What may pass is asked again
        while nothing of the answer has come; ``on_again`` hears why. Raises LeapError."""

        def take(value: object) -> None:
            for response in reply.feed(value):
                put(response)

        body = {**body, **self.endpoint.body}
        failures, tries, held_until = 0, 0, time.monotonic() + self.patience.held_back
        of_schema: LeapError | None = None
        while True:
            await self._hold_back.over()
            tries += 1
            try:
                await self._once(self.endpoint.url + path, body, take)
                if not reply.has_ended:
                    raise self.words.of_end()
                if self._knows_schemas is None and (of_schema or _has_schema(body)):
                    self._knows_schemas = of_schema is None
                return
            except _RefusedError as refused:
                refusal = refused.refusal
                error: LeapError = self.words.of_refusal(refusal, tries)
                had_schema = _has_schema(body)
                if self._substitute(refusal, body):
                    if had_schema and not _has_schema(body):
                        of_schema = error
                    continue
                if of_schema is not None and refusal.status in (400, 422):
                    raise of_schema from None  # the schema itself is at fault
                if refusal.status == 429 and not refusal.is_spent:
                    failures += 1
                    wait = refusal.after if refusal.after is not None else self.patience.wait(failures)
                    if time.monotonic() + wait > held_until:
                        raise error from None
                    on_again(refusal.line)
                    self._hold_back.extend(wait)
                    continue
                after = refusal.after if refusal.status in PASSING else None
                reason = refusal.line
            except httpx.HTTPError as failure:
                error = self._in_words(failure, tries, self._silence(body))
                after, reason = None, type(failure).__name__
            except LeapEndpointError as failure:
                error, after, reason = failure, None, "broken off"
            failures += 1
            again = isinstance(error, LeapEndpointError) and error.may_pass
            if not again or reply.has_begun or failures > self.patience.retries:
                raise error
            if after is not None and after > self.patience.held_back:
                raise error
            on_again(reason)
            await asyncio.sleep(self.patience.wait(failures) if after is None else after)

    def _silence(self, body: JsonObject) -> float:
        """How long nothing may come of an answer; one in one piece is silent while it is made."""
        return self.patience.silence * (1 if "stream" in body else WHOLE_SILENCES)

    def _in_words(self, error: Exception, tries: int, silence: float) -> LeapEndpointError:
        return self.words.of_exception(error, self.patience.connect, silence, tries)

    def _substitute(self, refusal: Refusal, body: JsonObject) -> bool:
        """Say in another way what this endpoint does not know; whether there was anything to change."""
        if refusal.status not in (400, 422, 500):
            return False
        said = f"{refusal.param} {refusal.message}"
        if "response_format" in said and _has_schema(body) and not self._knows_schemas:
            _as_object(body)
            return True
        if refusal.status == 500:
            return False
        elif "stream_options" in body and "stream_options" in said:
            self._substitutes["stream_options"] = None
        elif "max_tokens" in body and "max_completion_tokens" in said:
            self._substitutes["max_tokens"] = "max_completion_tokens"
        else:
            return False
        return self._apply_substitutes(body)

    def _apply_substitutes(self, body: JsonObject) -> bool:
        changed = self._knows_schemas is False and _has_schema(body)
        if changed:
            _as_object(body)
        for name, other in self._substitutes.items():
            if name in body:
                value, changed = body.pop(name), True
                if other is not None:
                    body[other] = value
        return changed

    async def _once(self, url: str, body: JsonObject, take: Callable[[object], object]) -> None:
        self._apply_substitutes(body)
        content = _encoded(body)
        for _ in range(MOST_REDIRECTS):
            client = self._ready()
            timeout = httpx.Timeout(self._silence(body), connect=self.patience.connect, pool=None)
            async with client.stream("POST", url, content=content, headers=self._headers, timeout=timeout) as answer:
                if answer.status_code in REDIRECTS and "location" in answer.headers:
                    url = self._next(url, answer.headers["location"])
                    continue
                await self._read(answer, take, streams="stream" in body)
                return
        raise LeapEndpointError(f"{self.endpoint.host} redirects in circles")

    def _next(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        if _origin(target) != _origin(url):
            raise self.words.of_redirect(target)
        return target

    async def _read(self, answer: httpx.Response, take: Callable[[object], object], *, streams: bool) -> None:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status_code != 200 or kind not in (STREAM, JSON):
            await self._refuse(answer, kind)
        if kind == JSON:  # asked for in one piece, or an endpoint that does not stream
            try:
                value = json.loads(await self._bounded(answer, LONGEST_EVENT))
            except (ValueError, RecursionError):
                raise LeapEndpointError(
                    f"{self.endpoint.host} answered with what is no JSON", of_request=not streams, may_pass=not streams
                ) from None
            if isinstance(value, dict) and value.get("error") and "choices" not in value:
                raise self.words.of_event(value)
            take(value)
            return
        async for data in self._events(answer):
            if data == b"[DONE]":
                return
            try:
                value = json.loads(data)
            except (ValueError, RecursionError):
                raise LeapEndpointError(
                    f"{self.endpoint.host} sent a piece of an answer that is no JSON", of_request=True, may_pass=True
                ) from None
            if isinstance(value, dict) and value.get("error"):
                raise self.words.of_event(value)
            take(value)

    async def _refuse(self, answer: httpx.Response, kind: str) -> None:
        """Raises _RefusedError, or LeapEndpointError for an answer that is of another kind."""
        body = await self._bounded(answer, MOST_OF_ERROR)
        refusal = Refusal(answer.status_code, answer.reason_phrase, answer.headers, body)
        if answer.status_code != 200 or refusal.is_page:
            raise _RefusedError(refusal)
        raise LeapEndpointError(
            f"{self.endpoint.host} answered with {self.words.plain(kind) or 'an unnamed type'}, not with an answer",
            hint=f"check the address {self.endpoint.url}; most end in /v1",
        )

    async def _decoded(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        """The body in pieces of at most PIECE bytes, as long as it is not LONGEST_ANSWER."""
        encoding = answer.headers.get("content-encoding", "").strip().lower()
        if encoding not in ENCODINGS:
            raise LeapEndpointError(f"{self.endpoint.host} answers in an encoding that was not asked for")
        bits, size = ENCODINGS[encoding], 0
        decoder = None if bits is None else zlib.decompressobj(bits)
        async for raw in answer.aiter_raw():
            rest = raw
            while rest:
                piece, rest = rest, b""
                if decoder is not None:
                    try:
                        piece = decoder.decompress(piece, PIECE)
                    except zlib.error:
                        raise LeapEndpointError(f"{self.endpoint.host} sent damaged data", may_pass=True) from None
                    rest = decoder.unconsumed_tail
                size += len(piece)
                if size > LONGEST_ANSWER:
                    raise LeapEndpointError(f"{self.endpoint.host} sent an answer without an end", of_request=True)
                yield piece

    async def _bounded(self, answer: httpx.Response, most: int) -> bytes:
        """The body, or its beginning."""
        body = bytearray()
        async for piece in self._decoded(answer):
            body += piece
            if len(body) > most:
                break
        return bytes(body[:most])

    async def _events(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        """The data of a stream's events; each is one line."""
        begun = bytearray()
        async for piece in self._decoded(answer):
            *lines, rest = piece.split(b"\n")
            for line in lines:
                begun += line
                if begun.startswith(b"data:"):
                    yield bytes(begun[5:]).strip()
                begun.clear()
            begun += rest
            if len(begun) > LONGEST_EVENT:
                return
        if begun.startswith(b"data:"):
            yield bytes(begun[5:]).strip()

    def _ready(self) -> httpx.AsyncClient:
        """The client, made when it is first needed: certificates take a while to load."""
        if self._client is None:
            from ...system import __version__

            secure = self.endpoint.url.startswith("https://")
            ca_file = next((os.environ[name] for name in CERTIFICATE_FILES if os.environ.get(name)), None)
            try:
                trusted = ssl.create_default_context(cafile=ca_file) if ca_file else True
                self._client = httpx.AsyncClient(
                    timeout=httpx.Timeout(self.patience.silence, connect=self.patience.connect, pool=None),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
                    verify=trusted if secure else False,
                    follow_redirects=False,
                    mounts={f"all://{host}": None for host in LOOPBACK},  # no proxy knows this machine by these names
                    headers={"User-Agent": f"leap/{__version__}"},
                )
            except ImportError as error:
                raise LeapEndpointError(
                    f"the proxy that $ALL_PROXY or $HTTPS_PROXY names is not spoken to: {self.words.plain(str(error))}",
                    hint="pip install 'httpx[socks]', or unset the variable",
                ) from None
            except (OSError, ValueError) as error:  # certificates, or a proxy's address
                raise LeapEndpointError(f"cannot set up HTTP: {self.words.plain(str(error))}") from None
        return self._client


class _RefusedError(Exception):
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


def _has_schema(body: JsonObject) -> bool:
    return "json_schema" in body.get("response_format", {})


def _as_object(body: JsonObject) -> None:
    body["response_format"] = {"type": "json_object", "schema": body["response_format"]["json_schema"]["schema"]}


def _encoded(body: JsonObject) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
