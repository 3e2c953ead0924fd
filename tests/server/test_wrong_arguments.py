"""Calls of the history whose arguments a model wrote wrongly: the conversation goes on, and the answer has a note."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from leap_core.protocols.ollama import read_ollama_chat

ARGUMENTS = '{"path": "a.txt", '
CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": ARGUMENTS}}
ASKED = {"role": "user", "content": "Read it."}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            ASKED,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "no JSON"},
        ]
    },
    "/v1/responses": {
        "input": [
            ASKED,
            {"type": "function_call", "call_id": "c", "name": "read", "arguments": ARGUMENTS},
            {"type": "function_call_output", "call_id": "c", "output": "no JSON"},
        ]
    },
    "/v1/messages": {
        "max_tokens": 9,
        "messages": [
            ASKED,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "read", "input": ARGUMENTS}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no JSON"}]},
        ],
    },
}


@pytest.mark.parametrize("path", BODIES)
def test_invalid_arguments_of_earlier_calls_are_kept_as_text(serve, path):
    server = serve("Once more.")
    url = server.url.removesuffix("/v1") + path
    headers = {"Authorization": f"Bearer {server.token}"}
    answer = httpx.post(url, json={"model": "builtin", **BODIES[path]}, headers=headers, timeout=100)
    assert answer.status_code == 200, answer.text
    (call,) = server.runner.requests[0].messages[1].function_calls
    assert (call.name, call.arguments) == ("read", {"arguments": ARGUMENTS})
    assert "no JSON object and was taken as text" in str(answer.json()["leap"])


def test_results_in_ollamas_protocol_match_calls_by_name_then_order():
    calls = [{"function": {"name": name, "arguments": ARGUMENTS}} for name in ("a", "b", "a")]
    results = [{"role": "tool", "tool_name": name, "content": "x"} for name in ("b", "a", "unknown")]
    messages = [ASKED, {"role": "assistant", "tool_calls": calls}, *results]
    request = read_ollama_chat({"model": "m", "messages": messages}).generation
    assert [each.tool_call_id for each in request.messages[2:]] == ["call_1_1", "call_1_0", "call_1_2"]
    assert request.messages[1].function_calls[0].arguments == {"arguments": ARGUMENTS}
