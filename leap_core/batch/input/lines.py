"""The lines of a batch: read, checked, and named, all before a model is loaded.

A line is one of

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […], "temperature": 0}}
    {"messages": [{"role": "user", "content": "…"}]}
    {"prompt": "…"}
    "a prompt"
    {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"input": "…"}}
    {"input": "…"}

or, with a template, an object of its variables. The objects take a ``custom_id`` (or ``id``) too, else they are
called by their line, and take the parameters of an OpenAI body beside the messages, and ``system``.

A line with a ``task`` has its parameters and a ``text`` (or ``prompt``, or ``image``) instead; see
``tasks.task_fields``. One with an ``input`` asks for vectors.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from ...conversation.calls import LeapFunction
from ...conversation.loading_options import refuse_adapters
from ...conversation.media.fetching import UrlAccess
from ...conversation.messages import ChatMessage, ChatMessageRole, Text
from ...conversation.options import GenerationOptions
from ...conversation.request import Request
from ...errors import LeapModelNotFoundError, LeapSerializationError
from ...protocols.openai.embeddings import EMBEDDING_FIELDS, EMBEDDINGS_URL, EmbeddingBody, read_embedding_request
from ...protocols.openai.fields import ANY_OBJECT, FIELDS, REFUSE, schema_text
from ...protocols.openai.requests import KNOWN_FIELDS, GenerationRequest, read_chat
from ...schemas.json_values import JsonObject, canonical
from ...system.dataclass import dataclass
from ...tasks.task import OVERRIDES, RecipeTask
from ...tasks.task_fields import read_task
from .line_parts import MEDIA_FIELDS, LineTemplate, mentions_media, messages_with_content, take_media, with_content
from .rows import LONGEST_ROW

KEY_CHARACTERS = 32


def digest_of(text: str) -> str:
    """A name for a text: 32 hexadecimal digits. Raises UnicodeEncodeError for half of a surrogate pair."""
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_CHARACTERS]


def key_of(digest: str, fingerprint: str) -> str:
    """A name for what a line asks of a model with this fingerprint: equal means same work. Journals keep it."""
    return digest_of(digest + fingerprint)


@dataclass(frozen=True)
class EmbeddingLine:
    """``custom_id`` is None when the line has none."""

    custom_id: str | None
    request: EmbeddingBody

    @property
    def model(self) -> str | None:
        """What the line names."""
        return self.request.model

    def digest(self, custom_id: str) -> str:
        """A name for this request, as every kind of line has one. Journals keep it."""
        asked = {"texts": self.request.texts, "as_base64": self.request.as_base64, **asdict(self.request.options)}
        return digest_of(f'{{"custom_id":{canonical(custom_id)},"embedding":{canonical(asked)}}}')


def read_embedding_line(fields: Mapping[str, Any], custom_id: str | None) -> EmbeddingLine:
    """Raises LeapSerializationError, also for a field that does not belong there."""
    return EmbeddingLine(custom_id, read_embedding_request(dict(fields), REFUSE))


CHAT_URL = "/v1/chat/completions"
ID_FIELDS = ("custom_id", "id")
OWN_FIELDS = (*ID_FIELDS, "prompt", "system", "schema")
"""Fields of a line that no OpenAI body has."""
TASK_INPUTS = ("text", "prompt", "image", "file")
"""Fields of a line with a task: what it is done to."""
TASK_OPTIONS = {"model", *(name for name, row in FIELDS.items() if row.task and row.line)}
"""Further fields of such a line."""
ENVELOPE = ("custom_id", "method", "url", "body")
"""Fields of a line of OpenAI's Batch format."""
URLS = (CHAT_URL, EMBEDDINGS_URL)


