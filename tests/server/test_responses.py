"""OpenAI's Responses API as the official client sees it."""

from __future__ import annotations

import json

import openai
import pytest

from leap_core import Complete, FunctionCalls, LeapFunctionCall, LeapGenerationError, ReasoningChunk
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import GenerationFinishReason
from leap_core.errors import GenerationStats

LOOK = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]},
    "strict": False,
}
CALL = FunctionCalls((LeapFunctionCall("look", {"at": 1}),))


def test_a_text_and_its_answer(serve):
    server = serve("Paris.")
    response = server.client().responses.create(
        model="builtin", input="The capital of France?", instructions="Be brief."
    )
    assert (response.output_text, response.status, response.object) == ("Paris.", "completed", "response")
    assert [message.text for message in server.runner.requests[0].messages] == ["Be brief.", "The capital of France?"]
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens and usage.output_tokens == 1
    assert response.id.startswith("resp_") and response.output[0].id.startswith("msg_")


def test_options_reach_the_model(serve):
    server = serve("Yes.")
    server.client().responses.create(
        model="builtin",
        input=[
            {"role": "developer", "content": "Short."},
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        ],
        max_output_tokens=7,
        temperature=0.5,
        top_p=0.9,
        reasoning={"effort": "low"},
        metadata={"a": "b"},
    )
    (request,) = server.runner.requests
    thinking = {"enable_thinking": True, "think_budget": 1}  # a fifth of the answer
    thinking["chat_template_kwargs"] = {"reasoning_effort": "low"}
    assert request.options.to_json() == {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, **thinking}
    assert [message.role.value for message in request.messages] == ["system", "user"]


