"""Anthropic's Messages API as the official client sees it."""

from __future__ import annotations

import base64
import io
from datetime import datetime

import anthropic
import pytest
from PIL import Image

from leap_core import Complete, FunctionCalls, LeapFunctionCall, LeapGenerationError, ReasoningChunk
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import GenerationFinishReason
from leap_core.errors import GenerationStats

_dot = io.BytesIO()
Image.new("RGB", (2, 2)).save(_dot, "PNG")
PNG = base64.b64encode(_dot.getvalue()).decode()
LOOK = {
    "name": "look",
    "description": "Looks.",
    "input_schema": {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]},
}
CALL = FunctionCalls((LeapFunctionCall("look", {"at": 1}),))


@pytest.fixture
def client(serve):
    """A server that plays these scripts, and Anthropic's client of it."""

    def connect(*scripts, **given):
        server = serve(*scripts, **given)
        made = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key=server.token, max_retries=0)
        server.open.enter_context(made)
        return server, made

    return connect


def ask(client, text="Hello?", **given):
    asked = {"model": "builtin", "max_tokens": 50, "messages": [{"role": "user", "content": text}]} | given
    return client.messages.create(**asked)


def test_a_message_and_its_answer(client):
    server, made = client("Paris.")
    message = ask(
        made, "Capital?", system="Be brief.", stop_sequences=["END"], extra_body={"temperature": 0.5, "top_k": 3}
    )
    assert (message.content[0].text, message.role, message.stop_reason) == ("Paris.", "assistant", "end_turn")
    assert message.id.startswith("msg_") and message.usage.output_tokens == 1 and message.usage.input_tokens > 0
    (request,) = server.runner.requests
    assert [each.text for each in request.messages] == ["Be brief.", "Capital?"]
    assert request.options.to_json() == {"temperature": 0.5, "top_k": 3, "max_tokens": 50, "stop": ["END"]}


def test_restored_tokens_are_counted_apart(client):
    stats = GenerationStats(35, 2, 37, 10.0, cached_prompt_tokens=30)
    _, made = client([Complete(ChatMessage("assistant", "Yes."), GenerationFinishReason.MAX_TOKENS, stats)])
    message = ask(made)
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (5, 30)
    assert message.stop_reason == "max_tokens"


def test_a_stream(client):
    _, made = client([ReasoningChunk("Hm."), "Par", "is."])
    kinds = []
    with made.messages.stream(
        model="builtin",
        max_tokens=2000,
        messages=[{"role": "user", "content": "Capital?"}],
        thinking={"type": "enabled", "budget_tokens": 1024},
    ) as stream:
        for event in stream:
            kinds.append(event.type)
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert (message.content[0].thinking, message.content[1].text) == ("Hm.", "Paris.")
    assert message.stop_reason == "end_turn" and message.usage.output_tokens == 3
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_their_results_go_back(client, stream):
    server, made = client(["Let me see.", CALL], "It is a cat.")
    messages = [{"role": "user", "content": "What is at 1?"}]
    asked = {"model": "builtin", "max_tokens": 50, "tools": [LOOK], "tool_choice": {"type": "any"}}
    if stream:
        with made.messages.stream(messages=messages, **asked) as events:
            message = events.get_final_message()
    else:
        message = made.messages.create(messages=messages, **asked)
    text, use = message.content
    assert (text.text, use.name, use.input, message.stop_reason) == ("Let me see.", "look", {"at": 1}, "tool_use")
    messages += [{"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "a cat"}]}
    messages += [{"role": "user", "content": [result, {"type": "text", "text": "Well?"}]}]
    asked["tool_choice"] = {"type": "auto"}
    assert made.messages.create(messages=messages, **asked).content[0].text == "It is a cat."
    assert server.runner.requests[0].options.tool_choice == "required"
    user, called, answer, more = server.runner.requests[1].messages
    assert (called.text, called.function_calls[0].id, answer.tool_call_id) == ("Let me see.", use.id, use.id)
    assert (answer.role.value, answer.text, more.text) == ("tool", "a cat", "Well?")


def test_a_failed_tool_says_so(client):
    server, made = client("Sorry.")
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "no light", "is_error": True}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    made.messages.create(model="builtin", max_tokens=9, messages=messages, tools=[LOOK])
    assert server.runner.requests[0].messages[-1].text == "Error: no light"


def test_tokens_are_counted(client):
    _, made = client("Yes.")
    messages = [{"role": "user", "content": "one two three"}]
    assert made.messages.count_tokens(model="builtin", messages=messages).input_tokens == 6
    assert made.messages.count_tokens(model="builtin", messages=messages, tools=[LOOK]).input_tokens == 7


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "poet", "content": "x"}]}, "unknown role 'poet'"),
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "blocks of type 'smell'"),
        ({"extra_body": {"temperature": -1}}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    ],
)
def test_bad_requests(client, given, part):
    _, made = client("Yes.")
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(made, **given)
    assert part in str(caught.value) and caught.value.body["error"]["type"] == "invalid_request_error"


