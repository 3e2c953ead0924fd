"""One table of OpenAI bodies, sent through both entrances: ``leap serve`` and a line of ``leap batch``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from leap_core.conversation.messages import LeapFunctionCall
from leap_core.conversation.priority import BATCH
from leap_core.conversation.responses import FunctionCalls
from leap_core.protocols.openai.fields import ANY_OBJECT
from leap_core.testing import ScriptedModelRunner

from ...server.conftest import serve  # noqa: F401 - a fixture


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def demanded(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


SCHEMA = {"type": "object", "properties": {"ä": {"type": "integer"}}}
SHAPED = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
LOOK = {"tools": [tool("look")]}
CALLS = FunctionCalls((LeapFunctionCall("look", {"at": 1}), LeapFunctionCall("look", {"at": 2})))


@dataclass(frozen=True)
class Taken:
    """The body is answered: with these options, and this many calls where the model makes two."""

    options: dict[str, Any]
    calls: int = 2


@dataclass(frozen=True)
class Refused:
    """The body is refused before a model sees it; ``field`` is at fault."""

    field: str
    part: str = ""


BODIES: dict[str, tuple[dict[str, Any], Taken | Refused]] = {
    "plain": ({}, Taken({})),
    "sampling": (
        {"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "seed": 7},
        Taken({"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "rng_seed": 7}),
    ),
    "seed of another server": ({"seed": -1}, Taken({"rng_seed": 2**32 - 1})),
    "no limit": ({"max_tokens": -1}, Taken({})),
    "limit": ({"max_completion_tokens": 5, "stop": "END"}, Taken({"max_tokens": 5, "stop": ["END"]})),
    "no room": ({"max_tokens": 0}, Refused("max_tokens")),
    "null": ({"temperature": None, "n": None, "what": None}, Taken({})),
    "harmless": ({"user": "me", "store": False, "metadata": {"a": "b"}, "service_tier": "auto"}, Taken({})),
    "asks for nothing": ({"n": 1, "logprobs": False, "functions": [], "modalities": ["text"]}, Taken({})),
    "logprobs": ({"logprobs": True, "top_logprobs": 2}, Taken({"logprobs": True, "top_logprobs": 2})),
    "too many logprobs": ({"logprobs": True, "top_logprobs": 21}, Refused("top_logprobs", "20 or less")),
    "sound": ({"modalities": ["audio"]}, Refused("modalities", "not supported")),
    "bias": ({"logit_bias": {"7": -2}}, Taken({"logit_bias": {"7": -2}})),
    "bias of no token": ({"logit_bias": {str(2**31): 1}}, Refused("logit_bias", "not a token id")),
    "bias of a word": ({"logit_bias": {"yes": 1}}, Refused("logit_bias", "token ids")),
    "lengths": (
        {"ignore_eos": True, "min_tokens": 5.0, "max_tokens": 5, "stop_token_ids": [7]},
        Taken({"ignore_eos": True, "min_tokens": 5, "max_tokens": 5, "stop_token_ids": [7]}),
    ),
    "a stop token that is a text": ({"stop_token_ids": ["END"]}, Refused("stop_token_ids", "token ids")),
    "more than the most": ({"min_tokens": 6, "max_tokens": 5}, Refused("min_tokens", "max_tokens")),
    "thinking": ({"enable_thinking": True}, Taken({"enable_thinking": True})),
    "repetition": ({"repetition_detection": False}, Taken({"repetition_detection": False})),
    "thinking of the template": (
        {"chat_template_kwargs": {"enable_thinking": True}},
        Taken({"enable_thinking": True}),
    ),
    "values for the template": (
        {"chat_template_kwargs": {"enable_thinking": False, "style": {"a": [1]}}},
        Taken({"chat_template_kwargs": {"style": {"a": [1]}}}),
    ),
    "no object for the template": ({"chat_template_kwargs": [1]}, Refused("chat_template_kwargs")),
    "thinking, in words": ({"enable_thinking": "yes"}, Refused("enable_thinking")),
    "all of top_k": ({"top_k": -1}, Taken({"top_k": 0})),
    "whole numbers with a point": (
        {"max_tokens": 16.0, "top_k": 3.0, "repeat_last_n": 64.0, "seed": 7.0, "n": 1.0},
        Taken({"max_tokens": 16, "top_k": 3, "repeat_last_n": 64, "rng_seed": 7}),
    ),
    "no tier": ({"service_tier": "nosuch"}, Refused("service_tier", "flex")),
    "a number of a tier": ({"service_tier": 3}, Refused("service_tier")),
    "a half": ({"max_tokens": 1.5}, Refused("max_tokens")),
    "penalty of another server": ({"repeat_penalty": 1.5}, Taken({"repetition_penalty": 1.5})),
    "a schema as llama.cpp takes it": (
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        Taken({"json_schema_constraint": json.dumps(SCHEMA, ensure_ascii=False)}),
    ),
    "a schema beside the body": (
        {"json_schema": SCHEMA},
        Taken({"json_schema_constraint": json.dumps(SCHEMA, ensure_ascii=False)}),
    ),
    "a schema as vLLM takes it": (
        {"guided_json": SCHEMA},
        Taken({"json_schema_constraint": json.dumps(SCHEMA, ensure_ascii=False)}),
    ),
    "guided choices": ({"guided_choice": ["a", "b"]}, Taken({"choices_constraint": ["a", "b"]})),
    "a guided expression": ({"guided_regex": "[a-z]+"}, Taken({"regex_constraint": "[a-z]+"})),
    "structured outputs": ({"structured_outputs": {"choice": ["a"]}}, Taken({"choices_constraint": ["a"]})),
    "any structured object": (
        {"structured_outputs": {"json_object": True}},
        Taken({"json_schema_constraint": ANY_OBJECT, "inject_schema_into_prompt": False}),
    ),
    "an unknown structure": (
        {"structured_outputs": {"structural_tag": "x"}},
        Refused("structured_outputs.structural_tag", "not supported"),
    ),
    "any object": (
        {"response_format": {"type": "json_object"}},
        Taken({"json_schema_constraint": ANY_OBJECT, "inject_schema_into_prompt": False}),
    ),
    "schema": (
        {"response_format": SHAPED},
        Taken({"json_schema_constraint": json.dumps(SCHEMA, ensure_ascii=False)}),
    ),
    "text": ({"response_format": {"type": "text"}}, Taken({})),
    "xml": ({"response_format": {"type": "xml"}}, Refused("response_format.type", "not one of")),
    "schema without one": (
        {"response_format": {"type": "json_schema"}},
        Refused("response_format.json_schema.schema"),
    ),
    "tools": ({**LOOK, "tool_choice": "auto"}, Taken({"tool_choice": "auto"})),
    "one call": ({**LOOK, "parallel_tool_calls": False}, Taken({}, calls=1)),
    "demanded": ({**LOOK, "tool_choice": demanded("look")}, Taken({"tool_choice": "look"})),
    "demanded by its bare name": ({**LOOK, "tool_choice": "look"}, Taken({"tool_choice": "look"})),
    "demanded, not there": ({**LOOK, "tool_choice": demanded("see")}, Refused("tool_choice", "no function 'see'")),
    "required of none": ({"tool_choice": "required"}, Refused("tool_choice", "no functions are registered")),
    "a tool called auto": (
        {"tools": [tool("auto")], "tool_choice": demanded("auto")},
        Refused("tool_choice.function.name", "cannot be demanded by name"),
    ),
    "a tool called none": (
        {"tools": [tool("none")], "tool_choice": demanded("none")},
        Refused("tool_choice.function.name", "cannot be demanded by name"),
    ),
    "doubled tools": ({"tools": [tool("look"), tool("look")]}, Refused("tools", "declared twice")),
    "tools of no list": ({"tools": {}}, Refused("tools", "expected a list")),
    "options of leap": ({"leap": {"options": {"regex_constraint": "a+"}}}, Taken({"regex_constraint": "a+"})),
    "unknown option of leap": ({"leap": {"options": {"what": 1}}}, Refused("what", "no such option")),
    "no messages": ({"messages": []}, Refused("messages", "at least one")),
    "newer role": ({"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}]}, Taken({})),
    "unknown role": ({"messages": [{"role": "poet", "content": "x"}]}, Refused("messages[0].role")),
}

UNKNOWN = {
    "field": ({"temprature": 1}, "temprature"),
    "field of an object": ({"stream_options": {"style": "old"}}, "stream_options.style"),
    "field of leap's": ({"leap": {"what": 1}}, "leap.what"),
}
"""The one difference: a server notes what it does not know, and a batch refuses it."""


def body_of(fields: dict[str, Any]) -> dict[str, Any]:
    return {"model": "builtin", "messages": [{"role": "user", "content": "Hi"}], **fields}


def answer_of(fields: dict[str, Any]) -> Any:
    return [CALLS] if "tools" in fields else "Yes."


def sent(server: Any, fields: dict[str, Any]) -> httpx.Response:
    headers = {"Authorization": f"Bearer {server.token}"}
    return httpx.post(f"{server.url}/chat/completions", json=body_of(fields), headers=headers, timeout=100)


@pytest.fixture
def line(leap, tmp_path):
    """Runs ``leap batch`` over one line with this body; what it said, what it wrote, and the runner."""

    def run(fields: dict[str, Any], *args: str):
        runner = ScriptedModelRunner(answer_of(fields), model_id="builtin")
        leap.runner = runner
        (tmp_path / "in.jsonl").write_text(json.dumps({"custom_id": "a", "body": body_of(fields)}) + "\n")
        output = tmp_path / "out.jsonl"
        done = leap("batch", "in.jsonl", "-o", str(output), "-m", "builtin", *args)
        written = [json.loads(row) for row in output.read_text().splitlines()] if output.exists() else []
        return done, written, runner

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_a_body_means_the_same_to_a_server_and_in_a_batch(name, serve, line):  # noqa: F811
    fields, expected = BODIES[name]
    server = serve(answer_of(fields))
    response = sent(server, fields)
    done, written, runner = line(fields)
    if isinstance(expected, Refused):
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, expected.field)
        assert expected.part in error["message"]
        assert (done.code, runner.requests) == (2, []) and f"line 1: {expected.field}: " in done.stderr
        assert expected.part in done.stderr
        return
    assert (response.status_code, done.code) == (200, 0), done.stderr
    served, batched = server.runner.requests[0], runner.requests[0]
    finishing = replace(served.options, complete_json=True, priority=BATCH)  # a line that is cut would be a line lost
    assert replace(served, options=finishing) == batched
    assert served.options.to_json() == expected.options
    bodies = [response.json(), written[0]["response"]["body"]]
    (message, finish), (other, _) = (
        (body["choices"][0]["message"], body["choices"][0]["finish_reason"]) for body in bodies
    )
    assert [body["choices"][0]["finish_reason"] for body in bodies] == [finish, finish]
    assert [set(body) for body in bodies] == [set(bodies[0])] * 2
    for each in (message, other):
        for call in each.get("tool_calls", ()):
            call.pop("id")
    assert message == other
    if "tools" in fields:
        assert len(message["tool_calls"]) == expected.calls
        assert ("warnings" in bodies[0]["leap"], "warnings" in bodies[1]["leap"]) == (expected.calls == 1,) * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_field_is_noted_by_a_server_and_refused_in_a_batch(name, serve, line):  # noqa: F811
    fields, path = UNKNOWN[name]
    response = sent(serve("Yes."), fields)
    assert response.json()["leap"]["warnings"] == [f"the field {path!r} is unknown and was ignored"]
    done, _, runner = line(fields)
    assert (done.code, runner.requests) == (2, []) and f"line 1: {path}: there is no such field" in done.stderr


TOOLS = [{"type": "function", "function": {"name": name}} for name in ("look", "walk", "sing")]


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": TOOLS[:2]}},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "look"}, {"name": "walk"}],
        },
    ],
)
def test_a_choice_of_some_tools_leaves_those_alone(choice):
    from leap_core.protocols.openai.requests import read_chat

    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "tool_choice": choice}
    request = read_chat(body)
    assert [function.name for function in request.functions] == ["look", "walk"]
    assert request.options.tool_choice == "required"


def test_no_tools_undo_the_choice_of_a_tool_among_defaults():
    from leap_core import GenerationOptions, LeapFunction
    from leap_core.protocols.openai.requests import read_chat

    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": []}
    functions, defaults = [LeapFunction.from_openai(tool("look"))], GenerationOptions(tool_choice="look")
    request = read_chat(body, functions=functions, defaults=defaults)
    assert (list(request.functions), request.options.tool_choice) == ([], None)


def test_a_refusal_and_a_tool_without_an_output_are_messages():
    from leap_core.conversation.messages import messages_from_json

    refusal, tool = messages_from_json(
        [
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "tool", "content": None, "tool_call_id": "c"},
        ]
    )
    assert refusal.text == "No." and tool.text == ""
