"""The HTTP application: routes, and errors as the error objects of each protocol."""

from __future__ import annotations

import logging
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....errors import LeapError, LeapGenerationError, LeapUnavailableError
from ..models.loaded_models import LoadedModels
from ..protocols.decision_endpoints import DecisionEndpoints
from ..protocols.embedding_endpoints import EmbeddingEndpoints
from ..protocols.generation_endpoints import GenerationEndpoints
from ..protocols.model_endpoints import ModelEndpoints
from ..protocols.speech_endpoint import SpeechEndpoint
from ..protocols.transcription_endpoint import transcriptions
from ..sending.http_errors import Refused, answer

log = logging.getLogger("leap.host")


def build_app(
    models: LoadedModels, generation: GenerationEndpoints, more_routes: list[Route] | None = None
) -> Starlette:
    """The endpoints of OpenAI's and Anthropic's protocols over these models, and further routes."""
    about = ModelEndpoints(models, generation.metrics, [route.path for route in more_routes or ()])
    routes = [
        Route("/health", about.health),
        Route("/props", about.props),
        Route("/metrics", about.metrics),
        Route("/tokenize", about.tokenize, methods=["POST"]),
        Route("/detokenize", about.detokenize, methods=["POST"]),
        Route("/tokenizer_info", about.tokenizer_info),
        Route("/v1/models", about.list),
        Route("/v1/models/{model:path}", about.one),
        Route("/v1/chat/completions", generation.chat, methods=["POST"]),
        Route("/v1/completions", generation.completion, methods=["POST"]),
        Route("/v1/audio/speech", SpeechEndpoint(models).speech, methods=["POST"]),
        Route("/v1/responses", generation.responses, methods=["POST"]),
        Route("/v1/responses/input_tokens", generation.input_tokens, methods=["POST"]),
        Route("/v1/messages", generation.messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", generation.count_tokens, methods=["POST"]),
        Route("/v1/audio/transcriptions", transcriptions(models), methods=["POST"]),
        *DecisionEndpoints(models, urls=generation.urls).routes(),
        *EmbeddingEndpoints(models).routes(),
        *(more_routes or ()),
    ]
    return Starlette(routes=routes, exception_handlers=HANDLERS)


async def _failed(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, (LeapError, Refused))
    return answer(failure, request.url.path)


async def _no_such_thing(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    if failure.status_code == 405:
        message, code = f"{request.url.path} does not take {request.method}", "method_not_allowed"
    else:
        message, code = f"there is no {request.url.path}", "not_found"
    error = LeapUnavailableError(message, hint="see docs/host.md for what there is")
    return answer(Refused(failure.status_code, code, error), request.url.path)


async def _broken(request: Request, failure: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=failure)
    error = LeapGenerationError(f"{type(failure).__name__}: {failure}", hint="this is a bug in leap")
    return answer(error, request.url.path)


HANDLERS: dict[Any, Any] = {
    LeapError: _failed,
    Refused: _failed,
    HTTPException: _no_such_thing,
    Exception: _broken,
}
"""What becomes of an exception in an endpoint."""
