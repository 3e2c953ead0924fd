"""The page for people: its files, guides, Markdown, tools and passages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ...conversation.embedding import EmbeddingRunner
from ...conversation.messages import ChatMessage, LeapFunctionCall
from ...conversation.responses import FunctionResult
from ...conversation.runner import ModelRunner
from ...errors import LeapModelNotFoundError, LeapNotFoundError
from ...schemas.json_values import list_at, object_at, text_at
from ...tasks.search.searching import Searcher, Source, prompt_of
from ...tasks.search.updating import Indexes, IndexNotFoundError
from ...tools.execution import run_call
from ...tools.policy import ALLOW, ASK, DENY
from ...tools.run import refusal
from ..answers import reserved
from ..http import AsciiJSON, check_countable, finish, read_body
from ..models.loaded_models import LoadedModels
from .page_sessions import PageServices, PageSessions

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

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


PASSAGES_PATH = "/leap/passages"
MOST_PASSAGES = 5
SHARE = 2
"""Passages take at most this part of a model's context: the rest is for the conversation and the answer."""


class PagePassages:
    """Searches the indexes of ``services``; vectors are made by ``models``."""

    def __init__(self, services: PageServices, models: LoadedModels) -> None:
        assert services.index_directory is not None
        self._names, self._indexes = services.indexes, Indexes(services.index_directory)
        self._models = models

    def routes(self, services: PageServices) -> list[Route]:
        return [services.route(PASSAGES_PATH, self.passages, "POST")]

    async def passages(self, request: Request) -> Response:
        """``{"index", "question", "model"}`` -> ``system``, a prompt with the passages that the model has space for,
        and those as ``sources``; ``note`` says where words alone were searched."""
        index, question, name = await read_body(request, _question)
        check_countable(question)
        if index not in self._names:
            raise IndexNotFoundError(f"the index {index!r} is not offered", hint=f"there is {', '.join(self._names)}")
        with ExitStack() as using:
            embedder, note = await self._embedder(request, index, using)
            model = await reserved(self._models, name, request, using)
            runner = using.enter_context(model.in_use(answers=False))

            def work(_left: threading.Event) -> tuple[Sequence[ChatMessage], list[Source]]:
                with self._indexes.open(index) as opened:
                    hits = Searcher(opened, embedder).search(question, most=MOST_PASSAGES)
                names = (model.name, *runner.header_names)
                return prompt_of(question, hits, lambda messages: _fits(runner, messages), model_names=names)

            messages, sources = await finish(request, work)
        system = messages[0].text if sources else None
        return AsciiJSON({"system": system, "sources": [_described(source) for source in sources], "note": note})

    async def _embedder(
        self, request: Request, index: str, using: ExitStack
    ) -> tuple[EmbeddingRunner | None, str | None]:
        """The model that made the index's vectors, None and why where words alone are searched."""
        reference = await asyncio.to_thread(self._model_of, index)
        if reference is None:
            return None, None
        try:
            model = await reserved(self._models, reference, request, using, embeds=True)
        except LeapModelNotFoundError as error:
            return None, f"only words are searched: {error.message}"
        return using.enter_context(model.embedder_in_use()), None

    def _model_of(self, index: str) -> str | None:
        with self._indexes.open(index) as opened:
            return None if opened.settings is None else opened.settings.model


def _fits(runner: ModelRunner, messages: Sequence[ChatMessage]) -> bool:
    return runner.get_prompt_tokens_size(list(messages)) <= runner.context_size // SHARE


def _described(source: Source) -> dict[str, Any]:
    passage = source.hit.passage
    return {
        "number": source.number,
        "path": passage.path,
        "first": passage.first,
        "last": passage.last,
        "kind": passage.kind,
        "heading": passage.heading,
        "text": passage.text,
    }


def _question(body: Any) -> tuple[str, str, str | None]:
    """The index, what it is asked, and the model that answers, where one is named."""
    fields = object_at(body, "body")
    index, question = (text_at(fields.get(name), name) for name in ("index", "question"))
    return index, question, None if fields.get("model") is None else text_at(fields["model"], "model")


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