def test_a_stream_has_typed_events_that_join_up(serve):
    server = serve([ReasoningChunk("Hm"), ReasoningChunk("."), "Par", "is."])
    events = list(server.client().responses.create(model="builtin", input="Capital?", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    final = events[-1].response
    assert final.output_text == "Paris." and [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output[0].content[0].text == "Hm."
    assert final.id == events[0].response.id and final.usage.output_tokens == 4
    items = [event.item.id for event in events if event.type == "response.output_item.done"]
    assert items == [item.id for item in final.output]


@pytest.mark.slow
def test_the_client_s_own_stream_helper(serve):
    server = serve(["Par", "is."])
    with server.client().responses.stream(model="builtin", input="Capital?") as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert stream.get_final_response().output_text == "Paris." and texts == ["Par", "is."]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_their_results_go_back(serve, stream):
    server = serve(["Let me see.", CALL], "It is a cat.")
    client = server.client()
    asked = {"model": "builtin", "tools": [LOOK]}
    items = [{"role": "user", "content": "What is at 1?"}]
    if stream:
        *_, last = client.responses.create(input=items, stream=True, **asked)
        response = last.response
    else:
        response = client.responses.create(input=items, **asked)
    text, call = response.output
    assert (text.type, call.type, call.name, json.loads(call.arguments)) == (
        "message",
        "function_call",
        "look",
        {"at": 1},
    )
    items += [item.model_dump(exclude_none=True) for item in response.output]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": "a cat"}]
    assert client.responses.create(input=items, **asked).output_text == "It is a cat."
    user, called, result = server.runner.requests[1].messages
    assert (called.text, called.function_calls[0].id, result.tool_call_id) == (
        "Let me see.",
        call.call_id,
        call.call_id,
    )
    assert result.text == "a cat" and server.runner.requests[1].functions[0].name == "look"


def test_a_response_goes_on_from_another_one(serve):
    server = serve("Paris.", [CALL], "Two million.")
    client = server.client()
    first = client.responses.create(model="builtin", input="Capital of France?", instructions="Be brief.")
    second = client.responses.create(model="builtin", input="Look.", previous_response_id=first.id, tools=[LOOK])
    output = {"type": "function_call_output", "call_id": second.output[0].call_id, "output": "2 million"}
    third = client.responses.create(model="builtin", input=[output], previous_response_id=second.id, stream=True)
    *_, last = third
    assert last.response.output_text == "Two million."
    roles = [message.role.value for message in server.runner.requests[2].messages]
    assert roles == ["user", "assistant", "user", "assistant", "tool"], "instructions are of their own request"
    with pytest.raises(openai.BadRequestError, match="there is no response 'resp_x'"):
        client.responses.create(model="builtin", input="And?", previous_response_id="resp_x")


def test_a_schema_constrains_the_answer(serve):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    server = serve('{"a": 1}')
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    response = server.client().responses.create(model="builtin", input="One?", text={"format": form})
    assert json.loads(response.output_text) == {"a": 1}
    assert json.loads(server.runner.requests[0].options.json_schema_constraint) == schema


def test_a_cut_answer_is_incomplete(serve):
    end = Complete(ChatMessage("assistant", "Yes"), GenerationFinishReason.MAX_TOKENS, GenerationStats(1, 1, 2, 0.0))
    server = serve(["Yes", end], ["Yes", end])
    response = server.client().responses.create(model="builtin", input="Hi")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    *_, last = server.client().responses.create(model="builtin", input="Hi", stream=True)
    assert last.type == "response.incomplete"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"temperature": -1}, "temperature"),
        ({"background": True}, "background"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "response_format.type"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_bad_requests(serve, given, param):
    with pytest.raises(openai.BadRequestError) as caught:
        serve("Yes.").client().responses.create(**({"model": "builtin", "input": "Hi"} | given))
    assert caught.value.param == param


def test_unsupported_fields_are_noted(serve):
    response = (
        serve("Yes.")
        .client()
        .responses.create(model="builtin", input="Hi", tools=[{"type": "web_search"}], extra_body={"what": 1})
    )
    assert response.leap["warnings"] == [
        "the field 'what' is unknown and was ignored",
        "tools of type 'web_search' are not there and were left out",
    ]


def test_a_failure_within_a_stream(serve):
    events = list(
        serve(["Par", LeapGenerationError("on fire")])
        .client()
        .responses.create(model="builtin", input="Hi", stream=True)
    )
    assert events[-1].type == "response.failed" and "on fire" in events[-1].response.error.message


@pytest.mark.slow
def test_twenty_tool_iterations_reuse_the_earlier_prompt(serve):
    """What an agent sends again must make the same prompt again, or no prefix is restored."""
    rounds = [["Looking.", FunctionCalls((LeapFunctionCall("look", {"at": n}),))] for n in range(20)]
    server = serve(*rounds, "Done.")
    client = server.client()
    items = [{"role": "user", "content": "Look at all of them."}]
    for n in range(21):
        response = client.responses.create(model="builtin", input=items, tools=[LOOK], store=False)
        items += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": f"cat {n}"} for call in calls]
    assert response.output_text == "Done."
    requests = server.runner.requests
    for before, after in zip(requests, requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
    assert len(requests[-1].messages) == 41


def test_reasoning_goes_back_as_an_item(serve):
    server = serve([ReasoningChunk("Hm."), "Paris."], "Two million.")
    client = server.client()
    items = [{"role": "user", "content": "Capital?"}]
    first = client.responses.create(model="builtin", input=items, reasoning={"effort": "low"})
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [{"role": "user", "content": "How many live there?"}]
    assert client.responses.create(model="builtin", input=items).output_text == "Two million."
    (_, said, _) = server.runner.requests[1].messages
    assert (said.text, said.reasoning_content) == ("Paris.", "Hm.")


def test_a_response_that_cannot_be_stored_says_so(serve, tmp_path):
    from leap_core.server.endpoints.responses import durable_responses

    (tmp_path / "file").write_text("no directory")
    server = serve("Yes.", "No.", kept=durable_responses(tmp_path / "file" / "responses", None))
    response = server.client().responses.create(model="builtin", input="Hi", store=True)
    assert not response.store and "kept in memory only" in response.leap["warnings"][0]
    again = server.client().responses.create(model="builtin", input="And?", previous_response_id=response.id)
    assert again.output_text == "No."


@pytest.mark.slow
def test_only_ids_that_a_server_of_the_same_key_made_are_known(serve, tmp_path):
    """The name of any session of the user's was answered from."""
    from leap_core.conversation.sessions import SessionStore
    from leap_core.server.endpoints.responses import durable_responses

    with SessionStore(tmp_path / "sessions.db") as sessions:
        session = sessions.create(name="diary")
        sessions.append(session.id, ChatMessage("user", "The key lies below the mat."))
    directory = tmp_path / "responses"
    first = serve("Yes.", kept=durable_responses(directory, "mine")).client()
    response = first.responses.create(model="builtin", input="Remember 42.", store=True)
    assert len(response.id) > 48 and directory.stat().st_mode & 0o777 == 0o700
    again = serve("42.", kept=durable_responses(directory, "mine"))
    assert again.client().responses.create(model="builtin", input="?", previous_response_id=response.id)
    assert [message.text for message in again.runner.requests[0].messages] == ["Remember 42.", "Yes.", "?"]
    for key, name in (("other", response.id), ("mine", "diary"), ("mine", session.id), ("mine", "../sessions")):
        other = serve("No.", kept=durable_responses(directory, key))
        with pytest.raises(openai.BadRequestError, match="there is no response"):
            other.client().responses.create(model="builtin", input="?", previous_response_id=name)


def test_events_and_items_are_those_of_the_official_types(serve):
    call = LeapFunctionCall("f", {"x": 1}, "c1")
    server = serve([FunctionCalls((call,))], "one two three", "one two three")
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    events = list(server.client().responses.create(model="builtin", input="Hi", tools=[tool], stream=True))
    (delta,) = [event for event in events if event.type == "response.function_call_arguments.delta"]
    assert "name" not in (delta.model_extra or {}) and delta.delta == '{"x": 1}'
    assert events[-1].response.usage.input_tokens_details.cache_write_tokens == 0
    for stream in (False, True):
        response = server.client().responses.create(model="builtin", input="Hi", max_output_tokens=1, stream=stream)
        response = list(response)[-1].response if stream else response
        assert response.status == "incomplete" and response.output[-1].status == "incomplete"


PATCH = {"type": "custom", "name": "apply_patch", "description": "Changes files.", "format": {"type": "text"}}
SHELL = {"type": "local_shell"}


def test_a_tool_that_takes_a_text_and_the_clients_shell_are_called_in_their_own_items(serve):
    calls = FunctionCalls(
        (
            LeapFunctionCall("apply_patch", {"input": "*** Begin"}),
            LeapFunctionCall("local_shell", {"command": ["ls", "-l"]}),
        )
    )
    server = serve([calls], [calls], "Done.")
    client = server.client()
    ask = {"model": "builtin", "input": "Change it.", "tools": [PATCH, SHELL]}
    response = client.responses.create(**ask)
    patch, shell = response.output
    assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "apply_patch", "*** Begin")
    assert (shell.type, shell.action.command) == ("local_shell_call", ["ls", "-l"])
    assert {function.name for function in server.runner.requests[0].functions} == {"apply_patch", "local_shell"}
    events = list(client.responses.create(**ask, stream=True))
    assert [event.type for event in events[2:9]] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    assert [item.type for item in events[-1].response.output] == ["custom_tool_call", "local_shell_call"]
    back = [
        {"role": "user", "content": "Change it."},
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        {"type": "local_shell_call", "id": "l1", "call_id": "c2", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "c2", "output": "a.txt"},
    ]  # fmt: skip
    assert client.responses.create(model="builtin", input=back, tools=[PATCH, SHELL]).output_text == "Done."
    said = server.runner.requests[-1].messages
    assert said[1].function_calls[0].arguments == {"input": "*** Begin"} and said[2].text == "ok"
    assert said[3].function_calls[0].arguments == {"command": ["ls"]} and said[4].text == "a.txt"


def test_a_conversation_is_compacted_and_goes_on(serve):
    server = serve("The user wants Rome's weather; it rains.", "It rains in Rome.")
    client = server.client()
    said = [{"role": "user", "content": "Weather in Rome?"}, {"role": "assistant", "content": "Rain."}]
    compacted = client.responses.compact(model="builtin", input=said)
    assert compacted.object == "response.compaction" and [item.type for item in compacted.output] == [
        "message",
        "compaction",
    ]
    assert "Summarize our conversation" in server.runner.requests[0].messages[-1].text
    items = [item.model_dump(exclude_none=True) for item in compacted.output]
    again = client.responses.create(model="builtin", input=[*items, {"role": "user", "content": "Really?"}])
    assert again.output_text == "It rains in Rome."
    assert [message.text for message in server.runner.requests[1].messages] == [
        "Weather in Rome?",
        "What was said before, in short:\nThe user wants Rome's weather; it rains.",
        "Really?",
    ]


def test_models_list_their_context_size(serve):
    server = serve("Hi.")
    entry = server.client().models.list().data[0].model_dump()
    context = server.runner.context_size
    assert (entry["context_length"], entry["max_model_len"], entry["meta"]) == (
        context,
        context,
        {"n_ctx": context, "n_ctx_train": 2048},
    )
    assert (entry["architecture"]["input_modalities"], entry["reasoning"]) == (["text"], False)
