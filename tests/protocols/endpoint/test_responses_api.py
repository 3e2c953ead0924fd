"""Endpoints that have the Responses API alone: events of a fake, and leap's own."""

from __future__ import annotations

import json

import pytest
from PIL import Image as pillow

from leap_core import ChatMessage, GenerationOptions, Leap, LeapEndpointError, LeapOptionsError
from leap_core.conversation.calls import LeapFunction, LeapFunctionCall
from leap_core.conversation.messages import Image, Text
from leap_core.conversation.responses import FunctionCalls, GenerationFinishReason, ReasoningChunk
from leap_core.conversation.streams import last_of

from ...server.conftest import _Running
from .conftest import KEY, QUICK
from .fake_server import fails, hangs_up, streams

DONE = {
    "type": "response.completed",
    "response": {
        "object": "response",
        "status": "completed",
        "usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
    },
}
HALF = {"type": "response.output_text.delta", "delta": "Par"}
REST = {"type": "response.output_text.delta", "delta": "is."}


def only_responses(*behaviours):
    """Answers 404 to chats, and these to Responses, the last one for good."""
    left = list(behaviours)

    def behave(handler):
        if not handler.path.endswith("/responses"):
            fails(404, "Not Found")(handler)
            return
        (left.pop(0) if len(left) > 1 else left[0])(handler)

    return behave


def ask(runner, text="Where?", **options):
    return last_of(runner.start([ChatMessage("user", text)], (), GenerationOptions(**options)))


def test_chat_completions_are_tried_once_and_responses_from_then_on(fake, runner):
    fake.always = only_responses(streams({"type": "response.created"}, HALF, REST, DONE))
    complete = ask(runner, max_tokens=5)
    assert complete.full_message.text == "Paris." and complete.finish_reason is GenerationFinishReason.STOP
    assert (complete.stats.cached_prompt_tokens, complete.stats.total_tokens) == (4, 11)
    assert ask(runner).full_message.text == "Paris."
    paths = [path for path, _, _ in fake.requests]
    assert paths == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
    _, headers, body = fake.requests[1]
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where?"}]}
    assert body == {"model": "m", "input": [said], "stream": True, "store": False, "max_output_tokens": 5}
    assert headers["authorization"] == f"Bearer {KEY}"


def test_an_answer_may_come_whole(fake, runner):
    message = {"type": "message", "content": [{"type": "output_text", "text": "Paris."}]}
    whole = {**DONE["response"], "error": None, "output": [{"type": "reasoning", "summary": []}, message]}
    body = json.dumps(whole).encode()
    fake.always = only_responses(lambda handler: handler.send(200, "application/json", body))
    assert ask(runner).full_message.text == "Paris."


def test_histories_images_tools_and_schemas_are_sent(fake, runner):
    call = {"type": "function_call", "call_id": "c9", "name": "double", "arguments": '{"n": 2}'}
    fake.always = only_responses(streams({"type": "response.output_item.done", "item": call}, DONE))
    double = LeapFunction("double", "Twice a number.", [])
    history = [
        ChatMessage("system", "Be brief."),
        ChatMessage("user", [Image.from_pil_image(pillow.new("RGB", (32, 32))), Text("And this?")]),
        ChatMessage("assistant", "", function_calls=(LeapFunctionCall("double", {"n": 1}, "c1"),)),
        ChatMessage("tool", "2", tool_call_id="c1"),
    ]
    asked = GenerationOptions(tool_choice="double", logprobs=True)
    complete = last_of(runner.start(history, (double,), asked))
    assert complete.full_message.function_calls == (LeapFunctionCall("double", {"n": 2}, "c9"),)
    body = fake.requests[-1][2]
    kinds = [each["type"] for each in body["input"]]
    assert kinds == ["message", "message", "function_call", "function_call_output"]
    picture, text = body["input"][1]["content"]
    assert picture["type"] == "input_image" and picture["image_url"].startswith("data:image/jpeg;base64,")
    assert text == {"type": "input_text", "text": "And this?"} and body["input"][3]["call_id"] == "c1"
    assert body["tools"][0]["name"] == "double" and body["tool_choice"] == {"type": "function", "name": "double"}
    assert body["include"] == ["message.output_text.logprobs"]
    schema = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    ends = streams({"type": "response.output_text.delta", "delta": '{"n": 1}'}, DONE)
    fake.always = only_responses(streams({"type": "response.output_text.delta", "delta": "no"}, DONE), ends)
    assert ask(runner, json_schema_constraint=schema).full_message.text == '{"n": 1}'
    assert fake.requests[-1][2]["text"]["format"]["schema"] == json.loads(schema)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([{"type": "error", "message": "overloaded"}], "broke the answer off"),
        (
            [{"type": "response.failed", "response": {"status": "failed", "error": {"message": "x"}}}],
            "broke the answer",
        ),
        ([HALF], "ended before the answer was complete"),
    ],
)
def test_a_broken_stream_is_an_error(fake, runner, events, words):
    fake.always = only_responses(streams(*events))
    with pytest.raises(LeapEndpointError, match=words):
        ask(runner)


