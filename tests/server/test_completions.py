"""Completions of a raw text as OpenAI's client asks for them: probabilities, what follows the gap, several at once."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import httpx
import openai
import pytest

from leap_core import Complete, GenerationFinishReason, LeapGenerationError
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.responses import TokenLogprob
from leap_core.errors import GenerationStats
from leap_core.testing import Script, Stall

STATS = GenerationStats(3, 2, 5, 10.0)


def score(token: str | bytes, logprob: float, **top: float) -> TokenLogprob:
    token = token if isinstance(token, bytes) else token.encode()
    return TokenLogprob(token, logprob, None, tuple((name.encode(), value) for name, value in top.items()))


def end(text: str, scores: tuple[TokenLogprob, ...], prompt: tuple[TokenLogprob, ...] = ()) -> Complete:
    return Complete(ChatMessage("assistant", text), GenerationFinishReason.STOP, STATS, (), scores, prompt)


def complete(server, **given):
    return server.client().completions.create(**({"model": "builtin", "prompt": "Once"} | given))


@pytest.mark.slow
@pytest.mark.parametrize("stop", [None, "END"])
@pytest.mark.parametrize("stream", [False, True])
def test_probabilities_are_lists_with_an_entry_for_each_token(serve, stream, stop):
    scores = (score(" upon", -0.5, a=-0.5, b=-2.0), score(b"\xc3", -1.0), score(b"\xa4", -1.5), score("END", -3.0))
    server = serve([" upon", "ä", replace(end(" uponä", scores), stop_string=stop)])
    answer = complete(server, logprobs=2, stream=stream)
    found = [*answer][-1].choices[0].logprobs if stream else answer.choices[0].logprobs
    cut = ["END"] if stop is None else []
    assert found.tokens == [" upon", "bytes:\\xc3", "bytes:\\xa4", *cut], "what a stop string cut off has no entry"
    assert found.token_logprobs[:3] == [-0.5, -1.0, -1.5] and found.text_offset[:3] == [0, 5, 5]
    assert found.top_logprobs[0] == {"a": -0.5, "b": -2.0, " upon": -0.5}
    assert server.runner.requests[0].options.to_json()["top_logprobs"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_has_the_probabilities_of_the_prompt(serve, stream):
    server = serve([" upon", end(" upon", (score(" upon", -0.5),), (score("ce", -0.25),))])
    answer = complete(server, logprobs=0, echo=True, stream=stream)
    parts = [part.choices[0] for part in answer] if stream else answer.choices
    assert "".join(part.text for part in parts) == "Once upon"
    found = parts[-1].logprobs
    assert (found.tokens, found.token_logprobs) == (["On", "ce", " upon"], [None, -0.25, -0.5])
    assert found.text_offset == [0, 2, 4] and found.top_logprobs == [None, {"ce": -0.25}, {" upon": -0.5}]
    assert server.runner.requests[0].options.prompt_logprobs


def test_a_prompt_alone_is_scored(serve):
    server = serve([end(" upon", (score(" upon", -0.5),), (score("ce", -0.25),))])
    (choice,) = complete(server, logprobs=1, echo=True, max_tokens=0).choices
    assert (choice.text, choice.logprobs.tokens) == ("Once", ["On", "ce"])
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        complete(server, max_tokens=0)


def test_a_text_is_filled_in_where_the_model_can(serve):
    server = serve("Yes.", "b")
    with pytest.raises(openai.BadRequestError, match="cannot fill in") as caught:
        complete(server, suffix="c")
    assert caught.value.param == "suffix"
    server.runner.infill_prompt = lambda before, after: f"<pre>{before}<suf>{after}<mid>"
    assert complete(server, prompt="a", suffix="c").choices[0].text == "Yes."
    assert server.runner.requests[0].text == "<pre>a<suf>c<mid>"
    assert complete(server, prompt="a", suffix="").choices[0].text == "b", "an empty one asks for nothing"
    with pytest.raises(openai.BadRequestError, match="echo: cannot be combined"):
        complete(server, suffix="c", echo=True)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [5, "", [], [""], ["a", 1], [[]], [[1, "a"]], [True], [1.5], {"a": 1}, ["a"] * 129])
def test_invalid_prompts_are_refused(serve, prompt):
    with pytest.raises(openai.BadRequestError, match=r"prompt: (expected a text, token ids|more than 128 answers)"):
        complete(serve("Yes."), prompt=prompt)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_are_answered_in_the_order_of_their_index(serve, stream):
    server = serve("A", "B", "C", "D")
    answer = complete(server, prompt=["a", [1, 2]], n=2, stream=stream)
    parts = [part.choices[0] for part in answer if part.choices] if stream else answer.choices
    texts = {n: "".join(part.text for part in parts if part.index == n) for n in range(4)}
    assert sorted(texts.values()) == ["A", "B", "C", "D"]
    asked = sorted(request.text if isinstance(request.text, str) else "tokens" for request in server.runner.requests)
    assert asked == ["a", "a", "tokens", "tokens"]
    if not stream:
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        assert answer.usage.prompt_tokens == 4 and answer.usage.completion_tokens == 4


def test_several_answers_are_streamed_as_they_come(serve):
    """They were sent whole at the end."""
    first, second = Stall(), Stall()
    server = serve(Script(["A", first, "a"]), Script(["B", second, "b"]))
    asked = {"n": 2, "stream": True, "stream_options": {"include_usage": True}}
    seen = []
    for chunk in server.ask(**asked):
        for choice in chunk.choices:
            seen.append((choice.index, choice.delta.content or "", choice.finish_reason))
        if {(0, "A", None), (1, "B", None)} <= set(seen):
            first.release()
            second.release()
        usage = chunk.usage
    assert usage.completion_tokens == 4 and usage.total_tokens == usage.prompt_tokens + 4
    texts = ["".join(text for index, text, _ in seen if index == n) for n in (0, 1)]
    assert texts == ["Aa", "Bb"] and {index for index, _, reason in seen if reason == "stop"} == {0, 1}


def test_a_stop_ends_all_of_several_answers_and_begins_no_more(serve):
    """It ended the first alone."""

    def stopped(count: int, seen: int) -> list[str]:
        texts = [""] * count
        with server.client().chat.completions.with_streaming_response.create(
            model="builtin", messages=[{"role": "user", "content": "Hello?"}], n=count, stream=True
        ) as response:
            running = True
            for chunk in itertools.chain([None], response.parse()):
                for choice in [] if chunk is None else chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
                if sum(map(bool, texts)) == seen and running:
                    path = f"/leap/stop/{response.headers['X-Leap-Generation']}"
                    assert server.host.ask("POST", path, {}, timeout=60)["running"]
                    running = False
        return texts

    server = serve(Script(["A", Stall(30), "a"]), Script(["B", Stall(30), "b"]), private=True)
    assert stopped(2, seen=2) == ["A", "B"]
    server.runner.add([Stall(30), "C"])
    assert stopped(3, seen=0) == ["", "", ""]
    assert len(server.runner.requests) == 3, "two answers, and the first of three"


def test_one_of_several_answers_that_fails_ends_them_all(serve):
    server = serve(Script(["A", Stall()]), ["B", LeapGenerationError("on fire")])
    with pytest.raises(openai.APIError, match="on fire"):
        list(server.ask(n=2, stream=True))
    server.runner.add("C")
    server.runner.add([LeapGenerationError("on fire")])
    with pytest.raises(openai.InternalServerError, match="on fire"):
        server.ask(n=2)
    (model,) = server.models
    assert model.active == 0


def test_the_stream_of_several_answers_has_openais_form(serve):
    asked = {"model": "builtin", "prompt": "x", "n": 2, "stream": True, "echo": True}
    headers = {"Authorization": "Bearer secret"}
    answer = httpx.post(f"{serve('A', 'B').url}/completions", json=asked, headers=headers, timeout=100)
    *frames, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert len({chunk["id"] for chunk in chunks}) == 1
    texts = {n: "".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == n) for n in (0, 1)}
    assert texts == {0: "xA", 1: "xB"}
