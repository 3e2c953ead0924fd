"""The parameters of an OpenAI body by the names of ``GenerationOptions``' fields; null asks for nothing."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import LeapSerializationError
from ..functions import LeapFunction
from .fields import BodyFields


SAME_NAME = (
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "top_k",
    "min_p",
    "repetition_penalty",
    "repeat_last_n",
    "max_tokens",
    "audio_temperature",
    "audio_top_k",
    "top_logprobs",
)
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Efforts of reasoning that are one here: to reason."""
SHAPES = ("json_schema_constraint", "regex_constraint", "grammar_constraint", "choices_constraint")
"""Options of which one alone may shape an answer."""

ONLY_VALUE: Mapping[str, tuple[object, ...]] = {
    "best_of": (1,),
    "functions": ([],),
}
"""What leap cannot do, and the values (beside null) that do not ask for it."""

CHOICES = ("auto", "none", "required")
LARGEST_TOKEN = 2**31 - 1
"""Tokens are numbers of 32 bits in llama.cpp."""
SEEDS = 2**32
"""Negative seeds, which other servers take, wrap around at this."""
ANY_OBJECT = '{"type": "object"}'
"""The schema of ``json_object``."""


def read_parameters(body: BodyFields, extension: BodyFields) -> JsonObject:
    """The options that a body gives, as ``GenerationOptions.from_json`` reads them. Takes their fields out of ``body``
    and ``options`` out of ``extension``; the latter win. Raises LeapSerializationError."""
    options: JsonObject = {}
    for name in SAME_NAME:
        value = body.take(name)
        if value is not None:
            options[name] = value
    for name, read in READERS.items():
        value = body.take(name)
        if value is not None:
            options.update(read(value))
    if options.get("max_tokens", 0) == -1:  # no limit, in the speech of other servers
        options["max_tokens"] = None
    choice = body.take("tool_choice")
    if choice is not None:
        options["tool_choice"] = _tool_choice(choice)
    template = body.object("chat_template_kwargs")
    thinking = template.boolean("enable_thinking", False)
    if body.boolean("enable_thinking", thinking):
        options["enable_thinking"] = True
    if not body.boolean("loop_stop", True):
        options["loop_stop"] = False
    for name, harmless in ONLY_VALUE.items():
        value = body.take(name)
        if value is not None and value not in harmless:
            raise LeapSerializationError(f"{json.dumps(value)[:60]} is not supported", path=name)
    extra = extension.take("options")
    if extra is not None and not isinstance(extra, dict):
        raise LeapSerializationError("expected an object", path="leap.options")
    return {**options, **(extra or {})}


def functions_of(tools: object) -> list[LeapFunction]:
    """The declared functions. Two of one name are refused with LeapSerializationError."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise LeapSerializationError("expected a list", path="tools")
    functions = [LeapFunction.from_openai(tool, f"tools[{n}]") for n, tool in enumerate(tools)]
    names = [function.name for function in functions]
    for name in names:
        if names.count(name) > 1:
            raise LeapSerializationError(f"the function {name!r} is declared twice", path="tools")
    return functions


def schema_text(schema: object, path: str) -> str:
    """The text of a JSON schema in a request."""
    if not isinstance(schema, (dict, bool)):
        raise LeapSerializationError("expected a JSON schema", path=path)
    return json.dumps(schema, ensure_ascii=False)


def _tool_choice(value: object) -> str:
    if isinstance(value, str):
        return value
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise LeapSerializationError("expected auto, none, required, or a function", path="tool_choice")
    if name in CHOICES:  # as an option it would mean that
        raise LeapSerializationError(
            f"a function called {name!r} cannot be demanded by name", path="tool_choice.function.name"
        )
    return name


def _seed(value: object) -> JsonObject:
    return {"rng_seed": value % SEEDS if isinstance(value, int) and value < 0 else value}


def _stop(value: object) -> JsonObject:
    return {"stop": [value] if isinstance(value, str) else value}


def _logit_bias(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object of token ids and numbers", path="logit_bias")
    try:
        biases = {int(token): bias for token, bias in value.items()}
    except ValueError:
        raise LeapSerializationError("its keys must be token ids", path="logit_bias") from None
    for token, bias in biases.items():
        if token > LARGEST_TOKEN:
            raise LeapSerializationError(f"{token} is not a token id", path="logit_bias")
        if isinstance(bias, float) and not math.isfinite(bias):
            raise LeapSerializationError(f"the bias of token {token} is too large", path="logit_bias")
    return {"logit_bias": biases}


def _response_format(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise LeapSerializationError("expected an object", path="response_format")
    kind = value.get("type", "text")
    if kind == "text":
        return {"json_schema_constraint": None}
    if kind == "json_object":
        return {"json_schema_constraint": ANY_OBJECT}
    if kind != "json_schema":
        raise LeapSerializationError(
            f"{kind!r} is not one of text, json_object, json_schema", path="response_format.type"
        )
    named = value.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    return {"json_schema_constraint": schema_text(schema, "response_format.json_schema.schema")}


def _grammar(value: object) -> JsonObject:
    """A grammar as llama.cpp's server takes it (GBNF), or Lark's."""
    from llguidance.gbnf_to_lark import any_to_lark

    if not isinstance(value, str):
        raise LeapSerializationError("expected a grammar, in GBNF or Lark", path="grammar")
    try:
        return {"grammar_constraint": any_to_lark(value)} if value.strip() else {}
    except Exception as error:  # the package has no class for all of them
        raise LeapSerializationError(f"no grammar: {error}", path="grammar") from None


READERS: Mapping[str, Callable[[Any], JsonObject]] = {
    "logprobs": lambda value: _logprobs(value),
    "max_completion_tokens": lambda value: {"max_tokens": value},
    "reasoning_effort": lambda value: _effort(value),
    "seed": _seed,
    "stop": _stop,
    "logit_bias": _logit_bias,
    "response_format": _response_format,
    "grammar": _grammar,
}
"""Fields whose values are written in another way than the option's."""


def _effort(value: object) -> JsonObject:
    """How much a model is to think: that it does is all there is."""
    if value != "none" and value not in EFFORTS:
        raise LeapSerializationError(f"{value!r} is not one of none, {', '.join(EFFORTS)}", path="reasoning_effort")
    return {"enable_thinking": True} if value in EFFORTS else {}


def _logprobs(value: object) -> JsonObject:
    """A boolean of chats, or how many alternatives of plain completions."""
    if isinstance(value, bool):
        return {"logprobs": value}
    return {"logprobs": True, "top_logprobs": value}
