"""The lines of a batch: read, checked, and named, all before a model is loaded.

A line is one of

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […], "temperature": 0}}
    {"messages": [{"role": "user", "content": "…"}]}
    {"prompt": "…"}

or, with a template, an object of its variables. The last three take a ``custom_id`` (or ``id``) too, else they are
called by their line. The first three take the parameters of an OpenAI body beside the messages, and ``system``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from ..errors import LeapError, LeapSchemaError, LeapSerializationError
from ..functions import LeapFunction
from ..messages import ChatMessage, ChatMessageRole
from ..openai.fields import REFUSE
from ..openai.parameters import ANY_OBJECT, schema_text
from ..openai.requests import read_chat
from ..options import GenerationOptions
from .line_template import LineTemplate

JsonObject = dict[str, Any]

CHAT_URL = "/v1/chat/completions"
ID_FIELDS = ("custom_id", "id")
KEY_CHARACTERS = 32


@dataclass(frozen=True)
class Request:
    """What one line asks. ``custom_id`` is None when the line has none; ``model`` is what an OpenAI body names;
    ``single_call``: keep one function call at most."""

    custom_id: str | None
    messages: list[ChatMessage]
    functions: list[LeapFunction]
    options: GenerationOptions
    model: str | None = None
    single_call: bool = False

    def digest(self, custom_id: str) -> str:
        """A name for this request: equal means that the same is asked under the same id.

        Journals keep it, so it must stay what it was: a change of it answers all lines again.
        """
        options = self.options.to_json()
        if options.get("json_schema_constraint") == ANY_OBJECT:
            options.pop("inject_schema_into_prompt", None)  # journals know json_object without it
        value = {
            "custom_id": custom_id,
            "messages": [message.to_json() for message in self.messages],
            "tools": [function.to_json_object() for function in self.functions],
            "options": options,
        }
        return _hash(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")))


@dataclass(frozen=True)
class Line:
    """A line that was found sound. It is parsed again when its turn comes, so that a long batch stays small."""

    number: int
    custom_id: str
    digest: str
    raw: bytes = field(repr=False)

    def key(self, fingerprint: str) -> str:
        """A name for what is asked under these fingerprint (model and loading options): equal means same work."""
        return _hash(self.digest + fingerprint)


@dataclass(frozen=True)
class Problem:
    """A line that cannot be used, and why."""

    number: int
    message: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.message}"


@dataclass(frozen=True)
class RequestReader:
    """Reads lines; ``options``, ``functions`` and ``system`` are the command's, and what a line says wins over them."""

    options: GenerationOptions = field(default_factory=GenerationOptions)
    functions: tuple[LeapFunction, ...] = ()
    system: str | None = None
    template: LineTemplate | None = None

    def read(self, raw: bytes) -> Request:
        """Parse one line. Raises LeapSerializationError, LeapOptionsError or LeapSchemaError."""
        value = _parse(raw)
        if self.template is not None:
            return self._of_variables(value, self.template)
        if "body" in value:
            return self._of_openai(value)
        if "messages" not in value and "prompt" not in value:
            raise LeapSerializationError(
                "expected body, messages or prompt", hint="--template makes prompts of other fields"
            )
        return self._of_fields(dict(value), _identifier(value))

    def _of_variables(self, value: JsonObject, template: LineTemplate) -> Request:
        prompt = template.fill(value)
        named = {
            name: value[name] for name in ID_FIELDS if value.get(name) != "" and isinstance(value.get(name), (str, int))
        }
        body = {"messages": [{"role": "user", "content": prompt}]}
        return self._request(_identifier(named), body, self.system)

    def _of_openai(self, value: JsonObject) -> Request:
        for name in value:
            if name not in ("custom_id", "method", "url", "body"):
                raise LeapSerializationError("there is no such field", path=name)
        if value.get("method", "POST") != "POST":
            raise LeapSerializationError(f"{value['method']!r} is not POST", path="method")
        if value.get("url", CHAT_URL) != CHAT_URL:
            raise LeapSerializationError(f"{value['url']!r} is not supported, only {CHAT_URL} is", path="url")
        body = value["body"]
        if not isinstance(body, dict):
            raise LeapSerializationError("expected an object", path="body")
        if "messages" not in body:
            raise LeapSerializationError("missing", path="body.messages")
        for name in ("prompt", "system", "schema"):
            if name in body:
                raise LeapSerializationError("there is no such field", path=f"body.{name}")
        return self._of_fields(dict(body), _identifier(value))

    def _of_fields(self, fields: JsonObject, custom_id: str | None) -> Request:
        if "prompt" in fields and "messages" in fields:
            raise LeapSerializationError("a line has either messages or a prompt", path="prompt")
        for name in ID_FIELDS:
            fields.pop(name, None)
        system = fields.pop("system", self.system)
        if system is not None and not isinstance(system, str):
            raise LeapSerializationError("expected a string", path="system")
        if "prompt" in fields:
            prompt = fields.pop("prompt")
            if not isinstance(prompt, str) or not prompt.strip():
                raise LeapSerializationError("expected a text that is not empty", path="prompt")
            fields["messages"] = [{"role": "user", "content": prompt}]
        schema = fields.pop("schema", None)
        if schema is not None:
            schema_text(schema, "schema")
            fields["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
        return self._request(custom_id, fields, system)

    def _request(self, custom_id: str | None, body: JsonObject, system: str | None) -> Request:
        asked = read_chat(body, unknown=REFUSE, defaults=self.options, functions=self.functions)
        if asked.stream:
            raise LeapSerializationError("true is not supported: results are written whole", path="stream")
        messages = asked.messages
        if system is not None and messages[0].role is not ChatMessageRole.SYSTEM:
            messages = [ChatMessage(ChatMessageRole.SYSTEM, system), *messages]
        if asked.options.json_schema_constraint is not None:
            _check_schema(asked.options.json_schema_constraint)
        return Request(custom_id, messages, asked.functions, asked.options, asked.model, asked.single_call)


def check_lines(rows: Iterable[bytes], reader: RequestReader) -> tuple[list[Line], list[Problem], set[str | None]]:
    """The sound lines, what is wrong with the others, and the models that the sound ones name (None: none).

    Blank lines are passed over, and counted.
    """
    lines: list[Line] = []
    problems: list[Problem] = []
    models: set[str | None] = set()
    seen: dict[str, int] = {}
    for number, raw in enumerate(rows, start=1):
        raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if not raw.strip():
            continue
        try:
            request = reader.read(raw)
            custom_id = request.custom_id or f"line-{number}"
            if custom_id in seen:
                raise LeapSerializationError(f"the id {custom_id!r} is already on line {seen[custom_id]}")
            digest = request.digest(custom_id)
        except UnicodeEncodeError:
            problems.append(Problem(number, "a text has half of a surrogate pair"))
        except LeapError as error:
            problems.append(Problem(number, _told(error)))
        else:
            seen[custom_id] = number
            lines.append(Line(number, custom_id, digest, raw))
            models.add(request.model)
    return lines, problems, models


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_CHARACTERS]


def _told(error: LeapError) -> str:
    if isinstance(error, LeapSchemaError) and error.pointer:
        return f"schema{error.pointer}: {error.message}"
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _parse(raw: bytes) -> JsonObject:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except UnicodeDecodeError as error:
        raise LeapSerializationError(f"not UTF-8 text (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        raise LeapSerializationError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise LeapSerializationError(f"not JSON that can be used: {error}") from None
    if not isinstance(value, dict):
        raise LeapSerializationError("expected a JSON object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return value


def _identifier(value: Mapping[str, Any]) -> str | None:
    for name in ID_FIELDS:
        found = value.get(name)
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
        if found is not None:
            if not isinstance(found, str) or not found:
                raise LeapSerializationError("expected a text that is not empty", path=name)
            return found
    return None


@lru_cache(maxsize=256)
def _check_schema(text: str) -> None:
    from ..schemas.schema import read_schema

    read_schema(text)
