"""The body of an OpenAI chat-completions request, as leap's messages, functions and options.

leap's own parameters (top_k, min_p, repetition_penalty, repeat_last_n, enable_thinking) may stand beside OpenAI's.
Every field is understood, known to change nothing here, or refused by name: none is passed over in silence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import LeapOptionsError, LeapSerializationError
from ..functions import LeapFunction

SAME_NAME = {
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "repeat_last_n",
    "frequency_penalty",
    "presence_penalty",
    "max_tokens",
    "enable_thinking",
}
WITHOUT_EFFECT = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
    "stream_options",
}
ONLY: Mapping[str, tuple[Any, ...]] = {"n": (1,), "stream": (False,), "logprobs": (False,), "top_logprobs": (0,)}
"""Parameters that may be given with the values that ask for nothing."""


LARGEST_TOKEN = 2**31 - 1
"""Of llama.cpp's 32 bits."""


def options_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The generation options that a body asks for, by the names of GenerationOptions' fields; null asks for nothing.

    Raises LeapSerializationError, or LeapOptionsError for a value that GenerationOptions would refuse by type.
    """
    found: dict[str, Any] = {}
    for name, value in body.items():
        if value is None or name in WITHOUT_EFFECT:
            continue
        if name in SAME_NAME:
            found[name] = value
        elif name in ONLY:
            if value not in ONLY[name]:
                raise LeapSerializationError(f"{value!r} is not supported", path=name)
        elif name in _READERS:
            found.update(_READERS[name](value))
        else:
            raise LeapSerializationError("there is no such field", path=name)
    if not isinstance(found.get("enable_thinking", False), bool):
        raise LeapOptionsError("enable_thinking", "must be true or false")
    return found


def functions_of(tools: object) -> list[LeapFunction]:
    """The declared functions; two of one name are refused."""
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


def _stop(value: object) -> dict[str, Any]:
    return {"stop": [value] if isinstance(value, str) else value}


def _tool_choice(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        return {"tool_choice": value}
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise LeapSerializationError("expected auto, none, required, or a function", path="tool_choice")
    return {"tool_choice": name}


def _logit_bias(value: object) -> dict[str, Any]:
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


def _response_format(value: object) -> dict[str, Any]:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return {"json_schema_constraint": None}
    if kind == "json_object":
        return {"json_schema_constraint": '{"type": "object"}'}
    if kind != "json_schema" or not isinstance(value, dict):
        raise LeapSerializationError(f"{kind!r} is not text, json_object or json_schema", path="response_format.type")
    given = value.get("json_schema")
    schema = given.get("schema") if isinstance(given, dict) else None
    if not isinstance(schema, (dict, bool)):
        raise LeapSerializationError("expected a JSON schema", path="response_format.json_schema.schema")
    return {"json_schema_constraint": json.dumps(schema, ensure_ascii=False)}


def _schema(value: object) -> dict[str, Any]:
    if not isinstance(value, (dict, bool)):
        raise LeapSerializationError("expected a JSON schema", path="schema")
    return {"json_schema_constraint": json.dumps(value, ensure_ascii=False)}


_READERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "max_completion_tokens": lambda value: {"max_tokens": value},
    "seed": lambda value: {"rng_seed": value},
    "stop": _stop,
    "tool_choice": _tool_choice,
    "logit_bias": _logit_bias,
    "response_format": _response_format,
    "schema": _schema,
}
