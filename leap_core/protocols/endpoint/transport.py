"""Requests to an endpoint as bytes of HTTP: the client, redirects, encodings, bounds and the events of a stream."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from ...errors import LeapEndpointError
from ...models.aliases_and_endpoints import Endpoint
from ...schemas.json_values import JsonObject
from ...system.http import client, origin, redirected
from .errors import EndpointErrors, Refusal
from .retries import Patience

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
WHOLE_SILENCES = 2
"""An answer in one piece may take so many silences."""
STREAM, JSON = "text/event-stream", "application/json"


class RefusedError(Exception):
    """The endpoint answered with an error status."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


class Transport:
    """One request, one answer; nothing is tried twice. Used from one event loop only."""

    def __init__(self, endpoint: Endpoint, key: str | None, patience: Patience, words: EndpointErrors) -> None:
        self.endpoint, self.patience, self.words = endpoint, patience, words
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        self._headers = {"Content-Type": JSON, "Accept-Encoding": "gzip", **authorization, **dict(endpoint.headers)}
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def ask(self, method: str, url: str, body: JsonObject | None) -> Any:
        """A short answer as JSON. Raises LeapEndpointError."""
        try:
            content = None if body is None else _encoded(body)
            async with self._ready().stream(method, url, content=content, headers=self._headers) as answer:
                data = await self._bounded(answer, LONGEST_EVENT if answer.status_code == 200 else MOST_OF_ERROR)
        except httpx.HTTPError as error:
            raise self.words.of_exception(error, 1) from None
        if answer.status_code != 200:
            raise self.words.of_refusal(Refusal(answer.status_code, answer.reason_phrase, answer.headers, data))
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise LeapEndpointError(f"{self.endpoint.host} answered with what is no JSON") from None

    async def post(self, url: str, body: JsonObject, take: Callable[[object], object]) -> None:
        """Send a request and hand over each event of its answer, or the whole answer. Raises RefusedError,
        LeapEndpointError or httpx.HTTPError."""
        content = _encoded(body)
        for _ in range(MOST_REDIRECTS):
            send = self._ready().stream
            timeout = self._timeout(1 if "stream" in body else WHOLE_SILENCES)
            async with send("POST", url, content=content, headers=self._headers, timeout=timeout) as answer:
                if answer.has_redirect_location:
                    url = self._next(url, answer.headers["location"])
                    continue
                await self._read(answer, take, streams="stream" in body)
                return
        raise LeapEndpointError(f"{self.endpoint.host} redirects in circles")

    def _timeout(self, silences: int = 1) -> httpx.Timeout:
        return httpx.Timeout(self.patience.silence * silences, connect=self.patience.connect, pool=None)

    def _next(self, url: str, location: str) -> str:
        target = redirected(url, location)
        if origin(target) != origin(url):
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
        """Raises RefusedError, or LeapEndpointError for an answer that is of another kind."""
        body = await self._bounded(answer, MOST_OF_ERROR)
        refusal = Refusal(answer.status_code, answer.reason_phrase, answer.headers, body)
        if answer.status_code != 200 or refusal.is_page:
            raise RefusedError(refusal)
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
            try:
                self._client = client(
                    httpx.AsyncClient,
                    timeout=self._timeout(),
                    secure=self.endpoint.url.startswith("https://"),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
                    mounts={f"all://{host}": None for host in LOOPBACK},  # no proxy knows this machine by these names
                )
            except OSError as error:
                raise LeapEndpointError(f"cannot set up HTTP: {self.words.plain(str(error))}") from None
        return self._client


def _encoded(body: JsonObject) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode("ascii")
