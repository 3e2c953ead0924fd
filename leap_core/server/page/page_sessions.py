"""What the page may do beside asking models, for whom, and the conversations that it keeps as sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...conversation.calls.declaration import LeapFunction
from ...conversation.media.fetching import UrlAccess
from ...conversation.messages import ChatMessage, messages_from_json
from ...conversation.sessions import Session, SessionStore
from ...errors import LeapSerializationError, LeapSessionError
from ...protocols.openai.requests import with_documents
from ...schemas.json_values import number_at, object_at, text_at
from ...system.dataclass import dataclass
from ...tools.policy import FunctionPolicy
from ..access import refuse_other_origins, refused_key
from ..http import AsciiJSON, Refused, read_body

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
            refuse_other_origins(request)
            headers = request.headers
            problem = refused_key(headers.get("authorization", ""), headers.get("x-api-key", ""), token)
            if problem is not None:
                raise problem
            return await endpoint(request)

        return Route(path, guarded, methods=[method])


Value = TypeVar("Value")

SESSIONS_PATH = "/leap/sessions"
MOST_LISTED = 200


class PageSessions:
    """The sessions in ``file``. A request and its messages are read in a thread, for pictures are decoded."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def routes(self, services: PageServices) -> list[Route]:
        one = SESSIONS_PATH + "/{id}"
        return [
            services.route(SESSIONS_PATH, self.list),
            services.route(SESSIONS_PATH, self.create, "POST"),
            services.route(one, self.session),
            services.route(one, self.replace, "POST"),
            services.route(one, self.remove, "DELETE"),
            services.route(one + "/name", self.rename, "POST"),
        ]

    async def list(self, _request: Request) -> Response:
        """The sessions, the one that was written to last first."""
        sessions = await self._with(lambda store: store.list(MOST_LISTED))
        return AsciiJSON({"sessions": [session.to_json() for session in sessions]})

    async def create(self, request: Request) -> Response:
        """``{"model", "messages"}``: a new session."""
        model, messages = await read_body(request, _new)

        def work(store: SessionStore) -> Session | None:
            id = store.create(model=model).id
            try:
                store.replace(id, messages)
            except BaseException:
                store.remove(id)
                raise
            return store.get(id)

        return _described(await self._with(work))

    async def session(self, request: Request) -> Response:
        """A session with its messages."""

        def work(store: SessionStore) -> Any:
            session = _existing(store, request)
            messages = [message.to_json() for message in store.history(session.id)]
            return {"session": session.to_json(), "messages": messages}

        return AsciiJSON(await self._with(work))

    async def replace(self, request: Request) -> Response:
        """``{"messages", "instead_of": N}`` in the place of the N that there were; 409 where another program wrote."""
        messages, instead_of = await read_body(request, _changed)

        def work(store: SessionStore) -> Session | None:
            session = _existing(store, request)
            if not store.replace(session.id, messages, instead_of=instead_of):
                raise Refused(409, "session_changed", LeapSessionError("another program wrote to this session"))
            return store.get(session.id)

        return _described(await self._with(work))

    async def rename(self, request: Request) -> Response:
        """``{"name"}``: another name; 400 for one that is taken or is none."""
        name = await read_body(request, lambda body: text_at(object_at(body, "body").get("name"), "name"))

        def work(store: SessionStore) -> Session | None:
            session = _existing(store, request)
            try:
                store.rename(session.id, name)
            except LeapSessionError as error:
                raise Refused(400, "invalid_value", error) from None
            return store.get(session.id)

        return _described(await self._with(work))

    async def remove(self, request: Request) -> Response:
        """Forget a session."""
        await self._with(lambda store: store.remove(_existing(store, request).id))
        return AsciiJSON({"deleted": True})

    async def _with(self, work: Callable[[SessionStore], Value]) -> Value:
        def run() -> Value:
            with SessionStore(self._file) as store:
                return work(store)

        return await asyncio.to_thread(run)


def _existing(store: SessionStore, request: Request) -> Session:
    """The session with exactly this id. Raises Refused (404)."""
    id = request.path_params["id"]
    session = store.get(id)
    if session is None or session.id != id:
        raise Refused(404, "not_found", LeapSessionError(f"there is no session {id!r}"))
    return session


def _described(session: Session | None) -> Response:
    return AsciiJSON({"session": None if session is None else session.to_json()})


def _new(body: Any) -> tuple[str | None, Sequence[ChatMessage]]:
    fields = object_at(body, "body")
    model = fields.get("model")
    return None if model is None else text_at(model, "model"), _messages(fields)


def _changed(body: Any) -> tuple[Sequence[ChatMessage], int]:
    fields = object_at(body, "body")
    instead_of = number_at(fields.get("instead_of"), "instead_of")
    if not isinstance(instead_of, int):
        raise LeapSerializationError("expected a whole number", path="instead_of")
    return _messages(fields), instead_of


def _messages(fields: dict[str, Any]) -> Sequence[ChatMessage]:
    messages, _notes = with_documents(fields.get("messages"), UrlAccess.DATA)
    return messages_from_json(messages, urls=UrlAccess.DATA)
