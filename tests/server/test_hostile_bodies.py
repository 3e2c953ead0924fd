"""Bodies damaged at random, to every endpoint that reads one: each is answered or refused, none is a bug of leap's."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import pytest

from leap_core import GenerationOptions, Leap
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import AudioSample
from leap_core.errors import LeapSchemaError
from leap_core.testing import Script

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "2"},
]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": MESSAGES,
        "tools": [TOOL],
        "tool_choice": "auto",
        "temperature": 0.5,
        "top_p": 0.9,
        "n": 1,
        "seed": 3,
        "stop": ["x"],
        "logit_bias": {"5": 1},
        "logprobs": True,
        "top_logprobs": 2,
        "max_tokens": 5,
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        "leap": {"options": {"min_p": 0.1}},
    },
    "/v1/completions": {"prompt": ["a", [1, 2]], "echo": True, "logprobs": 1, "max_tokens": 1, "suffix": None},
    "/v1/responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "YQ=="},
            {"type": "tool_search_call", "arguments": {"query": "x"}, "execution": "server"},
            {"type": "tool_search_output", "tools": [{"type": "function", "name": "g"}], "execution": "server"},
            {"type": "function_call", "namespace": "n", "name": "f", "call_id": "1", "arguments": "{}"},
        ],
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": "low"},
        "tools": [
            {"type": "function", "name": "f", "parameters": {}, "defer_loading": True},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
            {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
            {"type": "tool_search"},
        ],
        "include": ["reasoning.encrypted_content"],
        "store": False,
    },
    "/v1/messages": {
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "a"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s", "name": "find", "input": {"query": "x"}},
                    {"type": "tool_search_tool_result", "tool_use_id": "s", "content": {"tool_references": []}},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
        ],
        "tools": [
            {"name": "f", "input_schema": {"type": "object"}, "defer_loading": True},
            {"type": "tool_search_tool_bm25_20251119", "name": "find"},
        ],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled"},
    },
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/audio/speech": {"input": "a", "voice": "alloy", "response_format": "mp3", "speed": 1},
    "/v1/embeddings": {"input": ["a"], "encoding_format": "float", "dimensions": 4},
    "/v1/rerank": {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1},
    "/detokenize": {"tokens": [1, 2]},
}
WRONG: list[Any] = [
    None, True, -1, 0, 1e308, 2**70, "", "x", "\ud800", "\x00", [], {}, [[]], {"a": {}}, ["\u202e"] * 3, "9" * 5000,
]  # fmt: skip


def damaged(value: Any, random: random.Random) -> Any:
    """The value with one place in it replaced, left out or doubled."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(sorted(value))
        if random.random() < 0.1:
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: damaged(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        n = random.randrange(len(value))
        rest = value[n:] if random.random() < 0.1 else value[n + 1 :]
        return [*value[:n], damaged(value[n], random), *rest]
    return random.choice(WRONG)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(BODIES))
def test_damaged_bodies_cause_no_internal_error(serve, path, caplog):
    chance = random.Random(path)
    server = serve(*(Script(["Yes."]) for _ in range(300)))
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    with httpx.Client(base_url=server.url.removesuffix("/v1"), headers=headers, timeout=100) as client:
        for _ in range(60):
            body = damaged({"model": "builtin", **BODIES[path]}, chance)
            answer = client.post(path, content=json.dumps(body))
            assert "a bug in leap" not in answer.text, (body, answer.text)
            assert answer.status_code == 200 or "error" in answer.json(), body
        assert client.get("/health").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_lone_surrogate_is_answered(serve):
    """It was a bug of leap's where the answer repeats it."""
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    body = json.dumps({"model": "builtin", "prompt": "\ud800", "echo": True})
    answer = httpx.post(f"{serve('Yes.').url}/completions", content=body, headers=headers, timeout=100)
    assert answer.json()["choices"][0]["text"] == "\ud800Yes."


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/chat/completions", {"messages": MESSAGES, "keep_alive": "7" * 3_000_000}),
        ("v1/chat/completions", {"messages": MESSAGES, "temperature": "\u0301" * 100_000}),
        ("v1/chat/completions", {"messages": MESSAGES, "structured_outputs": {"a" * 100_000: 1}}),
        ("v1/chat/completions", {"messages": [{"role": "a" * 100_000, "content": "Hi"}]}),
        ("v1/responses", {"input": "Hi", "previous_response_id": "a" * 100_000}),
        ("api/chat", {"messages": MESSAGES, "keep_alive": "a" * 100_000}),
        ("v1/messages", {"messages": MESSAGES, "max_tokens": "a" * 100_000}),
    ],
)
def test_a_refusal_does_not_repeat_all_of_a_long_value(serve, path, body):
    server = serve("Yes.")
    url, headers = server.url.removesuffix("v1") + path, {"Authorization": "Bearer secret"}
    answer = httpx.post(url, json={"model": "builtin", **body}, headers=headers, timeout=60)
    assert 400 <= answer.status_code < 500 and len(answer.content) < 200_000


