"""OpenAI's ``/v1/decisions``: an input and a list of typed questions -> a list of answers.

Source: openai 3.54.0, types/decision_create_params.py and types/decision.py. Fields that only steer OpenAI's own
service are taken and mean nothing here; no answer is ever a refusal.
"""

from __future__ import annotations

from ..json_fields import JsonObject
from typing import Any

from ..errors import LeapSerializationError
from ..json_fields import list_at, object_at, text_at
from ..media.fetching import UrlAccess
from ..messages import Image
from .answers import Answer, Decided
from .questions import CHOICE, PREDICATE, Decision
from .reading import read_openai_questions
from .requests import DecisionRequest, check_pictures, extras_of, model_of, picture_at, settings_of

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
            f"{kind!r} is none of input_text, input_image, input_json, output_text, refusal", path=f"{path}.type"
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
            raise LeapSerializationError(f"{item.get('role')!r} is none of {', '.join(ROLES)}", path=f"{path}.role")
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
    raise LeapSerializationError(f"{kind!r} is none of {known}", path=f"{path}.type")
