"""leap's requests as bodies of OpenAI's protocol: the counterpart of ``openai.requests``, which reads them."""

from __future__ import annotations

from ..json_fields import JsonObject
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..constraints.schema_in_prompt import append_to_system
from ..errors import LeapOptionsError
from ..messages import ChatMessage
from ..openai.parameters import ANY_OBJECT
from ..options import GenerationOptions

if TYPE_CHECKING:
    from ..functions import LeapFunction


NOT_HELD = {
    "regex_constraint": "a regular expression",
    "grammar_constraint": "a grammar",
    "logprob_tokens": "the likelihood of given tokens",
    "prompt_logprobs": "the likelihood of the prompt",
    "decision": "a decision's template",
    "adapters": "adapters",
    "audio_temperature": "the drawing of speech",
    "audio_top_k": "the drawing of speech",
    "repeat_last_n": "the reach of penalties",
    "image_tokens": "the size of pictures",
    "image_tiles": "tiles of pictures",
}
"""Options that the protocol has no field for."""
SAME_NAME = (
    *("temperature", "top_p", "frequency_penalty", "presence_penalty", "max_tokens", "top_logprobs"),
    *("top_k", "min_p", "repetition_penalty"),  # of vLLM, SGLang and leap; others refuse them by name
)
CHOICES = "Answer with exactly one of these texts, and nothing else: "


def check_held(options: GenerationOptions) -> None:
    """Raises LeapOptionsError for an option that no endpoint can be held to."""
    plain = GenerationOptions()
    for name, what in NOT_HELD.items():
        if getattr(options, name) != getattr(plain, name):
            raise LeapOptionsError(name, f"an endpoint cannot be held to {what}; a model on this machine can")


def chat_body(
    messages: Sequence[ChatMessage], functions: Sequence[LeapFunction], options: GenerationOptions
) -> JsonObject:
    """A request to ``/chat/completions``."""
    if options.choices_constraint is not None:
        messages = append_to_system(
            messages, CHOICES + json.dumps(list(options.choices_constraint), ensure_ascii=False)
        )
    body: JsonObject = {"messages": [_message(message) for message in messages], **_parameters(options)}
    if functions:
        body["tools"] = [function.to_json_object() for function in functions]
        choice = options.tool_choice
        if choice is not None:
            named = choice not in ("auto", "none", "required")
            body["tool_choice"] = {"type": "function", "function": {"name": choice}} if named else choice
    if options.wants_logprobs:
        body["logprobs"] = True
    schema = options.json_schema_constraint
    if schema is not None:
        body["response_format"] = _response_format(schema)
    if options.enable_thinking:
        body["chat_template_kwargs"] = {"enable_thinking": True}
    return body


def text_body(text: str | Sequence[int], options: GenerationOptions) -> JsonObject:
    """A request to ``/completions``."""
    body = {"prompt": text if isinstance(text, str) else list(text), **_parameters(options)}
    top = body.pop("top_logprobs", None)
    if options.wants_logprobs:
        body["logprobs"] = top or 0
    return body


def _message(message: ChatMessage) -> JsonObject:
    """The message without what only leap knows: how it was said aloud, and what was thought."""
    value = message.to_json()
    value.pop("reasoning_content", None)
    if isinstance(value.get("content"), list):
        value["content"] = [
            {name: part for name, part in each.items() if name != "speech"} for each in value["content"]
        ]
    return value


def _parameters(options: GenerationOptions) -> JsonObject:
    body: JsonObject = {name: value for name in SAME_NAME if (value := getattr(options, name)) is not None}
    if options.rng_seed is not None:
        body["seed"] = options.rng_seed
    if options.stop:
        body["stop"] = list(options.stop)
    if options.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in options.logit_bias.items()}
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def _response_format(schema: str) -> JsonObject:
    if schema == ANY_OBJECT:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": json.loads(schema)}}
