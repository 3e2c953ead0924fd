"""System One's ``/v1/systemone``: a state and questions by name -> answers by name.

Source: typesafe-sdk 0.7.5, and llama.cpp's tools/server/server-decision.cpp for ``files`` and ``images``.
"""

from __future__ import annotations

from ..json_fields import JsonObject
import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ..errors import LeapError, LeapGenerationPromptExceedContextLengthError, LeapSerializationError
from ..json_fields import list_at, object_at, text_at
from ..media.fetching import UrlAccess
from ..messages import Image
from .answers import Answer, Decided
from .questions import CHOICE, PREDICATE, Decision
from .reading import read_systemone_questions
from .requests import DecisionRequest, check_pictures, extras_of, model_of, picture_at, settings_of

PATH = "/v1/systemone"
TYPES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg"}


def read_systemone(
    body: object, parts: Mapping[str, bytes] | None = None, *, urls: UrlAccess = UrlAccess.DATA
) -> DecisionRequest:
    """The request. ``parts``: the files of a form, by name. Raises LeapSerializationError, LeapOptionsError."""
    fields = object_at(body, "body")
    if "state" not in fields:
        raise LeapSerializationError("missing", path="state")
    pictures = [_asset(each, f"assets.{name}", parts or {}) for name, each in _assets(fields).items()]
    for name in ("files", "images"):
        listed = list_at(fields.get(name) or [], name)
        pictures += [picture_at(url, f"{name}[{n}]", urls) for n, url in enumerate(listed)]
    check_pictures(len(pictures))
    questions = read_systemone_questions(fields.get("questions"))
    return DecisionRequest(model_of(fields), Decision(fields["state"], questions, tuple(pictures)), settings_of(fields))


def systemone_reply(decided: Decided, model: str) -> JsonObject:
    """The response."""
    answers = {str(each.question.name): {**_answer(each), **extras_of(each)} for each in decided.answers}
    return {"model": model, "answers": answers, "usage": {"input_tokens": decided.new_tokens, "output_tokens": 0}}


def systemone_error(status: int, error: LeapError, body: JsonObject) -> tuple[int, JsonObject]:
    """The status and body of a failure: what is wrong with a request is listed in ``detail``, by place."""
    if isinstance(error, LeapGenerationPromptExceedContextLengthError):
        return 413, {**body, "error": {**body["error"], "type": "max_tokens_exceeded"}}
    place = getattr(error, "path", "") or getattr(error, "option", "")
    if status != 400:
        return status, body
    message = error.reason if isinstance(error, LeapSerializationError) else error.message
    where = [part for part in place.replace("[", ".").replace("]", "").split(".") if part and part != "body"]
    return 422, {"detail": [{"loc": ["body", *where], "msg": message, "type": "value_error"}], **body}


def _answer(answer: Answer) -> JsonObject:
    question, named = answer.question, zip(answer.question.texts, answer.probabilities, strict=True)
    if question.kind == PREDICATE:
        return {"type": "noul", "noul": answer.probability}
    if question.kind == CHOICE:
        return {
            "type": "choice",
            "choice": answer.text,
            "confidence": answer.confidence,
            "probabilities": dict(named),
        }
    return {
        "type": "score",
        "score": answer.score,
        "confidence": answer.confidence,
        "legend": {str(n): text for n, text in enumerate(question.texts)},
        "probabilities": {str(n): share for n, share in enumerate(answer.probabilities)},
    }


def _assets(fields: JsonObject) -> dict[str, Any]:
    return object_at(fields.get("assets") or {}, "assets")


def _asset(value: object, path: str, parts: Mapping[str, bytes]) -> Image:
    asset = object_at(value, path)
    if asset.get("type") != "image":
        raise LeapSerializationError(f"{asset.get('type')!r} is not image", path=f"{path}.type")
    if "part" in asset:
        name = text_at(asset["part"], f"{path}.part")
        if name not in parts:
            raise LeapSerializationError(f"the form has no part {name!r}", path=f"{path}.part")
        data = parts[name]
    else:
        try:
            data = base64.b64decode(text_at(asset.get("data_base64"), f"{path}.data_base64"), validate=True)
        except binascii.Error:
            raise LeapSerializationError("expected base64", path=f"{path}.data_base64") from None
    kind = TYPES.get(str(asset.get("format", "png")).lower(), "application/octet-stream")
    return picture_at(f"data:{kind};base64,{base64.b64encode(data).decode()}", path, UrlAccess.DATA)
