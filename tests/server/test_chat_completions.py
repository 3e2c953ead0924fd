"""Chat completions as OpenAI's own client sees them."""

from __future__ import annotations

import json
import threading
import time

import openai
import pytest

from leap_core import (
    Complete,
    FunctionCalls,
    LeapConstraintError,
    LeapFunctionCall,
    LeapGenerationError,
    ReasoningChunk,
)
from leap_core.conversation.generator import PromptProgress
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import GenerationFinishReason
from leap_core.errors import GenerationStats
from leap_core.testing import Script, Stall

from .conftest import PROMPTLY, settled

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def test_a_whole_answer(serve):
    server = serve(["The capital", " is Paris."])
    completion = server.ask("What is the capital of France?")
    (choice,) = completion.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == (
        "The capital is Paris.",
        "assistant",
        "stop",
    )
    assert completion.object == "chat.completion" and completion.model == "builtin"
    assert completion.id.startswith("chatcmpl-") and abs(completion.created - time.time()) < 60
    usage = completion.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and usage.completion_tokens == 2
    assert completion.leap["finish_reason"] == "stop" and completion.leap["stats"]["token_per_second"] > 0


def test_restored_tokens_count_as_the_prompt_s(serve):
    stats = GenerationStats(35, 2, 37, 10.0, cached_prompt_tokens=30)
    server = serve([Complete(ChatMessage("assistant", "Yes."), GenerationFinishReason.STOP, stats)])
    usage = server.ask().usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (35, 2, 37)
    assert usage.prompt_tokens_details.cached_tokens == 30


