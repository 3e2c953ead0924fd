"""Errors as HTTP responses, and the requests that are refused with a status of their own."""

from __future__ import annotations

from ....json_fields import JsonObject
from typing import Any

from .... import errors
from ....anthropic.replies import error_body
from ....decisions.systemone_form import PATH as SYSTEM_ONE
from ....decisions.systemone_form import systemone_error
from ....errors import LeapError
from ....ollama.replies import error_text
from ....openai.errors import error_object, status_of
from .json_response import AsciiJSON



ANTHROPIC = "/v1/messages"
OLLAMA = "/api/"


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


def too_many_wait(waiting: int) -> Refused:
    """No more requests may wait for their models."""
    error = errors.LeapUnavailableError(f"{waiting} requests wait for models to be loaded", hint="try again later")
    return Refused(503, "overloaded", error, kind="server_error", retry_after=5)


def body_of(failure: LeapError | Refused) -> tuple[int, JsonObject]:
    """Status and OpenAI's error object; ``leap`` in it has the error's class and fields."""
    if isinstance(failure, Refused):
        status, kind, code, error = failure.status, failure.kind, failure.code, failure.error
    else:
        error = failure
        status, kind, code = status_of(error)
    return status, {"error": error_object(error, kind, code)}


def answer(failure: LeapError | Refused, path: str = "") -> AsciiJSON:
    """The refusal as a response, in the form of the protocol that ``path`` belongs to."""
    status, body = body_of(failure)
    if path.startswith(OLLAMA):
        body = error_text(failure.error if isinstance(failure, Refused) else failure)
    elif path.startswith(ANTHROPIC):
        body = error_body(status, failure.error if isinstance(failure, Refused) else failure)
    elif path == SYSTEM_ONE:
        status, body = systemone_error(status, failure.error if isinstance(failure, Refused) else failure, body)
    retry = failure.retry_after if isinstance(failure, Refused) else None
    return AsciiJSON(body, status, {} if retry is None else {"Retry-After": str(retry)})