@pytest.mark.parametrize("code", ["server_error", "invalid_prompt"])
@pytest.mark.parametrize("whole", [False, True])
def test_an_event_that_quotes_the_key_does_not_show_it(fake, runner, code, whole):
    error = {"code": code, "message": f"the key\x1b {KEY} is wrong"}
    failed = {"type": "response.failed", "response": {"status": "failed", "error": error}}
    fake.always = only_responses(streams(failed if whole else {"type": "error", **error}))
    with pytest.raises(LeapEndpointError, match=r"broke the answer off: the key \*\*\* is wrong") as caught:
        ask(runner)
    assert caught.value.may_pass == (code == "server_error")
    assert len(fake.requests) == (2 + QUICK.retries if caught.value.may_pass else 2)


def test_a_cut_answer_says_so_and_faults_are_asked_again(fake, runner):
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    ends = streams(HALF, {"type": "response.incomplete", "response": cut})
    fake.always = only_responses(hangs_up, fails(503), ends)
    complete = ask(runner, max_tokens=1)
    assert complete.finish_reason is GenerationFinishReason.MAX_TOKENS and "asked 3 times" in complete.warnings[0]


def test_options_without_a_field_in_the_api_are_named(fake, runner):
    fake.always = only_responses(streams(HALF, REST, DONE))
    ask(runner)
    with pytest.raises(LeapOptionsError, match="stop: this endpoint has the Responses API alone"):
        ask(runner, stop=("x",))


def test_a_wrong_address_is_no_fault_of_an_option(fake, runner):
    fake.always = fails(404, "Not Found")
    with pytest.raises(LeapEndpointError, match="or no chats at") as caught:
        ask(runner, stop=("x",))
    assert "leave stop out" in (caught.value.hint or "") and len(fake.requests) == 1


def test_an_endpoint_without_either_api_is_asked_for_each_once(fake, runner):
    fake.always = fails(404, "Not Found")
    with pytest.raises(LeapEndpointError, match="or no chats at"):
        ask(runner)
    assert len(fake.requests) == 2


def test_leaps_own_responses_are_read(leap_home):
    call = LeapFunctionCall("double", {"n": 21}, "call_0")
    scripts = (["Hel", "lo."], [ReasoningChunk("Hm."), "Well."], [FunctionCalls([call])])
    with (
        _Running(scripts, "secret", False, {}, {}, False, None) as server,
        Leap.connect(server.url, model="builtin", api_key="secret", patience=QUICK) as runner,
    ):
        runner._connection.way = 1
        assert ask(runner).full_message.text == "Hello."
        thought = ask(runner, enable_thinking=True).full_message
        assert (thought.text, thought.reasoning_content) == ("Well.", "Hm.")
        double = LeapFunction("double", "Twice.", [])
        called = last_of(runner.start([ChatMessage("user", "21?")], (double,)))
        assert [(each.name, each.arguments) for each in called.full_message.function_calls] == [("double", {"n": 21})]
