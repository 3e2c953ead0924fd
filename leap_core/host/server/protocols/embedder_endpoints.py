"""What the client's runner of a warm model for vectors asks the private host: vectors as base64, and counts of tokens.

A request: ``model`` (its key), ``texts``, and the options of ``EmbeddingRunner.embed``; ``each_token`` for
``embed_tokens``. The answer: ``vectors`` one behind the other, and how many ``rows`` each text has.
"""

from __future__ import annotations

from ....json_fields import JsonObject
import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ....error_json import error_to_json
from ....errors import LeapError
from ....json_fields import list_at, object_at, text_at
from ....openai.embeddings import encoded
from ....runner.embedding import EmbeddingRunner
from ..models.loaded_models import LoadedModels
from ..sending.json_response import AsciiJSON
from ..sending.long_work import finish
from .request_bodies import read_json


OPTIONS = ("kind", "pooling", "dimensions", "prefix", "too_long")


class EmbedderEndpoints:
    """Vectors of the models that the host holds."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models

    def routes(self) -> list[Route]:
        return [
            Route("/leap/embed", self.embed, methods=["POST"]),
            Route("/leap/count", self.count, methods=["POST"]),
        ]

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

    options = {name: body[name] for name in OPTIONS if body.get(name) is not None}
    if not body.get("each_token"):
        rows = runner.embed(body["texts"], cancelled=stop, **options)
        return {"rows": [1] * len(rows), "vectors": encoded(rows)}
    several = runner.embed_tokens(body["texts"], cancelled=stop, **options)
    together = np.concatenate(several) if several else np.zeros((0, runner.dimensions), np.float32)
    return {"rows": [len(rows) for rows in several], "vectors": encoded(together)}
