"""Several answers, echoes, measurements, abilities, and the log of requests."""

from __future__ import annotations

import logging
import time

import httpx
import openai
import pytest

from leap_core import LeapGenerationError
from leap_core.conversation.generator import Activity, PromptProgress
from leap_core.testing import Script, Stall


def get(server, path, **headers):
    return httpx.get(
        f"http://127.0.0.1:{server.port}{path}", headers={"Authorization": "Bearer secret", **headers}, timeout=100
    )


def post(server, path, body):
    headers = {"Authorization": "Bearer secret"}
    return httpx.post(f"http://127.0.0.1:{server.port}{path}", json=body, headers=headers, timeout=100)


def test_several_answers_to_one_request(serve):
    server = serve("One.", "Two.", "Three.")
    completion = server.ask(n=3, seed=5)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert sorted(choice.message.content for choice in completion.choices) == ["One.", "Three.", "Two."]
    assert sorted(request.options.rng_seed for request in server.runner.requests) == [5, 6, 7]
    assert completion.usage.completion_tokens == 3
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + 3


def test_one_of_several_answers_that_fails_ends_the_others(serve):
    stall = Stall()
    server = serve(["One.", LeapGenerationError("on fire")], Script(["Two", stall]))
    with pytest.raises(openai.InternalServerError, match="on fire"):
        server.ask(n=2)
    (model,) = server.models
    deadline = time.monotonic() + 100
    while model.active:
        assert time.monotonic() < deadline, "the other answer goes on for no one"
        time.sleep(0.01)


def test_several_answers_in_a_stream(serve):
    chunks = list(serve("One.", "Two.").ask(n=2, stream=True, stream_options={"include_usage": True}))
    texts = {0: "", 1: ""}
    for chunk in chunks[:-1]:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert sorted(texts.values()) == ["One.", "Two."] and chunks[-1].usage.completion_tokens == 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_contains_the_prompt(serve, stream):
    answer = serve(" upon a time").client().completions.create(model="builtin", prompt="Once", echo=True, stream=stream)
    text = "".join(chunk.choices[0].text for chunk in answer) if stream else answer.choices[0].text
    assert text == "Once upon a time"


@pytest.mark.slow
def test_metrics_are_exposed(serve):
    server = serve(["One", "two", "three"], "Four.")
    server.ask(), server.ask()
    with pytest.raises(Exception, match="404"):
        server.client().get("/nothing", cast_to=object)
    text = get(server, "/metrics").text
    assert 'leap_requests_total{path="/v1/chat/completions",status="200"} 2.0' in text
    assert 'leap_requests_total{path="other",status="404"} 1.0' in text
    assert 'leap_tokens_total{kind="completion",model="builtin"} 4.0' in text
    assert 'leap_time_to_first_token_seconds_count{model="builtin"} 2.0' in text
    assert 'leap_time_between_tokens_seconds_count{model="builtin"} 2.0' in text
    assert 'leap_slots{model="builtin"} 8.0' in text and 'leap_slots_in_use{model="builtin"} 0.0' in text


def test_metrics_include_prompts_in_progress_and_queues_by_level(serve):
    server = serve("Hi.")
    reading = (PromptProgress(100, 20, 60, 1.5), PromptProgress(50, 0, 10, 0.5))
    busy = Activity(3, 2, 8, None, 0.0, 0.0, False, {"interactive": 1, "batch": 2}, 4, reading)
    server.runner.activity = lambda: busy
    text = get(server, "/metrics").text
    assert 'leap_queue_by_level{level="batch",model="builtin"} 2.0' in text
    assert 'leap_prompts_reading{model="builtin"} 2.0' in text
    assert 'leap_prompt_tokens_unread{model="builtin"} 80.0' in text
    assert 'leap_preemptions_total{model="builtin"} 4.0' in text
    (model,) = get(server, "/v1/models").json()["data"]
    assert model["leap"]["waiting_by_level"] == {"interactive": 1, "batch": 2}
    assert model["leap"]["reading"][0] == {"total": 100, "cache": 20, "processed": 60, "time_ms": 1500}


def test_capabilities_of_models_are_listed(serve):
    props = get(serve("Yes."), "/props").json()
    (model,) = props["models"]
    assert (model["model"], model["context_size"], model["slots"]) == ("builtin", 4096, 8)
    assert "/v1/responses" in props["endpoints"] and "path" not in model


def test_requests_have_ids_and_a_line_of_the_log_without_content(serve, caplog):
    server = serve("SECRETANSWER", "Yes.")
    with caplog.at_level(logging.INFO, "leap.access"):
        server.ask("SECRETQUESTION")
        named = get(server, "/health?key=SECRETQUERY", **{"X-Request-Id": "mine-1"})
        odd = get(server, "/SECRETPATH", **{"X-Request-Id": "two words"})
        deadline = time.monotonic() + 100
        while len([1 for record in caplog.records if record.name == "leap.access"]) < 3:
            assert time.monotonic() < deadline  # a line follows its answer
            time.sleep(0.01)
    assert named.headers["x-request-id"] == "mine-1" and odd.headers["x-request-id"].startswith("req_")
    lines = [record.getMessage() for record in caplog.records if record.name == "leap.access"]
    assert len(lines) == 3 and "SECRET" not in "".join(lines)
    assert lines[1].startswith("mine-1 GET /health 200, ") and " POST /v1/chat/completions 200, " in lines[0]


def test_tokens_of_a_runner_that_cannot_tell(serve):
    answer = post(serve("Yes."), "/tokenize", {"content": "Hi"})
    assert answer.status_code == 500 and "cannot tokenize" in answer.json()["error"]["message"]
    assert post(serve("Yes."), "/tokenize", {"content": 5}).json()["error"]["param"] == "content"
    assert post(serve("Yes."), "/detokenize", {"tokens": ["a"]}).json()["error"]["param"] == "tokens[0]"
