"""What the page may do beside asking models, and for whom: who has its key, from the page itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....functions.declaration import LeapFunction
from ....tools.policy import FunctionPolicy
from ..process.access import refused_key, refused_origin

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class PageServices:
    """``sessions``: the file where conversations are kept, ``functions`` what models may call under ``policy``,
    ``indexes`` the names of those that are searched below ``index_directory``. ``guides``: names with their titles, and
    ``guide`` gives the Markdown of one. ``key``: what must be shown for any of it; None where nothing is private.
    """

    sessions: Path | None = None
    functions: Sequence[LeapFunction] = ()
    policy: FunctionPolicy = field(default_factory=FunctionPolicy)
    indexes: Sequence[str] = ()
    index_directory: Path | None = None
    guides: Mapping[str, str] = field(default_factory=dict)
    guide: Callable[[str], str] | None = None
    key: str | None = None

    @property
    def are_private(self) -> bool:
        """Whether they reach what belongs to the user: there must be a key then."""
        return bool(self.sessions or self.functions or self.indexes)

    def route(self, path: str, endpoint: Endpoint, method: str = "GET") -> Route:
        """A route that is refused to pages of other origins, also of this machine, and to who does not have the key."""
        token = None if self.key is None else self.key.encode()

        async def guarded(request: Request) -> Response:
            origin = request.headers.get("origin")
            if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
                raise refused_origin(origin)
            headers = request.headers
            problem = refused_key(headers.get("authorization", ""), headers.get("x-api-key", ""), token)
            if problem is not None:
                raise problem
            return await endpoint(request)

        return Route(path, guarded, methods=[method])