@dataclass(frozen=True)
class LineRequest(Request):
    """What one line asks. ``custom_id`` is None when the line has none; ``model`` is what an OpenAI body names;
    ``single_call``: keep one function call at most; ``choices``: how many answers are wanted;
    ``task``: what is to be done to the one message."""

    custom_id: str | None = None
    model: str | None = None
    single_call: bool = False
    choices: int = 1
    task: RecipeTask | None = None

    def digest(self, custom_id: str) -> str:
        """A name for this request: equal means that the same is asked under the same id.

        Journals keep it, so it must stay what it was: a change of it answers all lines again.
        """
        messages = canonical([message.to_json() for message in self.messages])
        return digest_of(f'{{"custom_id":{canonical(custom_id)},"messages":{messages},{self.parameters}}}')

    @property
    def parameters(self) -> str:
        """The part of the digested text that does not depend on the line's name and messages."""
        options = self.options.to_json()
        if options.get("json_schema_constraint") == ANY_OBJECT:
            options.pop("inject_schema_into_prompt", None)  # journals know json_object without it
        tools = [function.to_json_object() for function in self.functions]
        task = "" if self.task is None else f',"task":{canonical(self.task.to_json())}'
        several = f',"n":{self.choices}' if self.choices > 1 else ""
        return f'"options":{canonical(options)},"tools":{canonical(tools)}{several}{task}'


Line = LineRequest | EmbeddingLine


