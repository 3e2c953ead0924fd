"""The writers of all protocols write the same reply, whole and as a stream."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from leap_core.conversation.messages import ChatMessage, LeapFunctionCall
from leap_core.conversation.responses import Complete, FunctionCalls, FunctionResult, GenerationFinishReason
from leap_core.errors import GenerationStats
from leap_core.protocols.anthropic import MessagesReply
from leap_core.protocols.ollama import OllamaReply
from leap_core.protocols.openai.replies import ONE_CALL, OpenAIReply, ReplyWriter
from leap_core.protocols.openai.requests import GenerationRequest
from leap_core.protocols.openai.responses_reply import ResponsesReply
from leap_core.protocols.openai.responses_request import read_responses

from ..support.tables import check_each

CALLS = (LeapFunctionCall("f", {"x": 1}, "c1"), LeapFunctionCall("g", {}, "c2"))
COMPLETE = Complete(
    ChatMessage("assistant", "So.", None, CALLS),
    GenerationFinishReason.STOP,
    GenerationStats(3, 2, 5, 1.0),
    ("a call could not be read",),
    left_out=("page 2 was left out",),
)
REQUEST = GenerationRequest(
    single_call=True, notes=("the field 'x' is unknown and was ignored",), document_notes=("a.pdf: no text",)
)
SAID = {
    "warnings": [*REQUEST.notes, *COMPLETE.warnings, ONE_CALL],
    "notes": [*REQUEST.document_notes, *COMPLETE.left_out],
}


def writers() -> dict[str, ReplyWriter]:
    responses = replace(read_responses({"model": "m", "input": "Hi"}), chat=REQUEST)
    return {
        "chat": OpenAIReply(REQUEST, "m"),
        "responses": ResponsesReply(responses, "m"),
        "messages": MessagesReply(REQUEST, "m"),
        "ollama": OllamaReply(REQUEST, "m", chat=True),
    }


def values_in(stream: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in stream.decode().splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def found(value: Any, name: str) -> list[Any]:
    """The values of fields of this name, at any depth."""
    if isinstance(value, list):
        return [each for item in value for each in found(item, name)]
    if not isinstance(value, dict):
        return []
    own = [value[name]] if name in value else []
    return own + [each for item in value.values() for each in found(item, name)]


def test_a_reply_says_the_same_whole_and_as_a_stream_in_every_protocol():
    def check(name: str) -> None:
        whole = writers()[name].whole(COMPLETE)
        writer = writers()[name]
        stream = b"".join(b"".join(writer.pieces(each)) for each in (FunctionCalls(CALLS), COMPLETE))
        for body in (whole, values_in(stream)):
            (said,) = found(body, "leap")
            assert {kind: said[kind] for kind in SAID} == SAID
            names = found(body, "name")
            assert set(names) == {"f"}

    check_each(writers(), check)


def test_a_search_for_tools_is_no_call_that_takes_the_place_of_the_only_one():
    asked = replace(read_responses({"model": "m", "input": "Hi"}), chat=replace(REQUEST, search="tool_search"))
    writer = ResponsesReply(asked, "m")
    search = FunctionResult(LeapFunctionCall("find_tools", {"query": "f"}), '{"tool_references": ["f"]}')
    events = values_in(b"".join(b"".join(writer.pieces(each)) for each in (search, FunctionCalls(CALLS), COMPLETE)))
    kinds = [item["type"] for item in events[-1]["response"]["output"]]
    assert kinds == ["tool_search_call", "tool_search_output", "function_call"]
