"""Answers of models as HTML for the page: Markdown without markup of its own, and of that only what is harmless."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....json_fields import list_at, object_at, text_at
from ..protocols.request_bodies import read_body
from ..sending.json_response import AsciiJSON

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
