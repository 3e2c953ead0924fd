"""The bodies of OpenAI's ``/v1/decisions`` and System One's ``/v1/systemone``.

Source: openai 3.54.0, types/decision_create_params.py and types/decision.py. Fields that only steer OpenAI's own
service are taken and mean nothing here; no answer is ever a refusal.

Source: typesafe-sdk 0.7.5, and llama.cpp's tools/server/server-decision.cpp for ``files`` and ``images``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ...conversation.media.fetching import UrlAccess
from ...conversation.messages import ChatMessageContent, Image
from ...errors import LeapError, LeapGenerationPromptExceedContextLengthError, LeapSerializationError
from ...schemas.json_values import JsonObject, list_at, object_at, text_at
from ...system.dataclass import dataclass
from .answers import Answer, Decided, how_sure
from .deciding import Settings
from .questions import CHOICE, PREDICATE, Decision, read_openai_questions, read_systemone_questions

MOST_PICTURES = 8


@dataclass(frozen=True)
class DecisionRequest:
    """A request of either protocol."""

    model: str | None
    decision: Decision
    settings: Settings


def model_of(body: JsonObject) -> str | None:
    """The model's name. Raises LeapSerializationError."""
    name = body.get("model")
    if name is not None and not isinstance(name, str):
        raise LeapSerializationError("expected a model's name", path="model")
    return name


def settings_of(body: JsonObject) -> Settings:
    """How to ask: ``"leap": {"readout": "labels", "orders": 4}``. Raises LeapSerializationError, LeapOptionsError."""
    asked = object_at(body.get("leap") or {}, "leap")
    for name in asked:
        if name not in ("readout", "orders"):
            raise LeapSerializationError("there is no such field", path=f"leap.{name}")
    orders = asked.get("orders", 1)
    if type(orders) is not int:
        raise LeapSerializationError("expected a whole number", path="leap.orders")
    return Settings(asked.get("readout"), orders)


def picture_at(url: object, path: str, urls: UrlAccess) -> Image:
    """The picture that a URL leads to. Raises LeapSerializationError."""
    part = ChatMessageContent.from_json({"type": "image_url", "image_url": {"url": url}}, path, urls=urls)
    assert isinstance(part, Image)
    return part


def check_pictures(count: int) -> None:
    """Raises LeapSerializationError for more than a request may have."""
    if count > MOST_PICTURES:
        raise LeapSerializationError(f"{count} pictures are more than {MOST_PICTURES}", path="input")


def extras_of(answer: Answer) -> Mapping[str, Any]:
    """What clients that do not know leap pass over."""
    return {f"x_{name}": value for name, value in how_sure(answer).items() if name != "confidence"}


FIELDS = ("model", "input", "questions", "leap", "prompt_cache_key", "prompt_cache_options", "safety_identifier")
ROLES = ("user", "developer", "system", "assistant")
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}


def read_decisions(body: object, *, urls: UrlAccess = UrlAccess.DATA) -> DecisionRequest:
    """The request. ``urls``: what the URLs of pictures may reach. Raises LeapSerializationError, LeapOptionsError."""
    fields = object_at(body, "body")
    for name in fields:
        if name not in FIELDS:
            raise LeapSerializationError("there is no such field", path=name)
    reader = _Parts(urls)
    state = _input(fields.get("input"), reader)
    questions = read_openai_questions(fields.get("questions"), content=reader.instructions)
    check_pictures(len(reader.pictures))
    return DecisionRequest(model_of(fields), Decision(state, questions, tuple(reader.pictures)), settings_of(fields))


