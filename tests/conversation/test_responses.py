"""The events of a generation and their JSON."""

from __future__ import annotations

import json

import pytest

from leap_core.conversation.messages import ChatMessage, LeapFunctionCall
from leap_core.conversation.responses import (
    AudioSample,
    Chunk,
    Complete,
    FunctionCalls,
    FunctionResult,
    GenerationFinishReason,
    MessageResponse,
    ReasoningChunk,
)
from leap_core.errors import GenerationStats, LeapSerializationError

END = {"type": "complete", "message": {"role": "assistant"}, "finish_reason": "stop"}
STATS = GenerationStats(12, 5, 17, 80.5, 30, 0.25)
RESPONSES = [
    Chunk("Grüße 🌍\n"),
    Chunk(""),
    ReasoningChunk("2 + 2"),
    FunctionCalls((LeapFunctionCall("f", {"a": [1, None]}, "id7"), LeapFunctionCall("g"))),
    FunctionResult(LeapFunctionCall("f", {"a": 1}), "42", seconds=0.25),
    FunctionResult(LeapFunctionCall("f"), "", "the user refused this call", denied=True, refused=True),
    AudioSample((0.0, 0.5, -1.0), 24000),
    *(Complete(ChatMessage("assistant", "x"), reason, STATS) for reason in GenerationFinishReason),
    Complete(ChatMessage("assistant"), GenerationFinishReason.STOP),
    Complete(
        ChatMessage("assistant", "x", "why", [LeapFunctionCall("f")]), GenerationFinishReason.STOP, STATS, ("careful",)
    ),
]


@pytest.mark.parametrize("response", RESPONSES, ids=lambda r: type(r).__name__)
def test_a_response_survives_its_json(response):
    assert MessageResponse.from_json(json.loads(json.dumps(response.to_json()))) == response


def test_the_json_of_the_final_event():
    assert Complete(ChatMessage("assistant", "Paris."), GenerationFinishReason.STOP, STATS).to_json() == {
        "type": "complete",
        "message": {"role": "assistant", "content": "Paris."},
        "finish_reason": "stop",
        "stats": {
            "prompt_tokens": 12,
            "completion_tokens": 5,
            "total_tokens": 17,
            "token_per_second": 80.5,
            "cached_prompt_tokens": 30,
            "time_to_first_token": 0.25,
        },
    }


def test_the_sdk_spelling_of_the_cases():
    assert MessageResponse.Chunk is Chunk and MessageResponse.Complete is Complete
    assert MessageResponse.ReasoningChunk is ReasoningChunk and MessageResponse.FunctionCalls is FunctionCalls
    assert MessageResponse.AudioSample is AudioSample


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (5, "response"),
        ({}, "response.type"),
        ({"type": "noise"}, "response.type"),
        ({"type": ["chunk"]}, "response.type"),
        ({"type": "chunk"}, "response.text"),
        ({"type": "chunk", "text": None}, "response.text"),
        ({"type": "reasoning_chunk", "reasoning": {}}, "response.reasoning"),
        ({"type": "complete", "message": {"role": "x"}, "finish_reason": "stop"}, "response.message.role"),
        ({"type": "complete", "message": {"role": "assistant"}, "finish_reason": "tired"}, "response.finish_reason"),
        ({"type": "complete", "message": {"role": "assistant"}, "finish_reason": "stop", "stats": 5}, "response.stats"),
        (
            {"type": "complete", "message": {"role": "assistant"}, "finish_reason": "stop", "stats": {"x": 1}},
            "response.stats",
        ),
        ({"type": "function_calls", "function_calls": [{}]}, "response.function_calls[0].function"),
        ({"type": "function_calls", "function_calls": 5}, "response.function_calls"),
        ({"type": "function_calls", "function_calls": {}}, "response.function_calls"),
        ({"type": "audio_sample", "samples": 5, "sample_rate": 24000}, "response.samples"),
        ({"type": "audio_sample", "samples": "123", "sample_rate": 24000}, "response.samples"),
        ({"type": "audio_sample", "samples": [], "sample_rate": "8"}, "response.sample_rate"),
        (END | {"warnings": "abc"}, "response.warnings"),
        (END | {"stats": STATS.to_json() | {"prompt_tokens": "5"}}, "response.stats.prompt_tokens"),
    ],
)
def test_unknown_shapes_are_named_by_their_path(value, path):
    with pytest.raises(LeapSerializationError) as caught:
        MessageResponse.from_json(value)
    assert caught.value.path == path


def test_lists_become_tuples():
    calls = [LeapFunctionCall("f")]
    assert FunctionCalls(calls) == FunctionCalls(tuple(calls)) and AudioSample([0.5], 8000).samples == (0.5,)


def test_samples_are_written_as_base64_and_read_as_a_list_too() -> None:
    sample = AudioSample((0.0, 0.5, -1.0), 24000)
    assert sample.to_json()["samples"] == "AAAAAAAAAD8AAIC/"
    listed = {"type": "audio_sample", "samples": [0.0, 0.5, -1], "sample_rate": 24000}
    assert MessageResponse.from_json(listed) == sample