def test_errors_have_anthropics_classes(client):
    server, made = client("Yes.", context_size=20)
    with pytest.raises(anthropic.NotFoundError):
        ask(made, model="claude")
    with pytest.raises(anthropic.APIStatusError) as caught:
        ask(made, "word " * 500)
    assert isinstance(caught.value, anthropic.BadRequestError)
    assert caught.value.body["error"]["message"].startswith("prompt is too long: 503 tokens > 20 maximum")
    with pytest.raises(anthropic.AuthenticationError):
        ask(made.with_options(api_key="wrong"))
    server.runner.add(["Par", LeapGenerationError("on fire")])
    server.runner._scripts.popleft()
    with pytest.raises(anthropic.InternalServerError, match="on fire"):
        ask(made)


def test_a_failure_within_a_stream(client):
    _, made = client(["Par", LeapGenerationError("on fire")])
    with (
        pytest.raises(anthropic.APIStatusError, match="on fire"),
        made.messages.stream(model="builtin", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]) as stream,
    ):
        list(stream)


def test_twenty_tool_iterations_reuse_the_earlier_prompt(client):
    rounds = [["Looking.", FunctionCalls((LeapFunctionCall("look", {"at": n}),))] for n in range(20)]
    server, made = client(*rounds, "Done.")
    messages = [{"role": "user", "content": "Look at all of them."}]
    for n in range(21):
        message = made.messages.create(model="builtin", max_tokens=99, messages=messages, tools=[LOOK])
        uses = [block for block in message.content if block.type == "tool_use"]
        messages += [
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
        ]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": f"cat {n}"} for use in uses]
        messages += [{"role": "user", "content": results}] if results else []
    assert message.content[0].text == "Done."
    for before, after in zip(server.runner.requests, server.runner.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_says_at_which_stop_sequence_it_ended(client, stream):
    _, made = client(["One, END", " two"], "One.")
    for sequences, expected in ((["STOP", "END"], ("stop_sequence", "END")), (["STOP"], ("end_turn", None))):
        given = {"model": "builtin", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
        if stream:
            with made.messages.stream(stop_sequences=sequences, **given) as events:
                message = events.get_final_message()
        else:
            message = made.messages.create(stop_sequences=sequences, **given)
        assert (message.stop_reason, message.stop_sequence) == expected


def test_documents_and_pictures_in_results_of_tools_are_read(client):
    server, made = client("Yes.")
    cached = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}, **cached}
    text = {"type": "text", "media_type": "text/plain", "data": "A"}
    document = {"type": "document", "title": "Notes", "source": text, **cached}
    pages = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "B"}, picture]}}
    found = {"type": "search_result", "title": "T", "source": "s", "content": [{"type": "text", "text": "C"}]}
    use = {"type": "tool_use", "id": "t1", "name": "look", "input": {}, **cached}
    seen = [{"type": "text", "text": "Seen:"}, picture, document, found]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": seen, **cached}
    messages = [
        {"role": "user", "content": [document, pages, found, {"type": "text", "text": "What?", **cached}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    tool = {"name": "look", "input_schema": {"type": "object", "properties": {}}, **cached}
    system = [{"type": "text", "text": "Be brief.", **cached}]
    asked = {"model": "builtin", "max_tokens": 5, "messages": messages, "tools": [tool], "system": system}
    made.messages.create(**asked, extra_body=cached)
    told = server.runner.requests[0].messages
    assert told[1].text == "Notes\nA\nB\nT\ns\nC\nWhat?" and len(told[1].content) == 6
    assert told[3].text == "Seen:\nNotes\nA\n\nT\ns\nC\n"
    assert len(told[3].content) == 4 and told[3].role.value == "tool"
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}}
    with pytest.raises(anthropic.BadRequestError, match="is not PDF"):
        ask(made, [pdf])


@pytest.mark.parametrize("apart", [True, False])
def test_a_changing_billing_line_is_not_part_of_the_prompt(client, apart):
    server, made = client("Yes.", "Yes.")
    for n in (1, 2):
        line = f"x-anthropic-billing-header: cc_version=2.1; cch={n}{n};"
        texts = [line, "Be brief."] if apart else [f"{line}\nBe brief."]
        system = [{"type": "text", "text": text} for text in texts]
        made.messages.create(model="builtin", max_tokens=5, messages=[{"role": "user", "content": "Hi"}], system=system)
    assert [request.messages[0].text for request in server.runner.requests] == ["Be brief.", "Be brief."]


def test_a_stream_begins_with_the_tokens_of_the_prompt_and_models_are_listed(client):
    server, made = client("Yes.")
    with made.messages.stream(
        model="builtin", max_tokens=5, messages=[{"role": "user", "content": "one two three"}]
    ) as stream:
        start = next(event for event in stream if event.type == "message_start")
        assert start.message.usage.input_tokens > 3
    (model,) = made.models.list()
    assert (model.id, model.type, model.display_name) == ("builtin", "model", "builtin")
    assert model.created_at.year == datetime.now().year
    assert made.models.retrieve("builtin").display_name == "builtin"
