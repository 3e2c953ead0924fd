"""/v1/embeddings and /v1/rerank: vectors and late interaction, by models that are loaded when they are first asked for.

They are named as `leap models list` names them; a request cannot name a file. The two that were used last stay loaded.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...errors import LeapModelNotFoundError
from ...models.references.resolving import LocalModel, resolve_local
from ...openai.embeddings import embedding_reply, read_embedding_request, read_rerank_request, rerank_reply
from ...options import ModelLoadingOptions
from ...runner.embedding import EmbeddingRunner
from ...search.late_interaction import rank
from .request_bodies import read_body

MOST_LOADED = 2
NAME = re.compile(r"[\w][\w.+-]*(:[\w.+-]+)?(/[\w][\w.+-]*(:[\w.+-]+)?)?")
FILE_ENDINGS = (".gguf", ".json", ".bundle")

Loader = Callable[[LocalModel, ModelLoadingOptions], EmbeddingRunner]


class EmbeddingModels:
    """The models for vectors that are loaded. Any thread may ask."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._guard = threading.Lock()
        self._loaded: dict[str, EmbeddingRunner] = {}

    def get(self, name: str) -> EmbeddingRunner:
        """The model of this name, loaded now or before. Raises LeapModelNotFoundError, also for a path."""
        if not NAME.fullmatch(name) or name.lower().endswith(FILE_ENDINGS):
            raise LeapModelNotFoundError(f"there is no model {name[:80]!r}", hint="name an installed model")
        local = resolve_local(name)
        key = str(local.path.resolve())
        with self._guard:
            runner = self._loaded.pop(key, None) or self._load(local, ModelLoadingOptions())
            self._loaded[key] = runner  # the last one is the newest
            oldest = list(self._loaded)[:-MOST_LOADED]
            leaving = [self._loaded.pop(each) for each in oldest]
        for each in leaving:
            each.unload()
        return runner


class EmbeddingEndpoints:
    """The two endpoints over these models."""

    def __init__(self, models: EmbeddingModels) -> None:
        self._models = models

    def routes(self) -> list[Route]:
        return [
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/v1/rerank", self.rerank, methods=["POST"]),
        ]

    async def embeddings(self, request: Request) -> Response:
        """A vector of unit length for each text."""
        embedding_request = await read_body(request, read_embedding_request)
        runner = await asyncio.to_thread(self._models.get, embedding_request.model)
        tokens = await asyncio.to_thread(runner.count_tokens, embedding_request.texts, embedding_request.kind)
        rows = await runner.embed_async(
            embedding_request.texts, embedding_request.kind, dimensions=embedding_request.dimensions
        )
        reply = await asyncio.to_thread(embedding_reply, embedding_request, runner.model_id, rows, sum(tokens))
        return JSONResponse(reply)

    async def rerank(self, request: Request) -> Response:
        """The documents by how well they answer the query."""
        rerank_request = await read_body(request, read_rerank_request)
        runner = await asyncio.to_thread(self._models.get, rerank_request.model)
        counts = await asyncio.to_thread(runner.count_tokens, [rerank_request.query, *rerank_request.documents])
        ranked = await asyncio.to_thread(rank, runner, rerank_request.query, rerank_request.documents)
        return JSONResponse(rerank_reply(rerank_request, runner.model_id, ranked, sum(counts)))
