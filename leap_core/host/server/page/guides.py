"""What the page is told at its beginning, and leap's guides as it shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....errors import LeapNotFoundError
from ..sending.json_response import AsciiJSON
from .markdown import LONGEST_RENDERED, to_html
from .services import PageServices

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
