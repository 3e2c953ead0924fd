"""/v1/embeddings and /v1/rerank: vectors and late interaction, by models that are loaded when they are first asked for.

They are named as `leap models list` names them; a request cannot name a file. The two that were used last stay loaded,
beside those that the server was started with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....errors import LeapOptionsError, LeapSerializationError
from ....openai.embeddings import embedding_reply, read_embedding_request, read_rerank_request, rerank_reply
from ....runner.embedding import EmbeddingRunner
from ....search.late_interaction import rank
from ..models.loaded_models import LoadedModels
from ..sending.json_response import AsciiJSON
from ..sending.long_work import finish
from ..sending.starting import reserved
from .request_bodies import check_countable, read_body


class EmbeddingEndpoints:
    """The two endpoints over ``models``."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models

    def routes(self) -> list[Route]:
        return [
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/v1/rerank", self.rerank, methods=["POST"]),
        ]

    async def embeddings(self, request: Request) -> Response:
        """A vector of unit length for each text."""
        body = await read_body(request, read_embedding_request)

        def work(runner: EmbeddingRunner, stop: threading.Event) -> Any:
            check_countable(*body.texts)
            counts = runner.count_tokens(body.texts, body.kind)
            try:
                rows = runner.embed(body.texts, cancelled=stop, **body.options)
            except LeapOptionsError as error:  # by the name that the text has in the body
                raise LeapOptionsError(error.option.replace("texts", "input", 1), error.reason) from None
            return embedding_reply(
                rows, body.as_base64, runner.model_id, sum(min(count, runner.most_tokens) for count in counts)
            )

        return await self._answer(request, body.model, work, body.keep_alive)

    async def rerank(self, request: Request) -> Response:
        """The documents by how well they answer the query."""
        body = await read_body(request, read_rerank_request)

        def work(runner: EmbeddingRunner, stop: threading.Event) -> Any:
            check_countable(body.query, *body.documents)
            counts = runner.count_tokens([body.query, *body.documents])
            ranked = rank(runner, body.query, body.documents, cancelled=stop)
            return rerank_reply(body, runner.model_id, ranked, sum(counts))

        return await self._answer(request, body.model, work, body.keep_alive)

    async def _answer(
        self,
        request: Request,
        name: str | None,
        work: Callable[[EmbeddingRunner, threading.Event], Any],
        keep_alive: float | None,
    ) -> Response:
        if name is None:
            raise LeapSerializationError("expected a model's name", path="model")
        with ExitStack() as using:
            model = await reserved(self._models, name, request, using, embeds=True, keep_alive=keep_alive)
            runner = using.enter_context(model.embedder_in_use())
            return AsciiJSON(await finish(request, lambda stop: work(runner, stop)))
