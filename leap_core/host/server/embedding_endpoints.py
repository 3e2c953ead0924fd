"""/v1/embeddings and /v1/rerank: vectors and late interaction, by models that are loaded when they are first asked for.

They are named as `leap models list` names them; a request cannot name a file. The two that were used last stay loaded,
beside those that the server was started with.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...errors import LeapModelNotFoundError, LeapSerializationError
from ...models.references.resolving import LocalModel, resolve_local
from ...openai.embeddings import embedding_reply, read_embedding_request, read_rerank_request, rerank_reply
from ...options import ModelLoadingOptions
from ...runner.embedding import EmbeddingRunner
from ...search.late_interaction import rank
from .loaded_models import LoadedModel, LoadedModels
from .long_work import finish
from .request_bodies import read_body

MOST_LOADED = 2
NAME = re.compile(r"[\w][\w.+-]*(:[\w.+-]+)?(/[\w][\w.+-]*(:[\w.+-]+)?)?")
FILE_ENDINGS = (".gguf", ".json", ".bundle")

Loader = Callable[[LocalModel, ModelLoadingOptions], EmbeddingRunner]


def check_name(name: str) -> None:
    """Raises LeapModelNotFoundError for what could be a path: a request cannot reach files."""
    if not NAME.fullmatch(name) or name.lower().endswith(FILE_ENDINGS):
        raise LeapModelNotFoundError(f"there is no model {name[:80]!r}", hint="name an installed model")


class EmbeddingModels:
    """The models for vectors that are loaded. Any thread may ask."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._guard = threading.Lock()
        self._loaded: dict[str, EmbeddingRunner] = {}

    def get(self, name: str) -> EmbeddingRunner:
        """The model of this name, loaded now or before. Raises LeapModelNotFoundError, also for a path."""
        check_name(name)
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
    """The two endpoints: over the models that the server ``held`` from its start, and others."""

    def __init__(self, held: LoadedModels, others: EmbeddingModels) -> None:
        self._held, self._others = held, others

    def routes(self) -> list[Route]:
        return [
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/v1/rerank", self.rerank, methods=["POST"]),
        ]

    async def embeddings(self, request: Request) -> Response:
        """A vector of unit length for each text."""
        body = await read_body(request, read_embedding_request)

        def work(runner: EmbeddingRunner, stop: threading.Event) -> Any:
            counts = runner.count_tokens(body.texts, body.kind)
            rows = runner.embed(body.texts, cancelled=stop, **body.options)
            return embedding_reply(
                rows, body.as_base64, runner.model_id, sum(min(count, runner.most_tokens) for count in counts)
            )

        return await self._answer(request, body.model, work)

    async def rerank(self, request: Request) -> Response:
        """The documents by how well they answer the query."""
        body = await read_body(request, read_rerank_request)

        def work(runner: EmbeddingRunner, stop: threading.Event) -> Any:
            counts = runner.count_tokens([body.query, *body.documents])
            ranked = rank(runner, body.query, body.documents, cancelled=stop)
            return rerank_reply(body, runner.model_id, ranked, sum(counts))

        return await self._answer(request, body.model, work)

    async def _answer(
        self, request: Request, name: str | None, work: Callable[[EmbeddingRunner, threading.Event], Any]
    ) -> Response:
        if name is None:
            raise LeapSerializationError("expected a model's name", path="model")
        held = self._held_model(name)
        if held is None:
            runner = await asyncio.to_thread(self._others.get, name)
            return JSONResponse(await finish(request, lambda stop: work(runner, stop)))
        with held.embedder_in_use() as runner:
            return JSONResponse(await finish(request, lambda stop: work(runner, stop)))

    def _held_model(self, name: str) -> LoadedModel | None:
        try:
            model = self._held.named(name)
        except LeapModelNotFoundError:
            return None
        return model if model.embeds else None
