"""``leap serve`` with the built-in model, used by OpenAI's own client."""

from __future__ import annotations

import json
import signal
import socket
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from .conftest import LONG, QUESTION

SOON = 60.0
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def serve(start):
    """Start ``leap serve`` and give a client of it, once the model is loaded."""
    clients = []

    def begin(*arguments, **settings):
        process = start("serve", "builtin", "--port", "0", "--threads", "1", *arguments)
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:") and url.endswith("/v1"), process.communicate()
        assert b"builtin ready" in process.stderr.readline()
        client = openai.OpenAI(**({"base_url": url, "api_key": "none", "max_retries": 0, "timeout": SOON} | settings))
        clients.append(client)
        return process, client

    yield begin
    for client in clients:
        client.close()


def ask(client, text=QUESTION, **given):
    asked = {"model": "builtin", "messages": [{"role": "user", "content": text}], "temperature": 0} | given
    return client.chat.completions.create(**asked)


def said(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_openais_client_works(serve):
    """One server for all of it: chat, streams, tools and back, shapes, text, errors, cancelling, eight at once."""
    _, client = serve()

    whole = ask(client)
    assert "Paris" in whole.choices[0].message.content and whole.choices[0].finish_reason == "stop"
    assert whole.usage.prompt_tokens > 10 and whole.usage.completion_tokens > 3

    assert said(ask(client, stream=True)) == whole.choices[0].message.content

    messages = [{"role": "user", "content": "What is the weather in Bern?"}]
    called = ask(client, messages=messages, tools=[WEATHER], tool_choice="required").choices[0]
    assert called.finish_reason == "tool_calls"
    (call, *_) = called.message.tool_calls
    assert call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments)["city"], str)
    messages.append(called.message.model_dump(exclude_none=True))
    messages += [
        {"role": "tool", "tool_call_id": each.id, "content": '{"sky": "clear"}'} for each in called.message.tool_calls
    ]
    assert ask(client, messages=messages, tools=[WEATHER], max_tokens=60).choices[0].message.content

    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    shaped = ask(client, "Ada is 36 years old.", response_format=shape).choices[0].message.content
    assert set(json.loads(shaped)) == {"name", "age"}
    streamed = said(ask(client, "Ada is 36 years old.", response_format=shape, stream=True))
    assert json.loads(streamed) == json.loads(shaped)

    raw = {"model": "builtin", "prompt": "<|im_start|>user\nSay hello.", "max_tokens": 5, "temperature": 0}
    text = client.completions.create(**raw)
    assert text.object == "text_completion" and text.usage.completion_tokens <= 5
    pieces = client.completions.create(**raw, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == text.choices[0].text

    assert ask(client, LONG, max_tokens=5).choices[0].finish_reason == "length"
    assert "," not in ask(client, LONG, stop=[","]).choices[0].message.content

    with pytest.raises(openai.NotFoundError):
        ask(client, model="gpt-4")
    with pytest.raises(openai.BadRequestError, match="schema"):
        ask(client, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 3}}})
    with pytest.raises(openai.APIStatusError) as long:
        ask(client, "word " * 20_000)
    assert long.value.code == "context_length_exceeded" and long.value.body["leap"]["prompt_tokens"] > 10_000

    stream = ask(client, LONG, stream=True)
    for _ in range(3):
        next(stream)
    stream.close()
    deadline = time.monotonic() + SOON
    while client.models.retrieve("builtin").leap["slots_in_use"]:
        assert time.monotonic() < deadline, "the cancelled stream still runs"
        time.sleep(0.02)

    questions = [QUESTION] * 8
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda question: said(ask(client, question, stream=True)), questions))
    assert answers == [whole.choices[0].message.content] * 8


def test_an_api_key_is_hidden_from_other_users(serve, tmp_path):
    (tmp_path / "key").write_text("s3cret\n")
    _, client = serve("--api-key-file", "key", api_key="s3cret")
    assert client.models.list().data
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


def test_an_api_key_is_required(serve):
    _, client = serve("--api-key", "s3cret", api_key="s3cret")
    assert "Paris" in ask(client).choices[0].message.content
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    health = str(client.base_url).replace("/v1/", "/health")
    with urllib.request.urlopen(health, timeout=SOON) as answer:
        said = json.loads(answer.read())
    assert (said["status"], said["models"]) == ("ok", ["builtin"]) and said["activity"]["builtin"]["slots"] == 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server(serve, number):
    process, client = serve()
    stream = ask(client, LONG, stream=True)
    next(stream)
    process.send_signal(number)
    with pytest.raises(openai.APIError, match="unloaded"):
        list(stream)
    out, errors = process.communicate(timeout=SOON)
    assert (process.returncode, out, errors) == (0, b"", b"")


def test_a_port_in_use_is_a_one_line_error(program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = program("serve", "builtin", "--port", str(port))
    assert (done.returncode, done.stdout) == (10, "")
    assert done.stderr.startswith(f"leap: error: cannot listen on 127.0.0.1 port {port}: ")


def test_serve_refuses_invalid_options(program, tmp_path):
    open_to_all = program("serve", "builtin", "--address", "0.0.0.0", "--port", "0")
    assert open_to_all.returncode == 2 and "API key" in open_to_all.stderr
    missing = program("serve", "missing.gguf", "--port", "0")
    assert missing.returncode == 2 and "missing.gguf" in missing.stderr
    assert program("serve", "builtin", "--slots", "0").returncode == 2


def test_an_unknown_model_is_reported_before_the_url(program):
    done = program("serve", "builtin", "nosuch", "--port", "0")
    assert (done.returncode, done.stdout) == (2, "") and "there is no model 'nosuch'" in done.stderr
