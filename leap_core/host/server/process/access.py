"""Who may speak to the server: the right token, no foreign name for this machine, no page of another site."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ....errors import LeapUnavailableError
from ...client.rendezvous import INSTANCE_HEADER
from ..sending.http_errors import Refused, answer

LOOPBACK_NAMES = {"127.0.0.1", "localhost", "::1"}


def for_local_pages(app: ASGIApp) -> ASGIApp:
    """The same, usable by scripts of web pages that this machine serves: browsers ask first, and want an answer."""
    origins = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
    return CORSMiddleware(app, allow_origin_regex=origins, allow_methods=["GET", "POST", "DELETE"], allow_headers=["*"])


class AccessCheck:
    """ASGI middleware. ``token``: what must follow "Bearer" (None: nothing is asked for). ``any_name``: the server is
    meant to be reached by other names than this machine's own, and then there must be a token. ``open_paths`` need no
    token. ``pages``: requests of web pages that this machine serves itself are allowed. ``stamp`` goes into a header of
    every answer to who had the token."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        any_name: bool = False,
        open_paths: frozenset[str] = frozenset(),
        pages: bool = False,
        stamp: str | None = None,
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._any_name = any_name
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
        if not self._any_name and name not in LOOPBACK_NAMES:
            return _refused(
                403, "foreign_host", f"requests to {name or 'no host'} are refused: only this machine is served"
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._allows(
            origin.decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
        ):
            return refused_origin(origin.decode("latin-1"))
        if scope["path"] in self._open_paths:
            return None
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
    """The refusal of a request of a web page that comes from elsewhere."""
    return _refused(403, "foreign_origin", f"requests from web pages of {origin} are refused")


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
