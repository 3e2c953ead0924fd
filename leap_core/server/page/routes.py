"""The page for people: its files, guides, Markdown and tools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ...conversation.messages import LeapFunctionCall
from ...conversation.responses import FunctionResult
from ...errors import LeapNotFoundError
from ...schemas.json_values import list_at, object_at, text_at
from ...system.features import own_parts
from ...tools.execution import run_call
from ...tools.policy import ALLOW, ASK, DENY
from ...tools.run import refusal
from ..http import AsciiJSON, finish, read_body
from ..models.loaded_models import LoadedModels
from .page_sessions import PageServices, PageSessions

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

FEATURES = {"search": "leap_core.server.page.passages:routes"}
"""Functions of the services and the models that return routes of the page."""
MARKDOWN_PATH = "/leap/markdown"
LONGEST_RENDERED = 100_000
"""Characters of all texts of a request together: longer ones take seconds in which nothing else runs."""
TAGS = {
    *("p", "br", "hr", "h4", "h5", "h6", "em", "strong", "s", "blockquote", "ul", "ol", "li", "pre", "code", "a"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "code": {"class"}, "ol": {"start"}}
ABOVE = 3
"""Levels of headings that the page has itself."""


def markdown_route() -> Route:
    """``{"texts": [...]}`` -> ``{"html": [...]}``; null for texts that are too long."""

    async def markdown(request: Request) -> Response:
        texts = await read_body(request, _texts)
        if sum(map(len, texts)) > LONGEST_RENDERED:
            return AsciiJSON({"html": [None] * len(texts)})
        return AsciiJSON({"html": await asyncio.to_thread(lambda: [to_html(text) for text in texts])})

    return Route(MARKDOWN_PATH, markdown, methods=["POST"])


def to_html(text: str) -> str:
    """CommonMark with tables as HTML without scripts, styles, pictures, or links to anything but http(s) and mail."""
    import nh3

    return nh3.clean(
        _parser().render(text),
        tags=TAGS,
        attributes=ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    for rule in ("heading_open", "heading_close"):
        parser.add_render_rule(rule, _lower_heading)
    return parser


def _lower_heading(renderer: Any, tokens: Any, n: int, options: Any, env: Any) -> str:
    tokens[n].tag = f"h{min(6, int(tokens[n].tag[1:]) + ABOVE)}"
    return str(renderer.renderToken(tokens, n, options, env))


def _texts(body: Any) -> list[str]:
    texts = list_at(object_at(body, "body").get("texts"), "texts")
    return [text_at(text, f"texts[{n}]") for n, text in enumerate(texts)]


ABOUT_PATH = "/leap/page"
GUIDE_PATH = "/leap/guides/{name}"


def about_route(services: PageServices, tools: Callable[[], list[dict[str, Any]]]) -> Route:
    """What the page may offer."""

    async def about(_request: Request) -> Response:
        return AsciiJSON(
            {
                "sessions": services.sessions is not None,
                "tools": tools(),
                "rounds": services.policy.rounds,
                "indexes": list(services.indexes),
                "guides": dict(services.guides),
            }
        )

    return services.route(ABOUT_PATH, about)


def guide_route(services: PageServices) -> Route:
    """A guide as HTML, or as ``text`` where it is too long to be rendered."""

    def read(name: str) -> dict[str, str]:
        if services.guide is None or name not in services.guides:
            raise LeapNotFoundError(f"there is no guide {name!r}")
        try:
            text = services.guide(name)
        except FileNotFoundError as error:
            raise LeapNotFoundError(str(error)) from None
        return {"text": text} if len(text) > LONGEST_RENDERED else {"html": to_html(text)}

    async def guide(request: Request) -> Response:
        return AsciiJSON(await asyncio.to_thread(read, request.path_params["name"]))

    return services.route(GUIDE_PATH, guide)


CALL_PATH = "/leap/tools/call"


class PageTools:
    """The tools of ``services``."""

    def __init__(self, services: PageServices) -> None:
        self._functions = {function.name: function for function in services.functions}
        self._policy = services.policy

    def routes(self, services: PageServices) -> list[Route]:
        return [services.route(CALL_PATH, self.call, "POST")]

    def described(self) -> list[dict[str, Any]]:
        """What the page shows of each, and hands to models."""
        return [
            {
                "name": function.name,
                "description": function.description,
                "decision": _shown(self._policy.of(function.name).decision),
                "declaration": function.to_json_object(),
            }
            for function in self._functions.values()
        ]

    async def call(self, request: Request) -> Response:
        """``{"name", "arguments", "allowed"}``: run a call. ``allowed``: the person was asked, and agreed."""
        call, allowed = await read_body(request, _call)
        policy = replace(self._policy, ask=lambda _function, _call: allowed)
        function = self._functions.get(call.name)

        def work(left: threading.Event) -> FunctionResult:
            result = refusal(function, call, policy)
            if result is not None or function is None:
                return result or FunctionResult(call, "", "there is no such function")
            return run_call(function, call, policy.of(call.name), left)

        result = await finish(request, work)
        return AsciiJSON({**result.to_json(), "content": result.message("call").text})


def _shown(decision: str) -> str:
    """What the page does: where a model would decide whether to ask, it asks."""
    return decision if decision in (ALLOW, DENY) else ASK


def _call(body: Any) -> tuple[LeapFunctionCall, bool]:
    fields = object_at(body, "body")
    arguments = object_at(fields.get("arguments"), "arguments")
    return LeapFunctionCall(text_at(fields.get("name"), "name"), arguments), fields.get("allowed") is True


FILES = Path(__file__).parent / "files"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
SCRIPTS = tuple(sorted(path.name for path in FILES.glob("*.js")))
PAGES = {"/": "index.html", **{f"/{name}": name for name in ("page.css", *SCRIPTS)}}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; media-src blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class WebPage:
    """The page of a server, with these services: ``ServerSettings.page``."""

    open_paths = frozenset(PAGES)
    """They need no key: the page asks for it."""

    def __init__(self, services: PageServices) -> None:
        self.services, self.key = services, services.key

    def routes(self, models: LoadedModels) -> list[Route]:
        return page_routes(self.services, models)


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
    if models is not None:
        routes += [route for make in own_parts(FEATURES).values() for route in make(services, models)]
    return routes


async def _file(name: str, _request: Request) -> Response:
    path = FILES / name
    return FileResponse(path, media_type=KINDS[path.suffix], headers=HEADERS)