LONG = "漢" * 30_000
TOOL_USE = {"type": LONG, "name": "f"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/chat/completions", {"messages": MESSAGES, LONG: 1}),
        ("v1/chat/completions", {"messages": MESSAGES, **{f"field {n}": 1 for n in range(5000)}}),
        ("v1/chat/completions", {"messages": MESSAGES, "leap": {LONG: 1}}),
        ("v1/completions", {"prompt": "a", LONG: 1}),
        ("v1/responses", {"input": "a", "tools": [TOOL_USE]}),
        ("v1/responses", {"input": "a", "tools": [{"type": f"kind {n}"} for n in range(5000)]}),
        ("v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "tools": [TOOL_USE]}),
    ],
)
def test_warnings_do_not_repeat_all_of_a_long_name(serve, path, body):
    url = serve("Yes.").url.removesuffix("v1") + path
    answer = httpx.post(url, json={"model": "builtin", **body}, headers={"Authorization": "Bearer secret"}, timeout=100)
    warnings = answer.json()["leap"]["warnings"]
    assert answer.status_code == 200 and 1 <= len(warnings) <= 30
    assert all(len(warning) < 11_000 for warning in warnings)


@pytest.mark.parametrize("name", [LONG, "\ud800\r\n", "a" * 30_000])
def test_the_warnings_of_speech_fit_a_header(serve, name):
    sound = Script([AudioSample((0.1, -0.1) * 100, 24000)])
    url = serve(sound, speaks=True).url
    body = json.dumps({"model": "builtin", "input": "a", "voice": "alloy", "response_format": "wav", name: 1})
    answer = httpx.post(f"{url}/audio/speech", content=body, headers={"Authorization": "Bearer secret"}, timeout=100)
    assert answer.status_code == 200 and "the field" in answer.headers["x-leap-warning"]
    assert len(answer.headers["x-leap-warning"]) <= 1000


@pytest.mark.parametrize(
    "fields", [{"guided_choice": ["\ud800", "b"]}, {"structured_outputs": {"choice": ["\ud800"]}}, {"stop": ["\ud800"]},
               {"guided_regex": "\ud800"}, {"guided_grammar": 'start: "\ud800"'}, {"guided_json": {"const": "\ud800"}}]
)  # fmt: skip
def test_a_lone_surrogate_in_a_constraint_causes_no_internal_error(serve, fields, caplog):
    body = json.dumps({"model": "builtin", "messages": MESSAGES, **fields})
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    answer = httpx.post(f"{serve('Yes.').url}/chat/completions", content=body, headers=headers, timeout=100)
    assert "a bug in leap" not in answer.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_lone_surrogate_among_choices_is_refused():
    options = GenerationOptions(choices_constraint=("\ud800", "b"), max_tokens=1)
    with pytest.raises(LeapSchemaError, match="the choices cannot be used"):
        Leap.load("builtin").start([ChatMessage("user", "Hi")], (), options)