def test_the_chunks_of_a_stream_join_to_the_answer(serve):
    server = serve([ReasoningChunk("Hm."), "Par", "is."])
    chunks = list(server.ask(stream=True, stream_options={"include_usage": True}))
    *pieces, end, usage = chunks
    assert len({chunk.id for chunk in chunks}) == 1 and {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert pieces[0].choices[0].delta.role == "assistant"
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "Paris."
    assert "".join(getattr(piece.choices[0].delta, "reasoning_content", "") for piece in pieces) == "Hm."
    assert end.choices[0].finish_reason == "stop" and end.leap["stats"]["completion_tokens"] == 3
    assert usage.choices == [] and usage.usage.completion_tokens == 3


def test_a_stream_reports_prompt_progress_on_request(serve):
    steps = [PromptProgress(100, 20, 60, 1.5), Stall(seconds=1.2), PromptProgress(100, 20, 100, 2.0), "Yes."]
    chunks = list(serve(steps).ask(stream=True, extra_body={"return_progress": True}))
    said = [chunk.model_extra["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk.model_extra]
    assert said[0] == {"total": 100, "cache": 20, "processed": 60, "time_ms": 1500}
    assert said[-1] == {"total": 100, "cache": 20, "processed": 100, "time_ms": 2000} and len(said) == 2
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Yes."


def test_a_stream_reports_no_prompt_progress_by_default(serve):
    chunks = list(serve([PromptProgress(100, 20, 60, 1.5), Stall(seconds=0.7), "Yes."]).ask(stream=True))
    assert not any("prompt_progress" in chunk.model_extra for chunk in chunks)


def test_a_loaded_model_reports_prompt_progress(serve):
    progress, stall = PromptProgress(100, 20, 60, 1.5), Stall()
    generation = serve([progress, stall, "Yes."], private=True).warm.start([ChatMessage("user", "Yes?")])
    assert generation.progress is None
    reading = threading.Thread(target=lambda: list(generation))
    reading.start()
    assert settled(lambda: generation.progress == progress)
    stall.release()
    reading.join(PROMPTLY)
    assert generation.progress == progress


def test_a_stream_without_usage_has_none(serve):
    chunks = list(serve(["Paris."]).ask(stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


CALLS = FunctionCalls(
    (LeapFunctionCall("get_weather", {"city": "Bern"}), LeapFunctionCall("get_weather", {"city": "Zürich"}))
)


def test_calls_of_tools(serve):
    server = serve([CALLS])
    (choice,) = server.ask("Weather?", tools=[WEATHER]).choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    calls = choice.message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Bern", "Zürich"]
    assert len({call.id for call in calls}) == 2 and {call.function.name for call in calls} == {"get_weather"}
    (function,) = server.runner.requests[0].functions
    assert function.to_json_object() == WEATHER


def test_calls_of_tools_in_a_stream(serve):
    chunks = list(serve([CALLS]).ask("Weather?", tools=[WEATHER], stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert [call.index for call in calls] == [0, 1] and all(call.id for call in calls)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_parallel_tool_calls_false_gives_one_call(serve):
    completion = serve([CALLS]).ask("Weather?", tools=[WEATHER], parallel_tool_calls=False)
    assert len(completion.choices[0].message.tool_calls) == 1
    assert "parallel_tool_calls" in completion.leap["warnings"][0]


def test_the_result_of_a_tool_goes_back(serve):
    server = serve([CALLS], "It is sunny in both.")
    messages = [{"role": "user", "content": "Weather?"}]
    called = server.ask(messages=messages, tools=[WEATHER]).choices[0].message
    messages += [called.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in called.tool_calls]
    assert server.ask(messages=messages, tools=[WEATHER]).choices[0].message.content == "It is sunny in both."
    asked, *results = server.runner.requests[1].messages[1:]
    assert [call.id for call in asked.function_calls] == [result.tool_call_id for result in results]


def test_options_reach_the_model(serve):
    server = serve("Yes.")
    extra = {"top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1, "leap": {"options": {"repeat_last_n": 32}}}
    given = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_completion_tokens": 9, "stop": "END"}
    server.ask(**given, frequency_penalty=0.1, presence_penalty=-0.1, logit_bias={"5": -100}, extra_body=extra)
    options = server.runner.requests[0].options
    assert options.to_json() == {
        "temperature": 0.5,
        "top_p": 0.9,
        "min_p": 0.1,
        "top_k": 20,
        "repetition_penalty": 1.1,
        "repeat_last_n": 32,
        "rng_seed": 7,
        "max_tokens": 9,
        "stop": ["END"],
        "frequency_penalty": 0.1,
        "presence_penalty": -0.1,
        "logit_bias": {"5": -100},
    }


def test_a_schema_reaches_the_model(serve):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    server = serve('{"a": 1}', "{}")
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}
    assert server.ask(response_format=wanted).choices[0].message.content == '{"a": 1}'
    server.ask(response_format={"type": "json_object"})
    shaped, free = (json.loads(request.options.json_schema_constraint) for request in server.runner.requests)
    assert shaped == schema and free == {"type": "object"}


def test_unknown_fields_are_ignored_and_reported(serve):
    completion = serve("Yes.").ask(extra_body={"temprature": 1}, user="me")
    assert completion.leap["warnings"] == ["the field 'temprature' is unknown and was ignored"]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [("max_tokens", "length"), ("exceed_context", "length"), ("interrupted", "stop"), ("constraint", "stop")],
)
def test_finish_reasons(serve, reason, shown):
    end = Complete(ChatMessage("assistant", "Yes"), GenerationFinishReason(reason), GenerationStats(1, 1, 2, 0.0))
    completion = serve(["Yes", end]).ask()
    assert (completion.choices[0].finish_reason, completion.leap["finish_reason"]) == (shown, reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "param", "part"),
    [
        ({"messages": []}, "messages", "at least one message"),
        ({"messages": [{"role": "poet", "content": "x"}]}, "messages[0].role", "unknown role"),
        ({"temperature": -1}, "temperature", "0 or more"),
        ({"max_tokens": 0}, "max_tokens", "1 or more"),
        ({"seed": "x"}, "seed", "whole number"),
        ({"n": 0}, "n", "from 1 to 16"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "function's name"),
        ({"tool_choice": "required"}, "tool_choice", "no functions are registered"),
        (
            {
                "tools": [{"type": "function", "function": {"name": "none"}}],
                "tool_choice": {"type": "function", "function": {"name": "none"}},
            },
            "tool_choice.function.name",
            "cannot be demanded by name",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type", "not one of"),
        ({"stop": [""]}, "stop", "non-empty"),
    ],
)
def test_errors_of_bad_requests_name_the_field(serve, given, param, part):
    with pytest.raises(openai.BadRequestError) as caught:
        serve("Yes.").ask(**given)
    assert caught.value.param == param and part in caught.value.message


@pytest.mark.slow
def test_errors_have_openais_classes(serve):
    server = serve("Yes.", context_size=20)
    with pytest.raises(openai.NotFoundError, match="loaded: builtin") as missing:
        server.ask(model="gpt-4")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.APIStatusError, match="the prompt has 503 tokens and the context holds 20") as long:
        server.ask("word " * 500)
    assert (long.value.status_code, long.value.code) == (400, "context_length_exceeded")
    assert long.value.body["leap"]["prompt_tokens"] == 503
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="wrong").models.list()
    with pytest.raises(openai.NotFoundError):
        server.client().models.retrieve("gpt-4")
    with pytest.raises(openai.NotFoundError, match="there is no /v1/files"):
        server.client().files.list()


def test_a_failure_within_a_stream(serve):
    stream = serve(["Par", LeapGenerationError("the computer is on fire")]).ask(stream=True)
    said = []
    with pytest.raises(openai.APIError, match="on fire"):
        said += [chunk.choices[0].delta.content for chunk in stream]


def test_a_failure_of_a_whole_answer(serve):
    with pytest.raises(openai.InternalServerError, match="on fire"):
        serve(["Par", LeapGenerationError("the computer is on fire")]).ask()


@pytest.mark.parametrize("stream", [False, True])
def test_a_shaped_answer_that_was_cut_ends_by_length(serve, stream):
    """OpenAI's protocol has no error for that."""
    cut_by = GenerationFinishReason.MAX_TOKENS.value
    error = LeapConstraintError("cut", text='{"a": ', stats=GenerationStats(3, 2, 5, 1.0), cut_by=cut_by)
    answer = serve(['{"a"', error]).ask(stream=stream)
    if stream:
        chunks = list(answer)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == '{"a": '
        assert chunks[-1].choices[0].finish_reason == "length"
    else:
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ('{"a": ', "length")
        assert answer.usage.completion_tokens == 2


def test_an_answer_that_does_not_fit_its_shape(serve):
    error = LeapConstraintError("the answer does not fit", text="[]", problems=["not an object"])
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        serve([error]).ask()
    assert caught.value.body["leap"]["problems"] == ["not an object"]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_generation(serve, stream):
    stall = Stall()
    server = serve(Script(["One", stall, "two"]), "Yes.")
    client = server.client(timeout=0.3 if not stream else None)
    asked = {"model": "builtin", "messages": [{"role": "user", "content": "Hi."}]}
    if stream:
        answer = client.chat.completions.create(**asked, stream=True)
        assert stall.reached.wait(PROMPTLY)
        answer.close()
    else:
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(**asked)
    (model,) = server.models
    assert settled(lambda: model.active == 0), "its slot is free again"
    assert server.ask().choices[0].message.content == "Yes."


def test_a_full_queue(serve):
    stalls = [Stall(), Stall()]
    server = serve(*([stall, "Yes."] for stall in stalls), slots=1, queue=1)
    answers = []
    waiting = [threading.Thread(target=lambda: answers.append(server.ask())) for _ in stalls]
    for thread in waiting:
        thread.start()
    assert all(stall.reached.wait(PROMPTLY) for stall in stalls)
    with pytest.raises(openai.RateLimitError, match="1 requests wait") as caught:
        server.ask()
    assert caught.value.response.headers["retry-after"] == "1" and caught.value.code == "queue_full"
    for stall in stalls:
        stall.release()
    for thread in waiting:
        thread.join(PROMPTLY)
    assert len(answers) == 2


def test_raw_completions_go_on_from_a_text(serve):
    (choice,) = serve(" upon a time").client().completions.create(model="builtin", prompt="Once").choices
    assert (choice.text, choice.finish_reason) == (" upon a time", "stop")


def test_models_are_listed(serve):
    client = serve("Yes.").client()
    (model,) = client.models.list().data
    assert (model.id, client.models.retrieve("builtin").id, model.leap["slots"]) == ("builtin", "builtin", 8)
