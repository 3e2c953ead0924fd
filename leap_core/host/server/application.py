"""The HTTP application: routes, and errors as OpenAI's error objects."""

from __future__ import annotations

import logging
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...errors import LeapError, LeapGenerationError, LeapUnavailableError
from .generation_endpoints import GenerationEndpoints
from .http_errors import Refused, answer
from .loaded_models import LoadedModel, LoadedModels
from .transcription_endpoint import transcriptions

log = logging.getLogger("leap.host")


def build_app(
    models: LoadedModels, answering: GenerationEndpoints, more_routes: list[Route] | None = None
) -> Starlette:
    """OpenAI's endpoints over these models, and further routes (see ``management``)."""

    async def list_models(_request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_described(model) for model in models]})

    async def one_model(request: Request) -> Response:
        return JSONResponse(_described(models.named(request.path_params["model"])))

    async def health(_request: Request) -> Response:
        loading = any(model.state == "loading" for model in models) or not len(models)
        state = {"status": "loading" if loading else "ok", "models": [model.name for model in models]}
        return JSONResponse(state, 503 if loading else 200)

    routes = [
        Route("/health", health),
        Route("/v1/models", list_models),
        Route("/v1/models/{model:path}", one_model),
        Route("/v1/chat/completions", answering.chat, methods=["POST"]),
        Route("/v1/completions", answering.completion, methods=["POST"]),
        Route("/v1/audio/transcriptions", transcriptions(models), methods=["POST"]),
        *(more_routes or ()),
    ]
    handlers: dict[Any, Any] = {
        LeapError: _failed,
        Refused: _failed,
        HTTPException: _no_such_thing,
        Exception: _broken,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


def _described(model: LoadedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "leap",
        "leap": {key: value for key, value in model.to_json().items() if key not in ("key", "path", "wish")},
    }


async def _failed(_request: Request, failure: Exception) -> Response:
    assert isinstance(failure, (LeapError, Refused))
    return answer(failure)


async def _no_such_thing(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    if failure.status_code == 405:
        message, code = f"{request.url.path} does not take {request.method}", "method_not_allowed"
    else:
        message, code = f"there is no {request.url.path}", "not_found"
    error = LeapUnavailableError(message, hint="see docs/host.md for what there is")
    return answer(Refused(failure.status_code, code, error))


async def _broken(request: Request, failure: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=failure)
    return answer(LeapGenerationError(f"{type(failure).__name__}: {failure}", hint="this is a bug in leap"))
