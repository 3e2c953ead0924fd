"""Tools that clients put off, as the official clients see them: searches, namespaces, and texts under a grammar."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

from leap_core import FunctionCalls, LeapFunctionCall
from leap_core.conversation.calls.declaration import FIND

LATER = [
    {
        "name": f"tool_{n}",
        "description": about,
        "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
        "defer_loading": True,
    }
    for n, about in enumerate(("Rings a bell.", "Sends a letter.", "Reads the weather of a town."))
]
SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
LOOKS = FunctionCalls((LeapFunctionCall(FIND, {"query": "weather"}),))
WEATHER = FunctionCalls((LeapFunctionCall("tool_2", {"at": "Rome"}),))


def anthropic_client(server) -> anthropic.Anthropic:
    url = server.url.removesuffix("/v1")
    return server.open.enter_context(anthropic.Anthropic(base_url=url, api_key=server.token or "none", max_retries=0))


def as_functions(tools):
    return [
        {"type": "function", "parameters": tool["input_schema"], **_without(tool, "input_schema")} for tool in tools
    ]


def _without(tool, name):
    return {key: value for key, value in tool.items() if key != name}


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_tool_search(serve, stream):
    server = serve(["Let me see.", LOOKS], [WEATHER], "It rains.")
    client = anthropic_client(server)
    ask = {"model": "builtin", "max_tokens": 50, "tools": [SEARCH, *LATER]}
    said = [{"role": "user", "content": "How is the weather in Rome?"}]
    if stream:
        with client.messages.stream(messages=said, **ask) as events:
            answer = events.get_final_message()
    else:
        answer = client.messages.create(messages=said, **ask)
    kinds = [block.type for block in answer.content]
    assert sorted(kinds) == ["server_tool_use", "text", "tool_search_tool_result", "tool_use"]
    search = next(block for block in answer.content if block.type == "server_tool_use")
    found = next(block for block in answer.content if block.type == "tool_search_tool_result")
    assert (search.name, search.input) == ("tool_search_tool_bm25", {"query": "weather"})
    assert [each.tool_name for each in found.content.tool_references] == ["tool_2"]
    first, second = server.runner.requests
    assert [each.name for each in first.functions] == [FIND], "the others are declared where they are found"
    assert second.messages[: len(first.messages)] == first.messages, "what was read stays read"
    assert json.loads(second.messages[-1].text)[0]["name"] == "tool_2"
    call = answer.content[-1]
    said += [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}]},
    ]
    assert client.messages.create(messages=said, **ask).content[0].text == "It rains."
    third = server.runner.requests[2]
    assert [each.name for each in third.functions] == [FIND, "tool_2"] and third.functions[1].deferred
    assert third.functions[0] == first.functions[0]
    if not stream:  # a stream has its text where it was said, a whole answer after the search
        assert [message.text for message in third.messages[2:3]] == [second.messages[-1].text]


def test_a_custom_search_tool_of_the_client(serve):
    server = serve([WEATHER])
    own = {"name": "lookup", "description": "Finds.", "input_schema": {"type": "object", "properties": {}}}
    said = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "lookup", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "tool_reference", "tool_name": "tool_2"}],
                }
            ],
        },
    ]
    answer = anthropic_client(server).messages.create(
        model="builtin", max_tokens=50, messages=said, tools=[own, *LATER]
    )
    assert answer.content[-1].name == "tool_2"
    request = server.runner.requests[0]
    assert json.loads(request.messages[-1].text)[0]["name"] == "tool_2"


@pytest.mark.parametrize("stream", [False, True])
def test_openais_tool_search(serve, stream):
    server = serve([LOOKS], [WEATHER], "It rains.")
    client = server.client()
    tools = [{"type": "tool_search"}, *as_functions(LATER)]
    ask = {"model": "builtin", "tools": tools, "store": False}
    items = [{"role": "user", "content": "Weather in Rome?"}]
    if stream:
        response = list(client.responses.create(input=items, stream=True, **ask))[-1].response
    else:
        response = client.responses.create(input=items, **ask)
    search, output, call = (item for item in response.output if item.type != "message")
    assert (search.type, search.execution, search.arguments) == ("tool_search_call", "server", {"query": "weather"})
    assert output.type == "tool_search_output" and [tool.name for tool in output.tools] == ["tool_2"]
    assert (call.type, call.name) == ("function_call", "tool_2")
    items += [item.model_dump(exclude_none=True) for item in response.output if item.type != "message"]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "Rain."})
    assert client.responses.create(input=items, **ask).output_text == "It rains."
    assert server.runner.requests[2].messages[:3] == server.runner.requests[1].messages, "the prompt goes on"


def test_a_tool_search_that_the_client_runs(serve):
    wish = FunctionCalls((LeapFunctionCall("tool_search", {"goal": "weather"}),))
    server = serve([wish], [WEATHER])
    client = server.client()
    parameters = {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]}
    tools = [{"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": parameters}]
    response = client.responses.create(model="builtin", input="Weather?", tools=tools)
    (call,) = response.output
    assert (call.type, call.execution, call.arguments) == ("tool_search_call", "client", {"goal": "weather"})
    items = [
        {"role": "user", "content": "Weather?"},
        call.model_dump(exclude_none=True),
        {
            "type": "tool_search_output",
            "call_id": call.call_id,
            "execution": "client",
            "status": "completed",
            "tools": as_functions(LATER[2:]),
        },
    ]
    again = client.responses.create(model="builtin", input=items, tools=tools)
    assert again.output[0].name == "tool_2"
    request = server.runner.requests[1]
    assert [each.name for each in request.functions if not each.deferred] == ["tool_search", FIND]
    assert json.loads(request.messages[-1].text)[0]["name"] == "tool_2"


@pytest.mark.parametrize("stream", [False, True])
def test_a_namespace(serve, stream):
    server = serve([FunctionCalls((LeapFunctionCall("town.tool_2", {"at": "Rome"}),))], "Rain.")
    client = server.client()
    inner = [_without(tool, "defer_loading") for tool in as_functions(LATER)]
    tools = [{"type": "namespace", "name": "town", "description": "A town.", "tools": inner}]
    items = [{"role": "user", "content": "Weather?"}]
    if stream:
        response = list(client.responses.create(model="builtin", input=items, tools=tools, stream=True))[-1].response
    else:
        response = client.responses.create(model="builtin", input=items, tools=tools)
    (call,) = response.output
    assert (call.type, call.namespace, call.name) == ("function_call", "town", "tool_2")
    assert {each.name for each in server.runner.requests[0].functions} == {"town.tool_0", "town.tool_1", "town.tool_2"}
    items += [
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."},
    ]
    assert client.responses.create(model="builtin", input=items, tools=tools).output_text == "Rain."
    assert server.runner.requests[1].messages[1].function_calls[0].name == "town.tool_2"


PATCH = 'start: "*** Begin\\n" LINE+ "*** End"\nLINE: /\\+[a-z]+\\n/'


def test_a_text_under_a_grammar(serve):
    """A text that its grammar allows is taken as it is; another one is written once more under the grammar."""
    right, wrong = "*** Begin\n+a\n*** End", "begin: a"
    server = serve(
        [FunctionCalls((LeapFunctionCall("patch", {"input": right}),))],
        [FunctionCalls((LeapFunctionCall("patch", {"input": wrong}),))],
        "*** Begin\n+b\n*** End",
    )
    client = server.client()
    form = {"type": "grammar", "syntax": "lark", "definition": PATCH}
    tools = [{"type": "custom", "name": "patch", "description": "Changes.", "format": form}]
    ask = {"model": "builtin", "input": "Change it.", "tools": tools}
    assert client.responses.create(**ask).output[0].input == right
    assert client.responses.create(**ask).output[0].input == "*** Begin\n+b\n*** End"
    again = server.runner.requests[2]
    assert again.options.grammar_constraint == PATCH and not again.functions
    broken = [{**tools[0], "format": {**form, "definition": "start: ("}}]
    with pytest.raises(openai.BadRequestError, match="the grammar cannot be used"):
        client.responses.create(**{**ask, "tools": broken})


def test_reasoning_that_a_client_keeps(serve):
    from leap_core import ReasoningChunk

    server = serve([ReasoningChunk("Hm."), "Yes."], "No.", "No.")
    client = server.client()
    ask = {"model": "builtin", "include": ["reasoning.encrypted_content"], "store": False}
    first = client.responses.create(input="Is it?", **ask)
    kept = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": first.output[0].encrypted_content}
    said = [{"role": "user", "content": "Is it?"}, kept, {"role": "assistant", "content": "Yes."}]
    client.responses.create(input=[*said, {"role": "user", "content": "Sure?"}], **ask)
    assert server.runner.requests[1].messages[1].reasoning_content == "Hm."
    foreign = {**kept, "encrypted_content": "gAAAAB=not ours"}
    client.responses.create(input=[*said[:1], foreign, *said[2:]], **ask)
    assert server.runner.requests[2].messages[1].reasoning_content is None
