"""The page for people: static files without a build step, which ask the server's own endpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from .markdown_endpoint import markdown_route

FILES = Path(__file__).parent / "page_files"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
SCRIPTS = ("page.js", "conversation.js", "turns.js", "kept.js", "server.js")
PAGES = {"/": "index.html", **{f"/{name}": name for name in ("page.css", *SCRIPTS)}}
PAGE_PATHS = frozenset(PAGES)
"""They need no key: the page asks for it."""
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
    return [*(Route(path, partial(_file, name)) for path, name in PAGES.items()), markdown_route()]


async def _file(name: str, _request: Request) -> Response:
    path = FILES / name
    return FileResponse(path, media_type=KINDS[path.suffix], headers=HEADERS)
