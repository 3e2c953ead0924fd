"""OpenAI's requests as leap's: messages, functions and options out of a JSON body.

Beside OpenAI's fields a request may have ``top_k``, ``min_p``, ``repetition_penalty``, ``repeat_last_n`` and
``enable_thinking``, and an object ``leap`` with ``options`` (as ``GenerationOptions.to_json`` writes them; they win)
and ``events`` (true: every chunk of a stream also carries the MessageResponse it was made of).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import LeapOptionsError, LeapSchemaError, LeapSerializationError
from ..functions import LeapFunction
from ..messages import ChatMessage, messages_from_json
from ..options import GenerationOptions

JsonObject = dict[str, Any]

SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "repeat_last_n": "repeat_last_n",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "seed": "rng_seed",
}
"""Fields of a request and the options they set."""

FIELDS_OF_OPTIONS = {"rng_seed": "seed", "json_schema_constraint": "response_format"}
"""Where an option's name differs from its field's."""

ONLY_VALUE: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "functions": ([],),
    "modalities": (["text"],),
}
"""What leap cannot do, and the values (beside null) that do not ask for it."""

HARMLESS = {"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "function_call"}
"""Fields that mean something to a hosted service only."""


@dataclass(frozen=True)
class Asked:
    """A request. ``prompt`` is the text to go on from, for completions without a chat; then ``messages`` is empty.

    ``events``: the client is leap's own. ``single_call``: pass on one call of a function at most. ``notes`` tell what
    was not understood.
    """

    model: str | None
    options: GenerationOptions
    messages: list[ChatMessage] = field(default_factory=list)
    functions: list[LeapFunction] = field(default_factory=list)
    prompt: str | None = None
    stream: bool = False
    include_usage: bool = False
    events: bool = False
    single_call: bool = False
    notes: tuple[str, ...] = ()


def read_chat(body: object) -> Asked:
    """A request to /v1/chat/completions. Raises LeapSerializationError, LeapOptionsError or LeapSchemaError."""
    fields = _Fields(body)
    extension = fields.object("leap")
    messages = messages_from_json(fields.take("messages"))
    events = extension.get("events") is True
    if not messages and not events:
        raise LeapSerializationError("there must be at least one message", path="messages")
    functions = _functions(fields)
    choice = _tool_choice(fields, functions)
    schema, shown = _response_format(fields)
    own = {"tool_choice": choice, "json_schema_constraint": schema, "inject_schema_into_prompt": shown}
    parallel = fields.boolean("parallel_tool_calls", True)
    return Asked(
        messages=messages,
        functions=functions,
        events=events,
        single_call=not parallel,
        **_common(fields, own, extension),
    )


def read_completion(body: object) -> Asked:
    """A request to /v1/completions: ``prompt`` is a text, which no chat template is put around."""
    fields = _Fields(body)
    extension = fields.object("leap")
    prompt = fields.take("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str) or not prompt:
        raise LeapSerializationError("expected one non-empty text", path="prompt", hint="send one request a prompt")
    own = {"function_call_parser": None, "inline_thinking_tags": True}
    events = extension.get("events") is True
    return Asked(prompt=prompt, events=events, **_common(fields, own, extension))


def _common(fields: _Fields, own: Mapping[str, Any], extension: JsonObject) -> dict[str, Any]:
    model = fields.text("model")
    stream = fields.boolean("stream", False)
    include_usage = fields.object("stream_options").get("include_usage") is True
    given: dict[str, Any] = {name: value for name, value in own.items() if value is not None or name.endswith("parser")}
    for name, option in SAMPLING.items():
        value = fields.take(name)
        if value is not None:
            given[option] = value
    if isinstance(given.get("rng_seed"), int) and given["rng_seed"] < 0:
        given["rng_seed"] %= 2**32
    if given.get("max_tokens") == -1:
        del given["max_tokens"]
    stop = fields.take("stop")
    if stop is not None:
        given["stop"] = [stop] if isinstance(stop, str) else stop
    bias = fields.object("logit_bias")
    if bias:
        given["logit_bias"] = bias
    template = fields.object("chat_template_kwargs")
    if fields.boolean("enable_thinking", template.get("enable_thinking") is True):
        given["enable_thinking"] = True
    extra = extension.get("options")
    if extra is not None and not isinstance(extra, dict):
        raise LeapSerializationError("expected an object", path="leap.options")
    options = _options({**given, **(extra or {})})
    for name, harmless in ONLY_VALUE.items():
        value = fields.take(name)
        if value is not None and value not in harmless:
            raise LeapSerializationError(f"{json.dumps(value)[:60]} is not supported", path=name)
    notes = tuple(f"the field {name!r} is unknown and was ignored" for name in fields.rest(HARMLESS))
    return {"model": model, "stream": stream, "include_usage": include_usage, "options": options, "notes": notes}


def _options(given: JsonObject) -> GenerationOptions:
    try:
        return GenerationOptions.from_json(given)
    except LeapOptionsError as error:
        option = error.option.removeprefix("options.")
        message = error.message.partition(": ")[2]
        raise LeapOptionsError(FIELDS_OF_OPTIONS.get(option, option), message) from None


def _functions(fields: _Fields) -> list[LeapFunction]:
    tools = fields.take("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise LeapSerializationError("expected a list", path="tools")
    return [LeapFunction.from_openai(tool, f"tools[{n}]") for n, tool in enumerate(tools)]


def _tool_choice(fields: _Fields, functions: list[LeapFunction]) -> str | None:
    choice = fields.take("tool_choice")
    if isinstance(choice, dict):
        named = choice.get("function")
        choice = named.get("name") if isinstance(named, dict) else None
        if not isinstance(choice, str):
            raise LeapSerializationError("expected a function's name", path="tool_choice.function.name")
        if choice not in [function.name for function in functions]:
            raise LeapSerializationError(f"there is no tool {choice!r}", path="tool_choice.function.name")
        if choice in ("auto", "none", "required"):  # as an option it would mean that
            raise LeapSerializationError(
                f"a function called {choice!r} cannot be demanded by name", path="tool_choice.function.name"
            )
        return choice
    if choice is None or choice in ("auto", "none"):
        return None if choice == "auto" else choice
    if choice != "required":
        raise LeapSerializationError(f"{choice!r} is not one of auto, none, required, or an object", path="tool_choice")
    if not functions:
        raise LeapSerializationError("there are no tools to call", path="tool_choice")
    return "required"


def _response_format(fields: _Fields) -> tuple[str | None, bool]:
    """The schema of the answer, if one is wanted, and whether the model is shown it."""
    form = fields.object("response_format")
    kind = form.get("type", "text")
    if kind == "text":
        return None, True
    if kind == "json_object":
        return '{"type": "object"}', False
    if kind != "json_schema":
        raise LeapSerializationError(
            f"{kind!r} is not one of text, json_object, json_schema", path="response_format.type"
        )
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    if not isinstance(schema, (dict, bool)):
        raise LeapSchemaError("response_format.json_schema.schema: expected a JSON schema")
    return json.dumps(schema), True


class _Fields:
    """A JSON object whose fields are taken out one by one; the rest is what nobody asked for."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise LeapSerializationError("expected a JSON object", path="body")
        self._left = dict(body)

    def take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def object(self, name: str) -> JsonObject:
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise LeapSerializationError("expected an object", path=name)
        return value or {}

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise LeapSerializationError("expected a string", path=name)
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise LeapSerializationError("expected true or false", path=name)
        return default if value is None else value

    def rest(self, harmless: set[str]) -> list[str]:
        return [name for name in self._left if name not in harmless]
