"""Errors as HTTP: which status an error has, and OpenAI's error object around it."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from ... import errors
from ...error_json import error_to_json
from ...errors import LeapError

JsonObject = dict[str, Any]

STATUSES: tuple[tuple[type[LeapError], int, str, str], ...] = (
    (errors.LeapGenerationPromptExceedContextLengthError, 413, "invalid_request_error", "context_length_exceeded"),
    (errors.LeapConstraintError, 422, "constraint_error", "constraint_not_satisfied"),
    (errors.LeapSchemaError, 400, "invalid_request_error", "invalid_schema"),
    (errors.LeapOptionsError, 400, "invalid_request_error", "invalid_value"),
    (errors.LeapSerializationError, 400, "invalid_request_error", "invalid_value"),
    (errors.LeapModelNotFoundError, 404, "invalid_request_error", "model_not_found"),
    (errors.LeapUnavailableError, 503, "server_error", "unavailable"),
    (errors.LeapError, 500, "server_error", "generation_failed"),
)
"""The first that fits an error: status, type and code."""


class Refused(Exception):
    """A request that is answered with this status and error. ``retry_after``: seconds."""

    def __init__(
        self,
        status: int,
        code: str,
        error: LeapError,
        *,
        kind: str = "invalid_request_error",
        retry_after: int | None = None,
    ) -> None:
        super().__init__(error.message)
        self.status, self.code, self.error, self.kind, self.retry_after = status, code, error, kind, retry_after


def unacceptable(error: LeapError) -> LeapError | Refused:
    """An error that came before any work was done: where its class does not say more, the request is at fault."""
    if type(error) is errors.LeapGenerationError:
        return Refused(400, "invalid_request", error)
    return error


def queue_full(model: str, waiting: int) -> Refused:
    """Too many wait already."""
    error = errors.LeapQueueFullError(
        f"the queue of {model} is full: {waiting} requests wait",
        hint="try again later, or load the model with a larger --queue",
    )
    return Refused(429, "queue_full", error, kind="rate_limit_error", retry_after=1)


def still_loading(model: str) -> Refused:
    """The model is on its way."""
    error = errors.LeapUnavailableError(f"{model} is still being loaded", hint="try again in a moment")
    return Refused(503, "model_loading", error, kind="server_error", retry_after=1)


def body_of(failure: LeapError | Refused) -> tuple[int, JsonObject]:
    """Status and OpenAI's error object; ``leap`` in it has the error's class and fields."""
    if isinstance(failure, Refused):
        status, kind, code, error = failure.status, failure.kind, failure.code, failure.error
    else:
        error = failure
        status, kind, code = next(row[1:] for row in STATUSES if isinstance(error, row[0]))
    message = error.message if error.hint is None else f"{error.message} ({error.hint})"
    param = getattr(error, "option", None) or getattr(error, "path", None) or None
    shown = {"message": message, "type": kind, "param": param, "code": code, "leap": error_to_json(error)}
    return status, {"error": shown}


def answer(failure: LeapError | Refused) -> JSONResponse:
    """The refusal as a response."""
    status, body = body_of(failure)
    retry = failure.retry_after if isinstance(failure, Refused) else None
    return JSONResponse(body, status, {} if retry is None else {"Retry-After": str(retry)})
