"""The page for people: static files without a build step, which ask the server's own endpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

FILES = Path(__file__).parent / "page_files"
PAGES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
PAGE_PATHS = frozenset(PAGES)
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    """The page at / and what it needs. Nothing comes from another place."""
    return [Route(path, partial(_file, name, kind)) for path, (name, kind) in PAGES.items()]


async def _file(name: str, kind: str, _request: Request) -> Response:
    return FileResponse(FILES / name, media_type=kind, headers=HEADERS)