def decisions_reply(decided: Decided, model: str) -> JsonObject:
    """The response."""
    return {
        "answers": [{**_answer(each), **extras_of(each)} for each in decided.answers],
        "model": model,
        "usage": {
            "input_tokens": decided.prompt_tokens,
            "input_tokens_details": {"cached_tokens": decided.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": decided.prompt_tokens,
        },
    }


def _answer(answer: Answer) -> JsonObject:
    question = answer.question
    named = {"type": question.kind, "name": question.name}
    if question.kind == PREDICATE:
        return {**named, "probability": answer.probability}
    listed = zip(question.options, answer.probabilities, strict=True)
    if question.kind == CHOICE:
        shares = [{"value": option.value, "probability": share} for option, share in listed]
        return {**named, "choice": answer.value, "confidence": answer.confidence, "probabilities": shares}
    levels = [{"value": n, "label": option.value, "probability": share} for n, (option, share) in enumerate(listed)]
    return {**named, "score": answer.score, "confidence": answer.confidence, "probabilities": levels}


class _Parts:
    """Reads contents: texts and JSON are kept, pictures taken out."""

    def __init__(self, urls: UrlAccess) -> None:
        self._urls = urls
        self.pictures: list[Image] = []

    def content(self, value: object, path: str) -> Any:
        """A text, or a list of parts: one part as it is, several as a list."""
        if isinstance(value, str):
            return value
        parts = [self._part(each, f"{path}[{n}]") for n, each in enumerate(list_at(value, path))]
        shown = [part for part in parts if part is not None]
        if all(isinstance(part, str) for part in shown):
            return "\n".join(shown)
        return shown[0] if len(shown) == 1 else shown

    def instructions(self, value: object, path: str) -> Any:
        """Of a question; they must not be empty."""
        content = self.content(value, path)
        if content in ("", []):
            raise LeapSerializationError("missing", path=path)
        return content

    def _part(self, value: object, path: str) -> Any:
        part = object_at(value, path)
        kind = part.get("type")
        if kind in ("input_text", "output_text"):
            return text_at(part.get("text"), f"{path}.text")
        if kind == "refusal":
            return text_at(part.get("refusal"), f"{path}.refusal")
        if kind == "input_json":
            if not isinstance(part.get("data"), (dict, list)):
                raise LeapSerializationError("expected an object or a list", path=f"{path}.data")
            return part["data"]
        if kind == "input_image":
            self.pictures.append(picture_at(part.get("image_url"), f"{path}.image_url", self._urls))
            return None
        raise LeapSerializationError(
            f"{kind!r} is not one of input_text, input_image, input_json, output_text, refusal", path=f"{path}.type"
        )


def _input(value: object, reader: _Parts) -> Any:
    """The state: a text, the content of a single message, or the list of what there is, as JSON."""
    if isinstance(value, str):
        return value
    items = list_at(value, "input")
    if not items:
        raise LeapSerializationError("expected a text or items", path="input")
    calls: dict[str, str] = {}
    read = [_item(each, f"input[{n}]", reader, calls) for n, each in enumerate(items)]
    if len(read) == 1 and read[0].get("role") == "user":
        return read[0]["content"]
    return read


def _item(value: object, path: str, reader: _Parts, calls: dict[str, str]) -> JsonObject:
    item = object_at(value, path)
    kind = item.get("type", "message")
    if kind == "message":
        if item.get("role") not in ROLES:
            raise LeapSerializationError(f"{item.get('role')!r} is not one of {', '.join(ROLES)}", path=f"{path}.role")
        return {"role": item["role"], "content": reader.content(item.get("content"), f"{path}.content")}
    if kind in CALLS:
        id = text_at(item.get("call_id"), f"{path}.call_id")
        calls[id] = kind
        given = text_at(item.get(CALLS[kind]), f"{path}.{CALLS[kind]}")
        return {"type": kind, "call_id": id, "name": text_at(item.get("name"), f"{path}.name"), CALLS[kind]: given}
    if kind in OUTPUTS:
        id = text_at(item.get("call_id"), f"{path}.call_id")
        if calls.get(id) != OUTPUTS[kind]:
            raise LeapSerializationError(f"there is no {OUTPUTS[kind]} {id!r} before it", path=f"{path}.call_id")
        return {"type": kind, "call_id": id, "output": reader.content(item.get("output"), f"{path}.output")}
    known = ", ".join(("message", *CALLS, *OUTPUTS))
    raise LeapSerializationError(f"{kind!r} is not one of {known}", path=f"{path}.type")


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
    answers = {str(each.question.name): {**_systemone_answer(each), **extras_of(each)} for each in decided.answers}
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


def _systemone_answer(answer: Answer) -> JsonObject:
    question, named = answer.question, zip(answer.question.texts, answer.probabilities, strict=True)
    if question.kind == PREDICATE:
        return {"type": "noul", "noul": answer.probability}
    if question.kind == CHOICE:
        return {"type": "choice", "choice": answer.text, "confidence": answer.confidence, "probabilities": dict(named)}
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
