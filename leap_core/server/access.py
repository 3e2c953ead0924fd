"""Who may speak to the server, from where, and how much a client may keep open."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

import h11
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import LeapUnavailableError
from ..protocols.host.host_state import INSTANCE_HEADER
from ..protocols.openai.replies import SERVER, error_object
from .http import Refused, answer

LOOPBACK_NAMES = {"127.0.0.1", "localhost", "::1"}
CONTAINER_NAMES = {"host.docker.internal", "host.containers.internal", "gateway.docker.internal"}
"""What containers call the machine they run on. No other site can point these names here, as it can one of its own."""


class PlainPaths:
    """ASGI middleware: paths with slashes too many, and endpoints of /v1 that are asked for without it."""

    def __init__(self, app: ASGIApp, paths: Collection[str]) -> None:
        heads = [path.split("/")[1:3] for path in paths]
        self._app, self._of_v1 = app, {head[1] for head in heads if head[0] == "v1"} - {head[0] for head in heads}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            parts = list(filter(None, scope["path"].split("/")))
            parts = ["v1", *parts] if parts[:1] and parts[0] in self._of_v1 else parts
            scope["path"] = "/" + "/".join(parts)  # in place: the log around it reads which route answered
        await self._app(scope, receive, send)


def for_local_pages(app: ASGIApp) -> ASGIApp:
    """The same, usable by scripts of web pages that this machine serves: browsers ask first, and want an answer."""
    origins = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
    return CORSMiddleware(app, allow_origin_regex=origins, allow_methods=["GET", "POST", "DELETE"], allow_headers=["*"])


class AccessCheck:
    """ASGI middleware. ``token``: what must follow "Bearer" (None: nothing is asked for). ``any_name``: the server is
    meant to be reached by other names than this machine's own, and then there must be a token. ``names``: those it is
    reached by besides. ``open_paths`` need no
    token. ``pages``: requests of web pages that this machine serves itself are allowed. ``stamp`` goes into a header of
    every answer to who had the token."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        any_name: bool = False,
        names: Collection[str] = (),
        open_paths: frozenset[str] = frozenset(),
        pages: bool = False,
        stamp: str | None = None,
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._any_name = any_name
        self._names = LOOPBACK_NAMES | CONTAINER_NAMES | {name.lower() for name in names}
        self._open_paths = open_paths
        self._pages = pages
        self._stamp = [] if stamp is None else [(INSTANCE_HEADER.lower().encode(), stamp.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refuse(scope) if scope["type"] == "http" else None
        if refused is not None:
            await answer(refused, scope["path"])(scope, receive, send)
        elif not self._stamp:
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, self._stamping(send))

    def _stamping(self, send: Send) -> Send:
        async def send_stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._stamp]}
            await send(message)

        return send_stamped

    def _refuse(self, scope: Scope) -> Refused | None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, value)
        name = _host_name("//" + headers.get(b"host", b"").decode("latin-1"))
        if not self._any_name and name not in self._names:
            return _refused(
                403,
                "foreign_host",
                f"requests to {name or 'no host'} are refused: only this machine is served"
                + (f" (leap serve --option allow-host={name} allows that name)" if name else ""),
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._allows(
            origin.decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
        ):
            return refused_origin(origin.decode("latin-1"))
        if scope["path"] in self._open_paths:
            return None
        if origin is None and headers.get(b"sec-fetch-site") == b"cross-site":  # a picture or a link of another page
            return refused_origin("other sites")
        authorization, api_key = (headers.get(name, b"").decode("latin-1") for name in (b"authorization", b"x-api-key"))
        return refused_key(authorization, api_key, self._token)

    def _allows(self, origin: str, host: str) -> bool:
        """Whether pages of this origin may ask. The server's own pages have the host that was asked, but so does a name
        that another site points here: without a token, that is no proof."""
        if not self._pages:
            return False
        own = self._any_name and self._token is not None and origin in (f"http://{host}", f"https://{host}")
        return own or _host_name(origin) in LOOPBACK_NAMES


def refused_origin(origin: str) -> Refused:
    """The refusal of a request of a web page of another origin."""
    return _refused(403, "foreign_origin", f"requests from web pages of {origin} are refused")


def refuse_other_origins(request: Request) -> None:
    """Refuse a request of a web page that this server has not served, also of one of this machine. Raises Refused."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise refused_origin(origin)


def refused_key(authorization: str, api_key: str, token: bytes | None) -> Refused | None:
    """Why these headers do not open what ``token`` does, None where they do: ``api_key`` is that of Anthropic's
    clients."""
    if token is None:
        return None
    scheme, _, key = authorization.partition(" ")
    if scheme.lower() != "bearer" or not key:
        key = api_key
    if not key:
        return _refused(401, "invalid_api_key", "the request has no bearer token (Authorization: Bearer …)")
    if not hmac.compare_digest(key.strip().encode("latin-1"), token):
        return _refused(401, "invalid_api_key", "the bearer token is wrong")
    return None


def _host_name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _refused(status: int, code: str, message: str) -> Refused:
    kind = "authentication_error" if status == 401 else "permission_error"
    return Refused(status, code, LeapUnavailableError(message), kind=kind)


HEAD_SECONDS = 10.0
"""From the connection, or from a request's first byte, to the end of its head."""
BODY_SECONDS = 20.0
"""A body may take this long, beside what its length takes at the slowest rate that is waited for."""
SLOWEST_RATE = 64 * 1024
"""Bytes a second."""
FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS = 0.05, 1.0
"""Between two looks whether a client that closed its side is still there."""


class BoundedProtocol(H11Protocol):
    """One connection. A subclass made by ``with_limit`` says how many there may be."""

    most_connections = 0
    head_seconds = HEAD_SECONDS
    body_seconds = BODY_SECONDS

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0
    _bytes = 0
    _owes = ""
    _half_closed = False

    @classmethod
    def with_limit(cls, most_connections: int, **seconds: float) -> type[BoundedProtocol]:
        """The protocol of a server with this many connections at most; ``seconds``: other timeouts."""
        return type("BoundedProtocol", (cls,), {"most_connections": most_connections, **seconds})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            message = f"{self.most_connections} connections are open already"
            error = LeapUnavailableError(message, hint="try again in a moment")
            self._refuse("503 Service Unavailable", error, "too_many_connections")
            return
        self._expect("head")

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._bytes += len(data)
        super().data_received(data)
        self._look_what_is_owed()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's says None, which asyncio takes for False
        """A client that closed only its own side, before the answer began, still gets the answer to a whole request."""
        if not self._is_answering() or self.cycle.response_started:
            return False
        self._half_closed = True
        self._probe(FIRST_PROBE_SECONDS)
        return True

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and self._owes != "body"

    def _probe(self, pause: float) -> None:
        """Find out whether the client closed both sides: bytes that are sent then break the connection. HTTP/1.1
        allows any number of these before an answer. HTTP/1.0 does not; its client counts as gone."""
        if self.transport.is_closing() or not self._is_answering():
            return
        if not self.cycle.response_started:
            if self.scope["http_version"] == "1.0":
                self.transport.close()
                return
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.loop.call_later(pause, self._probe, min(2 * pause, LONGEST_PROBE_SECONDS))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look_what_is_owed()
        if self._half_closed and not self._is_answering():
            self.transport.close()

    def _look_what_is_owed(self) -> None:
        if self.transport.is_closing():
            self._expect("")
        elif self.conn.their_state is h11.SEND_BODY:
            self._expect("body")
        elif self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self._expect("head")
        else:
            self._expect("")

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("")
        super().connection_lost(exc)

    def _expect(self, part: str) -> None:
        """Begin to wait for this part of a request, or continue waiting for it; "" waits for nothing."""
        if part == self._owes:
            return
        self._owes, self._since, self._bytes = part, time.monotonic(), 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if part:
            self._timer = self.loop.call_later(self._allowed(), self._look)

    def _allowed(self) -> float:
        return self.head_seconds if self._owes == "head" else self.body_seconds + self._bytes / SLOWEST_RATE

    def _look(self) -> None:
        self._timer = None
        rest = self._since + self._allowed() - time.monotonic()
        if rest > 0:
            self._timer = self.loop.call_later(rest, self._look)
        elif self._owes == "head" and self._bytes:
            error = LeapUnavailableError("the request did not come to its end in time")
            self._refuse("408 Request Timeout", error, "request_timeout")
        else:
            self.transport.close()

    def _refuse(self, status: str, error: LeapUnavailableError, code: str) -> None:
        body = json.dumps({"error": error_object(error, SERVER, code)}).encode("ascii")
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Retry-After: 1\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
