"""The page on which a person looks over extractions, served to this machine; decisions go into the file at once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import LeapError, LeapUnavailableError
from ..protocols.host.host_http import LOOPBACK
from ..tasks.evidence.evidence import Thresholds
from ..tasks.review.documents import DecidedElsewhereError, ReviewFile, read_changes
from ..tasks.review.page import page, page_data
from .access import AccessCheck, refused_origin
from .application import HANDLERS, Server, listen, on_signals
from .http import AsciiJSON, Refused, read_json

LARGEST_BODY = 4 * 1024 * 1024
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page itself has the rest
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve_review(
    file: ReviewFile, below: float | Thresholds, directory: Path, on_listening: Callable[[str], object]
) -> None:
    """Serve the page until SIGINT or SIGTERM. ``directory``: where the documents' files are looked for.
    ``on_listening`` is called with its address, which has a fresh key. Raises LeapUnavailableError where there is no
    port."""
    key = secrets.token_urlsafe(16)
    try:
        listener = listen(LOOPBACK, 0)
    except OSError as error:
        raise LeapUnavailableError(f"cannot listen on {LOOPBACK}: {error.strerror or error}") from None
    address = f"http://{LOOPBACK}:{listener.getsockname()[1]}/#key={key}"

    async def run() -> None:
        server = Server.of(application(file, below, key, directory))
        on_signals(asyncio.get_running_loop(), server.end)
        serving = asyncio.create_task(server.serve([listener]))
        on_listening(address)
        await serving

    with suppress(KeyboardInterrupt):
        asyncio.run(run())


def application(file: ReviewFile, below: float | Thresholds, key: str, directory: Path | None = None) -> ASGIApp:
    """The page, which has no data until it shows the key, its documents, and the decisions about them."""
    first = page_data(file.reviews, below, file.path.name, directory)
    kept = {name: first[name] for name in ("digest", "pictures")}

    async def home(_request: Request) -> Response:
        return HTMLResponse(page(None), headers=HEADERS)

    async def documents(_request: Request) -> Response:
        return AsciiJSON({**page_data(file.reviews, below, file.path.name), **kept}, headers=HEADERS)

    async def decisions(request: Request) -> Response:
        origin, host = request.headers.get("origin"), request.headers.get("host")
        if origin not in (None, f"http://{host}"):
            raise refused_origin(str(origin))
        document, changes = read_changes(await read_json(request, largest=LARGEST_BODY))
        if not 0 <= document < len(file.reviews):
            raise _refused(404, "not_found", LeapUnavailableError(f"{file.path.name} has no document {document}"))
        try:
            file.take(document, changes)
        except DecidedElsewhereError as error:
            raise _refused(409, "decided_elsewhere", error) from None
        except LeapError as error:
            if type(error) is not LeapError:
                raise
            raise _refused(507, "not_saved", error) from None  # the disk is full, or the file cannot be written
        decided, count = file.decided
        return AsciiJSON({"decided": decided, "values": count}, headers=HEADERS)

    routes = [Route("/", home), Route("/review", documents), Route("/review/decisions", decisions, methods=["POST"])]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    return AccessCheck(app, token=key, pages=True, open_paths=frozenset({"/"}))


def _refused(status: int, code: str, error: LeapError) -> Refused:
    more: dict[str, Any] = {"kind": "server_error"} if status >= 500 else {}
    return Refused(status, code, error, **more)
