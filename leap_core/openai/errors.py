"""leap's errors as OpenAI's: the HTTP status, type and code of each class, and the error object around them."""

from __future__ import annotations

from ..json_fields import JsonObject
from typing import Any

from .. import errors
from ..error_json import error_to_json
from ..errors import LeapError


INVALID = "invalid_request_error"
SERVER = "server_error"

STATUSES: tuple[tuple[type[LeapError], int, str, str], ...] = (
    (errors.LeapGenerationPromptExceedContextLengthError, 400, INVALID, "context_length_exceeded"),
    (errors.LeapUnsupportedMediaError, 400, INVALID, "unsupported_media"),
    (errors.LeapConstraintError, 422, "constraint_error", "constraint_not_satisfied"),
    (errors.LeapQueueFullError, 429, "rate_limit_error", "queue_full"),
    (errors.LeapSchemaError, 400, INVALID, "invalid_schema"),
    (errors.LeapOptionsError, 400, INVALID, "invalid_value"),
    (errors.LeapSerializationError, 400, INVALID, "invalid_value"),
    (errors.LeapModelNotFoundError, 404, INVALID, "model_not_found"),
    (errors.LeapModelLoadingError, 500, SERVER, "model_loading_failed"),
    (errors.LeapNotFoundError, 404, INVALID, "not_found"),
    (errors.LeapUnavailableError, 503, SERVER, "unavailable"),
    (errors.LeapError, 500, SERVER, "generation_failed"),
)
"""The first row that fits an error: status, type and code."""


def status_of(error: LeapError) -> tuple[int, str, str]:
    """The HTTP status, type and code of an error."""
    return next(row[1:] for row in STATUSES if isinstance(error, row[0]))


def error_object(error: LeapError, kind: str, code: str) -> JsonObject:
    """OpenAI's error object; ``leap`` in it has the error's class and fields. ``param`` is the field at fault."""
    message = error.message if error.hint is None else f"{error.message} ({error.hint})"
    if isinstance(error, errors.LeapGenerationPromptExceedContextLengthError):  # by these words clients know it
        message = f"This model's maximum context length is {error.context_size} tokens; {message}"
    param = getattr(error, "option", None) or getattr(error, "path", None) or None
    return {"message": message, "type": kind, "param": param, "code": code, "leap": error_to_json(error)}


def error_record(error: LeapError) -> JsonObject:
    """A failure as a line of a batch keeps it; the text of an answer that did not fit its constraint is kept too."""
    value: JsonObject = {"code": status_of(error)[2], "message": error.message}
    if error.hint:
        value["hint"] = error.hint
    if isinstance(error, errors.LeapConstraintError):
        value["text"] = error.text
    return value
