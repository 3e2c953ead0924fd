"""/v1/decisions (OpenAI) and /v1/systemone (System One): typed questions about a state, answered by probabilities."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ...conversation.media.fetching import UrlAccess
from ...conversation.runner import ModelRunner
from ...errors import LeapGenerationError, LeapSerializationError
from ...tasks.decisions.answer_probabilities import side_by_side
from ...tasks.decisions.answers import Decided
from ...tasks.decisions.deciding import decide
from ...tasks.decisions.protocols import (
    PATH,
    DecisionRequest,
    decisions_reply,
    read_decisions,
    read_systemone,
    systemone_error,
    systemone_reply,
)
from ..answers import reserved
from ..http import (
    ERROR_BODIES,
    LARGEST_BODY,
    MOST_VALUES,
    READING,
    AsciiJSON,
    Refused,
    finish,
    parse_body,
    read_body,
    unacceptable,
)
from ..models.loaded_models import LoadedModels
from .generation import GenerationEndpoints

REQUEST_ID = "x-typesafe-request-id"
MOST_PARTS = 16
Write = Callable[[Decided, str], Any]
ERROR_BODIES[PATH] = systemone_error


def routes(models: LoadedModels, generation: GenerationEndpoints) -> list[Route]:
    """Those of the feature, for ``application.FEATURES``."""
    return DecisionEndpoints(models, urls=generation.urls).routes()


class DecisionEndpoints:
    """The two endpoints over ``models``. ``urls``: what the URLs of pictures may reach."""

    def __init__(self, models: LoadedModels, *, urls: UrlAccess = UrlAccess.DATA) -> None:
        self._models, self._urls = models, urls

    def routes(self) -> list[Route]:
        return [Route("/v1/decisions", self.decisions, methods=["POST"]), Route(PATH, self.systemone, methods=["POST"])]

    async def decisions(self, request: Request) -> Response:
        """OpenAI's."""
        asked = await read_body(request, lambda body: read_decisions(body, urls=self._urls))
        return await self._answer(request, asked, decisions_reply)

    async def systemone(self, request: Request) -> Response:
        """System One's; pictures may come as parts of a form."""
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            asked = await self._read_form(request)
        else:
            asked = await read_body(request, lambda body: read_systemone(body, urls=self._urls))
        response = await self._answer(request, asked, systemone_reply)
        response.headers[REQUEST_ID] = secrets.token_hex(8)
        return response

    async def _read_form(self, request: Request) -> DecisionRequest:
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > LARGEST_BODY:
            error = LeapSerializationError(f"the request is larger than {LARGEST_BODY // 1024**2} MiB")
            raise Refused(413, "request_too_large", error)
        try:
            async with request.form(max_files=MOST_PARTS, max_fields=MOST_PARTS, max_part_size=LARGEST_BODY) as form:
                parts = {name: await _bytes_of(part) for name, part in form.items()}
        except ClientDisconnect:
            raise LeapSerializationError("the connection ended within the request", path="body") from None
        except HTTPException as error:  # starlette's word for a damaged form
            raise LeapSerializationError(f"the form cannot be read: {error.detail}") from None
        body = parse_body(bytearray(parts.pop("request", b"")), MOST_VALUES)
        return await READING.run(read_systemone, body, parts, urls=self._urls)

    async def _answer(self, request: Request, asked: DecisionRequest, write: Write) -> Response:
        with ExitStack() as using:
            model = await reserved(self._models, asked.model, request, using)
            runner = using.enter_context(model.in_use())
            decided = await finish(request, lambda left: _decided(runner, asked, left))
        return AsciiJSON(write(decided, asked.model or model.name))


async def _bytes_of(part: UploadFile | str) -> bytes:
    return await part.read() if isinstance(part, UploadFile) else part.encode()


def _decided(runner: ModelRunner, asked: DecisionRequest, left: threading.Event) -> Decided:
    try:
        return decide(runner, asked.decision, asked.settings, ask=side_by_side(runner, left.is_set))
    except LeapGenerationError as error:
        raise unacceptable(error) from None
