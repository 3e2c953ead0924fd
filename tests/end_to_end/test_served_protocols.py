"""``leap serve`` as coding agents use it, with the official clients and the real engine, and what survives its end."""

from __future__ import annotations

import json
import re
import signal

import pytest

from tests.support.lengths import lengths

from .conftest import LONG

SOON = 100.0
MOST_UNREAD = 4
"""Tokens of a reply that were sampled, or forced by its constraint, and not computed yet when it ended."""
CITY = {"type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"]}
ABOUT = {"name": "get_weather", "description": "Get the weather in a city."}
SYSTEM = "You are a helpful assistant."
QUESTION = "What is the weather in Bern and in Rome?"


@pytest.fixture
def serve(start):
    """Start ``leap serve``; its process and the official clients, whose import takes seconds."""
    import anthropic
    import openai

    clients = []

    def begin():
        process = start("serve", "builtin", "--port", "0", "--threads", "1", "--log-requests")
        url = process.stdout.readline().decode().strip()
        assert url.endswith("/v1"), process.communicate()
        assert b"builtin ready" in process.stderr.readline()
        settings = {"api_key": "none", "max_retries": 0, "timeout": SOON}
        made = openai.OpenAI(base_url=url, **settings), anthropic.Anthropic(base_url=url[:-3], **settings)
        clients.extend(made)
        return process, *made

    yield begin
    for client in clients:
        client.close()


def rounds_of_responses(client, count):
    """(prompt, restored, answered) tokens of every round."""
    tool = {"type": "function", **ABOUT, "parameters": CITY, "strict": False}
    items = [{"role": "user", "content": QUESTION}]
    for day in range(count):
        response = client.responses.create(
            model="builtin", input=items, instructions=SYSTEM, tools=[tool], tool_choice="required", temperature=0
        )
        usage = response.usage
        yield usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens
        calls = [item for item in response.output if item.type == "function_call"]
        assert calls, response
        items += [item.model_dump(exclude_none=True) for item in response.output]
        result = json.dumps({"sky": "clear", "day": day})
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": result} for call in calls]


def rounds_of_messages(client, count):
    tool = {**ABOUT, "input_schema": CITY}
    messages = [{"role": "user", "content": QUESTION + " Tell me."}]
    for day in range(count):
        message = client.messages.create(
            model="builtin",
            max_tokens=500,
            messages=messages,
            system=SYSTEM,
            tools=[tool],
            tool_choice={"type": "any"},
            extra_body={"temperature": 0},
        )
        usage = message.usage
        yield usage.input_tokens + usage.cache_read_input_tokens, usage.cache_read_input_tokens, usage.output_tokens
        uses = [block for block in message.content if block.type == "tool_use"]
        assert uses and message.stop_reason == "tool_use", message
        content = [block.model_dump(exclude_none=True) for block in message.content]
        result = json.dumps({"sky": "clear", "day": day})
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": result} for use in uses]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


@lengths(3, 20, "count")
def test_the_loop_of_an_agent_computes_no_prefix_twice(serve, count):
    _, openai_client, anthropic_client = serve()
    for rounds in (rounds_of_responses(openai_client, count), rounds_of_messages(anthropic_client, count)):
        counts = list(rounds)
        assert len(counts) == count
        for (prompt, _, answered), (longer, restored, _) in zip(counts, counts[1:], strict=False):
            assert longer > prompt + answered >= restored >= prompt + answered - MOST_UNREAD, counts


def test_stored_responses_survive_a_killed_server_and_streams_end_with_an_error(serve):
    import openai

    process, client, _ = serve()
    asked = {"model": "builtin", "temperature": 0}
    stored = client.responses.create(input="My name is Zoë.", store=True, **asked)
    forgotten = client.responses.create(input="My name is Bo.", **asked)
    process.send_signal(signal.SIGKILL)
    log = process.communicate()[1].decode()
    lines = re.findall(
        r"req_[0-9a-f]{24} POST /v1/responses 200, \d+ bytes, \d+\.\d{3} s; prompt \d+\+\d+, answer \d+ tokens", log
    )
    assert lines and "Zo" not in log and stored.output_text not in log

    process, client, _ = serve()
    again = client.responses.create(input="What is my name?", previous_response_id=stored.id, **asked)
    assert again.previous_response_id == stored.id and again.usage.input_tokens > stored.usage.total_tokens
    with pytest.raises(openai.BadRequestError, match="there is no response"):
        client.responses.create(input="What is my name?", previous_response_id=forgotten.id, **asked)

    stream = client.responses.create(input=LONG, stream=True, max_output_tokens=1500, **asked)
    events = []
    for event in stream:
        events.append(event)
        if event.type == "response.output_text.delta" and len(events) < 10:
            process.send_signal(signal.SIGTERM)
    assert events[-1].type == "response.failed" and "unloaded" in events[-1].response.error.message
    assert process.wait(SOON) == 0
