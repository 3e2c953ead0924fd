"""The endpoints that tell of models: health, what is loaded, what it can do, its tokens, and measurements."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...errors import LeapSerializationError
from ...json_fields import list_at, text_at
from .loaded_models import LoadedModel, LoadedModels
from .metrics import Metrics
from .request_bodies import read_json

PRIVATE = ("key", "path", "wish")
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/audio/transcriptions",
    "/v1/audio/speech",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/models",
    "/tokenize",
    "/detokenize",
    "/metrics",
    "/props",
    "/health",
)


class ModelEndpoints:
    """What can be asked of the models beside answers."""

    def __init__(self, models: LoadedModels, metrics: Metrics, more_paths: Sequence[str] = ()) -> None:
        self._models, self._metrics, self._more_paths = models, metrics, more_paths

    async def list(self, _request: Request) -> Response:
        """The loaded models, and each with each of its adapters."""
        names = [(model, name) for model in self._models for name in ("", *model.adapters)]
        listed = [_described(model, f"{model.name}+{name}" if name else model.name) for model, name in names]
        return JSONResponse({"object": "list", "data": listed})

    async def one(self, request: Request) -> Response:
        """One loaded model."""
        name = request.path_params["model"]
        model = self._models.named(name)
        return JSONResponse(_described(model, name if model.named_adapters(name) else model.name))

    async def health(self, _request: Request) -> Response:
        """Whether requests are answered."""
        loading = any(model.state == "loading" for model in self._models) or not len(self._models)
        state = {"status": "loading" if loading else "ok", "models": [model.name for model in self._models]}
        return JSONResponse(state, 503 if loading else 200)

    async def metrics(self, _request: Request) -> Response:
        """Measurements in Prometheus' format."""
        return Response(await asyncio.to_thread(self._metrics.text), media_type=PROMETHEUS)

    async def props(self, _request: Request) -> Response:
        """What the models can do."""
        paths = [*ENDPOINTS, *dict.fromkeys(self._more_paths)]
        abilities = [_abilities(model) for model in self._models]
        return JSONResponse({"models": abilities, "endpoints": paths, "jobs": "/leap/jobs" in paths})

    async def tokenize(self, request: Request) -> Response:
        """``{"content": text, "parse_special": bool}`` -> ``{"tokens": [...]}``."""
        body = await _object(request)
        text = text_at(body.get("content"), "content")
        special = body.get("parse_special", False) is True
        with self._models.to_answer(_model_of(body)).in_use(answers=False) as runner:
            tokens = await asyncio.to_thread(runner.tokenize, text, parse_special=special)
        return JSONResponse({"tokens": tokens})

    async def detokenize(self, request: Request) -> Response:
        """``{"tokens": [...]}`` -> ``{"content": text}``."""
        body = await _object(request)
        tokens = list_at(body.get("tokens"), "tokens")
        for n, token in enumerate(tokens):
            if not isinstance(token, int) or isinstance(token, bool) or token < 0:
                raise LeapSerializationError("expected a token id", path=f"tokens[{n}]")
        with self._models.to_answer(_model_of(body)).in_use(answers=False) as runner:
            text = await asyncio.to_thread(runner.detokenize, tokens)
        return JSONResponse({"content": text})


def _described(model: LoadedModel, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "leap",
        "leap": {key: value for key, value in model.to_json().items() if key not in PRIVATE},
    }


def _abilities(model: LoadedModel) -> dict[str, Any]:
    details = _described(model, model.name)["leap"]
    kind = getattr(model.local, "kind", "text")
    return {
        **details,
        "kind": kind,
        "constraints": ["json_schema", "regex", "grammar", "choices"],
        "function_call_parser": model.local.parser_name,
        "sampling": {name: value for name, value in vars(model.local.sampling).items() if value is not None},
        "queue": model.queue,
        "tokens_generated": model.throughput.total,
    }


def _model_of(body: dict[str, Any]) -> str | None:
    model = body.get("model")
    return None if model is None else text_at(model, "model")


async def _object(request: Request) -> dict[str, Any]:
    body = await read_json(request)
    if not isinstance(body, dict):
        raise LeapSerializationError("expected a JSON object", path="body")
    return body
