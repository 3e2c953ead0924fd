"""Vectors and late interaction over HTTP: /v1/embeddings, /v1/rerank, and what the warm client asks.

A request: ``model`` (its key), ``texts``, and the options of ``EmbeddingRunner.embed``; ``each_token`` for
``embed_tokens``. The answer: ``vectors`` one behind the other, and how many ``rows`` each text has.

They are named as `leap models list` names them; a request cannot name a file. The two that were used last stay loaded,
beside those that the server was started with.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ...conversation.embedding import EMBEDDING, EmbeddingRunner, rank
from ...errors import LeapError, LeapOptionsError, LeapSerializationError
from ...protocols.openai.embeddings import (
    embedding_reply,
    encoded,
    read_embedding_request,
    read_rerank_request,
    rerank_reply,
)
from ...schemas.json_values import JsonObject, error_to_json, list_at, object_at, text_at
from ..answers import reserved
from ..http import AsciiJSON, check_countable, finish, read_body, read_json
from ..models.loaded_models import LoadedModels


class EmbeddingEndpoints:
    """The two endpoints over ``models``."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models

    def routes(self) -> list[Route]:
        return [
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            *(Route(path, self.rerank, methods=["POST"]) for path in ("/v1/rerank", "/v2/rerank")),
        ]

    async def embeddings(self, request: Request) -> Response:
        """A vector of unit length for each text."""
        body = await read_body(request, read_embedding_request)

        def work(runner: EmbeddingRunner, stop: threading.Event) -> Any:
            texts = runner.texts_of(body.texts)
            check_countable(*texts)
            counts = runner.count_tokens(texts, body.options.kind)
            try:
                rows = runner.embed(texts, cancelled=stop, **body.options.to_json())
            except LeapOptionsError as error:  # by the name that the text has in the body
                raise LeapOptionsError(error.option.replace("texts", "input", 1), error.reason) from None
            tokens = sum(min(count, runner.most_tokens) for count in counts)
            return embedding_reply(rows, body.as_base64, runner.model_id, tokens, body.notes)

        return await self._answer(request, body.model, work, body.keep_alive, any_kind=body.options.pooling is not None)

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
        any_kind: bool = False,
    ) -> Response:
        if name is None:
            raise LeapSerializationError("expected a model's name", path="model")
        with ExitStack() as using:
            model = await reserved(
                self._models, name, request, using, embeds=True, keep_alive=keep_alive, any_kind=any_kind
            )
            runner = using.enter_context(model.embedder_in_use())
            return AsciiJSON(await finish(request, lambda stop: work(runner, stop)))


class EmbedderEndpoints:
    """Vectors of the models that the host holds."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models

    def routes(self) -> list[Route]:
        return [Route("/leap/embed", self.embed, methods=["POST"]), Route("/leap/count", self.count, methods=["POST"])]

    async def embed(self, request: Request) -> Response:
        """Vectors of unit length for the texts. The head of the answer comes at once, so that the client has a
        connection which it can end."""
        body = await _read(request)
        using = ExitStack()
        runner = using.enter_context(self._models.named(body["model"]).embedder_in_use())
        return StreamingResponse(_answer(request, using, runner, body), media_type="application/json")

    async def count(self, request: Request) -> Response:
        """Tokens of each text."""
        body = await _read(request)
        with self._models.named(body["model"]).embedder_in_use() as runner:
            counts = await asyncio.to_thread(runner.count_tokens, body["texts"], body.get("kind") or "document")
        return AsciiJSON({"tokens": counts})


async def _read(request: Request) -> JsonObject:
    body = object_at(await read_json(request, most_values=None), "body")  # a text may have many commas
    return {**body, "model": text_at(body.get("model"), "model"), "texts": list_at(body.get("texts"), "texts")}


async def _answer(
    request: Request, using: ExitStack, runner: EmbeddingRunner, body: JsonObject
) -> AsyncIterator[bytes]:
    with using:
        try:
            value = await finish(request, partial(_vectors, runner, body))
        except LeapError as error:
            value = {"error": error_to_json(error)}
        yield json.dumps(value).encode("ascii")


def _vectors(runner: EmbeddingRunner, body: JsonObject, stop: threading.Event) -> JsonObject:
    import numpy as np

    options = {name: body[name] for name in EMBEDDING if body.get(name) is not None}
    if not body.get("each_token"):
        rows = runner.embed(body["texts"], cancelled=stop, **options)
        return {"rows": [1] * len(rows), "vectors": encoded(rows)}
    several = runner.embed_tokens(body["texts"], cancelled=stop, **options)
    together = np.concatenate(several) if several else np.zeros((0, runner.dimensions), np.float32)
    return {"rows": [len(rows) for rows in several], "vectors": encoded(together)}