@dataclass(frozen=True)
class RequestReader:
    """Reads lines; ``options``, ``functions`` and ``system`` are the command's, and what a line says wins over them.
    ``keep_fields``: further fields beside a prompt are the user's own, and no error."""

    options: GenerationOptions = field(default_factory=GenerationOptions)
    functions: tuple[LeapFunction, ...] = ()
    system: str | None = None
    template: LineTemplate | None = None
    keep_fields: bool = False
    directory: Path = Path()
    """Where the names of images and audio begin."""
    recipes: Mapping[str, str] = field(default_factory=dict)
    """The texts of the user's own recipes of tasks, by name."""
    urls: UrlAccess = UrlAccess.FILES
    """What the images and audio of lines may be fetched from."""
    own_clients: bool = True
    """Whether lines may name files of this machine as adapters."""
    answers_to: tuple[str, ...] | None = None
    """The names of the model that answers, in lower case; a line that names another fails. None: it answers all."""

    def check_model(self, name: str | None) -> None:
        """Raises LeapModelNotFoundError for the name of a model that does not answer these lines."""
        if name is not None and self.answers_to is not None and name.lower() not in self.answers_to:
            raise LeapModelNotFoundError(
                f"the line names the model {name!r}, and {self.answers_to[0]} answers this batch",
                hint="send the lines of each model as a batch of their own",
            )

    def read(self, raw: bytes) -> Line:
        """Parse one line. Raises LeapSerializationError, LeapOptionsError or LeapSchemaError."""
        return self.read_value(parse_line(raw))

    def read_value(self, value: JsonObject) -> Line:
        """``read`` for a line that is parsed already."""
        if self.template is not None:
            return self._of_variables(value, self.template)
        if "body" in value:
            return self._of_openai(value)
        if "task" in value:
            return self._of_task(value)
        if asks_for_vectors(value):
            known = {name: item for name, item in value.items() if not self.keep_fields or name in EMBEDDING_FIELDS}
            return read_embedding_line({**known, **dict.fromkeys(ID_FIELDS)}, identifier_of(value))
        if not any(name in value for name in ("messages", "prompt", *MEDIA_FIELDS)):
            raise LeapSerializationError(
                "expected body, messages, prompt, input, file, image or audio",
                hint="--pattern makes prompts of other fields",
            )
        custom_id = identifier_of(value)
        return self._of_fields(only_known(value) if self.keep_fields else dict(value), custom_id)

    def own_fields(self, value: JsonObject) -> JsonObject:
        """The fields of a line that mean nothing to leap, and are its user's own. With a template all of them are."""
        if self.template is not None:
            return value
        known = {*ID_FIELDS, *EMBEDDING_FIELDS} if asks_for_vectors(value) else {*OWN_FIELDS, *KNOWN_FIELDS}
        return {name: item for name, item in value.items() if name not in known}

    def _of_variables(self, value: JsonObject, template: LineTemplate) -> LineRequest:
        prompt = template.fill(value)
        media = {name: value[name] for name in self.media_names(value)}
        body = {"messages": [{"role": "user", "content": self._with_media(media, prompt)}]}
        return self._request(identifier_of(names_among(value)), body, self.system)

    def media_names(self, value: JsonObject) -> list[str]:
        """The fields of a line that name files, and do not fill the template."""
        taken = () if self.template is None else self.template.names
        return [name for name in MEDIA_FIELDS if value.get(name) and name not in taken]

    def for_another_machine(self, raw: bytes) -> bytes:
        """The line with the content of the files that it names, to be read where they are not."""
        if not mentions_media(raw):
            return raw
        value = parse_line(raw)
        names = [] if "body" in value else self.media_names(value)
        embedded = with_content(value, self.directory, names, self.urls)
        body = embedded.get("body", embedded)
        if self.template is None and "messages" in body:
            body = {**body, "messages": messages_with_content(body["messages"], self.urls)}
            embedded = {**embedded, "body": body} if "body" in embedded else body
        return raw if embedded == value else json.dumps(embedded).encode()

    def _of_task(self, value: JsonObject) -> LineRequest:
        custom_id = identifier_of(value)
        task, names = read_task(value, self.recipes)
        inputs = [name for name in TASK_INPUTS if name in names]
        if len(inputs) != 1:
            raise LeapSerializationError("a line with a task has a text, a prompt, a file or an image", path="text")
        fields = {name: value[name] for name in names if name not in ID_FIELDS}
        if inputs == ["image"]:
            if task.task.name not in ("extract", "decide", "classify"):
                raise LeapSerializationError("only extract, classify and decide take pictures", path="image")
            content = self._with_media(fields, "")
        elif inputs == ["file"]:
            (part,) = take_media(fields, self.directory, self.urls)
            content = part.text if isinstance(part, Text) else ""
        else:
            content = fields.pop(inputs[0])
            if not isinstance(content, str) or not content.strip():
                raise LeapSerializationError("expected a text that is not empty", path=inputs[0])
        if self.keep_fields:
            fields = only_known(fields)
        for name in fields:
            if name not in TASK_OPTIONS:
                raise LeapSerializationError(f"a line with the task {task.task.name} has no such field", path=name)
        body = {**fields, "messages": [{"role": "user", "content": content}]}
        read = self._chat(body, GenerationOptions())
        options = self.options.to_json() | read.options.to_json()
        winning = GenerationOptions.from_json({name: options[name] for name in options if name in OVERRIDES})
        return LineRequest(read.messages, (), winning, custom_id, read.model, task=task)

    def _of_openai(self, value: JsonObject) -> Line:
        for name in value:
            if name not in ENVELOPE:
                raise LeapSerializationError("there is no such field", path=name)
        if value.get("method", "POST") != "POST":
            raise LeapSerializationError(f"{value['method']!r} is not POST", path="method")
        url = value.get("url", CHAT_URL)
        if url not in URLS:
            raise LeapSerializationError(f"{url!r} is not supported, only {' and '.join(URLS)} are", path="url")
        body = value["body"]
        if not isinstance(body, dict):
            raise LeapSerializationError("expected an object", path="body")
        if url == EMBEDDINGS_URL:
            return read_embedding_line(body, identifier_of(value))
        if "messages" not in body:
            raise LeapSerializationError("missing", path="body.messages")
        for name in ("prompt", "system", "schema"):
            if name in body:
                raise LeapSerializationError("there is no such field", path=f"body.{name}")
        return self._of_fields(dict(body), identifier_of(value))

    def _of_fields(self, fields: JsonObject, custom_id: str | None) -> LineRequest:
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
            fields["messages"] = [{"role": "user", "content": self._with_media(fields, prompt)}]
        elif "messages" not in fields:
            fields["messages"] = [{"role": "user", "content": self._with_media(fields, "")}]
        schema = fields.pop("schema", None)
        if schema is not None:
            schema_text(schema, "schema")
            fields["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
        return self._request(custom_id, fields, system)

    def _with_media(self, fields: JsonObject, prompt: str) -> str | list[JsonObject]:
        """The user's content: the files that a line names, then its prompt. The fields are taken out."""
        parts = [part.to_json() for part in take_media(fields, self.directory, self.urls)]
        if not parts:
            return prompt
        return [*parts, {"type": "text", "text": prompt}] if prompt else parts

    def _chat(
        self, body: JsonObject, defaults: GenerationOptions, functions: Sequence[LeapFunction] = ()
    ) -> GenerationRequest:
        chat_request = read_chat(body, unknown=REFUSE, defaults=defaults, functions=functions, urls=self.urls)
        self.check(chat_request)
        return chat_request

    def check(self, request: GenerationRequest) -> None:
        """Raises an error for what no line may ask for."""
        if not self.own_clients:
            refuse_adapters(request.options.adapters)
        if request.stream:
            raise LeapSerializationError("true is not supported: results are written whole", path="stream")
        if request.options.json_schema_constraint is not None:
            _check_schema(request.options.json_schema_constraint)

    def _request(self, custom_id: str | None, body: JsonObject, system: str | None) -> LineRequest:
        chat_request = self._chat(body, self.options, self.functions)
        messages = chat_request.messages
        if system is not None and messages[0].role is not ChatMessageRole.SYSTEM:
            messages = [ChatMessage(ChatMessageRole.SYSTEM, system), *messages]
        return LineRequest(
            messages,
            chat_request.functions,
            chat_request.options,
            custom_id,
            chat_request.model,
            chat_request.single_call,
            chat_request.choices,
        )


def first_line(path: Path) -> JsonObject:
    """The first line of a file that is not blank; an empty object where it is none. Raises OSError."""
    with path.open("rb") as file:
        while (raw := file.readline(LONGEST_ROW)) and raw.isspace():
            pass
    with suppress(LeapSerializationError):
        return parse_line(raw)
    return {}


def asks_for_vectors(value: JsonObject) -> bool:
    """Whether a line without an envelope has an input, and neither a prompt nor messages."""
    return "input" in value and not any(name in value for name in ("messages", "prompt", "body"))


def parse_line(raw: bytes) -> JsonObject:
    """A line's object; a string represents its prompt. Raises LeapSerializationError."""
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise LeapSerializationError(f"not UTF-8 text (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        raise LeapSerializationError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise LeapSerializationError(f"not JSON that can be used: {error}") from None
    if isinstance(value, str):
        return {"prompt": value}
    if not isinstance(value, dict):
        raise LeapSerializationError("expected a JSON object or a string")
    if "body" not in value:  # in a protocol's body an answer at the end is what the next one begins with
        _end_with_question(value)
    return value


def _end_with_question(fields: JsonObject) -> None:
    """Let a conversation that has its answer already, such as leap export writes, end with the question again."""
    messages = fields.get("messages")
    if isinstance(messages, list) and messages and _role(messages[-1]) == "assistant":
        last = next((n for n in reversed(range(len(messages))) if _role(messages[n]) == "user"), None)
        if last is not None:
            fields["messages"] = messages[: last + 1]


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; at most {MOST_DIGITS} are read")
    return int(text)


MOST_DIGITS = 4000
_DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, parse_int=_integer, object_pairs_hook=_no_duplicates
)


def identifier_of(value: Mapping[str, Any]) -> str | None:
    """The name that a line has, or None. Raises LeapSerializationError for one that is no text."""
    for name in ID_FIELDS:
        identifier = value.get(name)
        if isinstance(identifier, int) and not isinstance(identifier, bool):
            return str(identifier)
        if identifier is not None:
            if not isinstance(identifier, str) or not identifier:
                raise LeapSerializationError("expected a text that is not empty", path=name)
            return identifier
    return None


def names_among(variables: JsonObject) -> JsonObject:
    """Those variables that can name their line."""
    return {
        name: variables[name]
        for name in ID_FIELDS
        if variables.get(name) != "" and isinstance(variables.get(name), (str, int))
    }


def only_known(fields: JsonObject) -> JsonObject:
    """A line without the fields that are its user's own."""
    names = (*OWN_FIELDS, *MEDIA_FIELDS)
    return {name: value for name, value in fields.items() if name in names or name in KNOWN_FIELDS}


@lru_cache(maxsize=256)
def _check_schema(text: str) -> None:
    from ...schemas.json_schema import read_schema

    read_schema(text)
