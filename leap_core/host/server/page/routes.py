"""The page for people: static files without a build step, which ask the server's own endpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ..models.loaded_models import LoadedModels
from .guides import about_route, guide_route
from .markdown import markdown_route
from .passages import PagePassages
from .services import PageServices
from .sessions import PageSessions
from .tools import PageTools

FILES = Path(__file__).parent / "files"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
SCRIPTS = tuple(sorted(path.name for path in FILES.glob("*.js")))
PAGES = {"/": "index.html", **{f"/{name}": name for name in ("page.css", *SCRIPTS)}}
PAGE_PATHS = frozenset(PAGES)
"""They need no key: the page asks for it."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; media-src blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes(services: PageServices | None = None, models: LoadedModels | None = None) -> list[Route]:
    """The page at / and what it needs. Nothing comes from another place."""
    services = services or PageServices()
    tools = PageTools(services)
    routes = [*(Route(path, partial(_file, name)) for path, name in PAGES.items()), markdown_route()]
    routes += [about_route(services, tools.described), guide_route(services)]
    if services.sessions is not None:
        routes += PageSessions(services.sessions).routes(services)
    if services.functions:
        routes += tools.routes(services)
    if services.indexes and models is not None:
        routes += PagePassages(services, models).routes(services)
    return routes


async def _file(name: str, _request: Request) -> Response:
    path = FILES / name
    return FileResponse(path, media_type=KINDS[path.suffix], headers=HEADERS)
