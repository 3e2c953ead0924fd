"""One request: read alike from every protocol, and the same after its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from leap_core.conversation.calls import LeapFunction
from leap_core.conversation.messages import ChatMessage, Image, LeapFunctionCall, Text
from leap_core.conversation.options import GenerationOptions
from leap_core.conversation.request import Request
from leap_core.errors import LeapSerializationError
from leap_core.protocols.anthropic import read_messages
from leap_core.protocols.ollama import read_ollama_chat
from leap_core.protocols.openai.requests import read_chat
from leap_core.protocols.openai.responses_request import read_responses

SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}
FUNCTION = LeapFunction.from_openai({"name": "look", "description": "Look.", "parameters": SCHEMA})
MESSAGES = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "Where is it?"),
    ChatMessage("assistant", function_calls=[LeapFunctionCall("look", {"at": 1}, "c1")]),
    ChatMessage("tool", "There.", tool_call_id="c1"),
]
CALL = {"name": "look", "arguments": '{"at": 1}'}
SAID = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}]


def test_all_protocols_read_the_same_request() -> None:
    options = {"temperature": 0.5, "top_p": 0.9, "model": "m"}
    function = {"name": "look", "description": "Look.", "parameters": SCHEMA}
    chat = [
        *SAID,
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": CALL}]},
        {"role": "tool", "tool_call_id": "c1", "content": "There."},
    ]
    items = [{"type": "function_call", "call_id": "c1", **CALL}]
    items += [{"type": "function_call_output", "call_id": "c1", "output": "There."}]
    blocks = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "There."}]},
    ]
    tool = {"name": "look", "description": "Look.", "input_schema": SCHEMA}
    of_ollama = {"model": "m", "messages": chat, "tools": [{"type": "function", "function": function}]}
    given = {"options": {"temperature": 0.5, "top_p": 0.9, "num_predict": 9}}
    ollama = read_ollama_chat({**of_ollama, **given, "stream": False}).generation
    assert ollama is not None
    read = {
        "chat": read_chat({**of_ollama, **options, "max_tokens": 9}),
        "Responses": read_responses(
            {**options, "input": [*SAID, *items], "tools": [{"type": "function", **function}], "max_output_tokens": 9}
        ).chat,
        "Messages": read_messages(
            {**options, "system": "Be brief.", "messages": [SAID[1], *blocks], "tools": [tool], "max_tokens": 9}
        ),
        "Ollama": ollama,
    }
    wanted = Request(MESSAGES, [FUNCTION], GenerationOptions(temperature=0.5, top_p=0.9, max_tokens=9))
    for name, request in read.items():
        plain = [
            replace(each, content=[part for part in each.content if part != Text("")]) for each in request.messages
        ]
        plain = [replace(each, tool_call_id=each.tool_call_id and "c1") for each in plain]
        assert (name, Request(plain, request.functions, request.options)) == (name, wanted)


def test_a_request_is_the_same_after_its_json() -> None:
    functions = [
        FUNCTION,
        replace(FUNCTION, name="later", deferred=True),
        replace(FUNCTION, name="of", grammar="start: A"),
    ]
    picture = ChatMessage("user", [Text("See:"), Image(b"\xff\xd8\xff...")])
    request = Request([*MESSAGES, picture], functions, GenerationOptions(temperature=0.5, stop=["END"]))
    assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request
    assert Request.from_json({"messages": []}) == Request([], [])


def test_a_request_of_a_later_version_is_refused() -> None:
    with pytest.raises(LeapSerializationError, match="2 is not 1, which this leap reads"):
        Request.from_json({"version": 2, "messages": []})
