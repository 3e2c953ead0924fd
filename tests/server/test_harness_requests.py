"""The requests of lm-evaluation-harness 0.4.13, as its models `gguf` and `local-completions` and its remote tokenizer
send them, on the real engine; `scripts/check_lm_eval.py` runs the harness itself."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from leap_core import Leap
from leap_core.conversation.options import GenerationOptions

pytestmark = pytest.mark.slow

CONTEXT = "The capital of Italy is"
CONTINUATIONS = [" Rome", " Paris!", " Küken 🐣"]
ENDING = " Paris!"
"""After this the model ends: the token that it generates adds no text."""


@pytest.fixture(scope="module")
def url():
    command = [sys.executable, "-m", "leap_cli", "serve", "builtin", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip().removesuffix("/v1")
        assert "ready" in process.stderr.readline()
        yield address
        process.terminate()


@pytest.fixture(scope="module")
def runner():
    with Leap.load("builtin", host="never") as runner:
        yield runner


def post(url, path, body):
    answer = httpx.post(url + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def scored(runner, prompt):
    """The logarithms of the probabilities of a prompt's tokens but the first, computed in process."""
    *_, end = runner.start_text(prompt, GenerationOptions(temperature=0.0, max_tokens=1, prompt_logprobs=True))
    return [each.logprob for each in end.prompt_logprobs]


@pytest.mark.slow
@pytest.mark.parametrize("continuation", CONTINUATIONS)
def test_gguf_scores_a_continuation(url, runner, continuation):
    body = {"prompt": CONTEXT + continuation, "logprobs": 10, "temperature": 0.0, "max_tokens": 1, "echo": True}
    lists = post(url, "/v1/completions", body)["choices"][0]["logprobs"]
    begin = next(n for n, offset in enumerate(lists["text_offset"]) if offset >= len(CONTEXT))
    own = runner.tokenize(CONTEXT + continuation)
    assert len(lists["tokens"]) == len(own) + 1, "an entry for each token of the prompt, and one for the generated one"
    expected = scored(runner, CONTEXT + continuation)
    assert sum(lists["token_logprobs"][begin:-1]) == pytest.approx(sum(expected[begin - len(own) :]), abs=0.02)
    assert all(isinstance(each, dict) for each in lists["top_logprobs"][begin:])


@pytest.mark.slow
def test_local_completions_scores_lists_of_token_ids(url, runner):
    """By default the harness sends ids, which its tokenizer made, of several questions at once."""

    def ids(text):
        body = {"prompt": text, "add_special_tokens": False}
        return post(url, "/tokenize", body)["tokens"]

    prompts = [ids(CONTEXT + continuation) for continuation in CONTINUATIONS]
    body = {"model": "builtin", "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234}
    choices = post(url, "/v1/completions", body | {"echo": True})["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    for prompt, choice in zip(prompts, choices, strict=True):
        lists = choice["logprobs"]
        assert len(lists["token_logprobs"]) == len(prompt) + 1 and lists["token_logprobs"][0] is None
        expected = scored(runner, prompt)
        assert lists["token_logprobs"][1:-1] == pytest.approx(expected, abs=0.02)
        for logprob, top in zip(lists["token_logprobs"][1:], lists["top_logprobs"][1:], strict=True):
            assert logprob in top.values(), "the harness compares these numbers by =="


def test_one_token_alone_is_a_prompt(url):
    """The harness sends it as the context of an unconditional continuation."""
    body = {"prompt": [[5]], "model": "builtin", "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True}
    lists = post(url, "/v1/completions", body)["choices"][0]["logprobs"]
    assert len(lists["tokens"]) == 2 and lists["text_offset"] == [0, len(lists["tokens"][0])]


def test_texts_side_by_side_and_alone_are_the_same(url):
    body = {"model": "builtin", "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True}
    texts = [CONTEXT + continuation for continuation in CONTINUATIONS]
    together = post(url, "/v1/completions", body | {"prompt": texts})["choices"]
    for text, choice in zip(texts, together, strict=True):
        (alone,) = post(url, "/v1/completions", body | {"prompt": text})["choices"]
        assert choice["logprobs"]["tokens"] == alone["logprobs"]["tokens"]
        assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(
            alone["logprobs"]["token_logprobs"][1:], abs=0.02
        )


@pytest.mark.slow
def test_the_remote_tokenizer_knows_all_that_the_harness_asks(url, runner):
    info = httpx.get(url + "/tokenizer_info", timeout=100).json()
    assert info["eos_token"] and info["bos_token"] == runner.tokenizer_info().bos_token and info["chat_template"]
    begun = info["bos_token"] + CONTEXT
    tokens = post(url, "/tokenize", {"prompt": begun, "add_special_tokens": True})["tokens"]
    assert tokens.count(tokens[0]) == 1, "no second token that opens the text"
    assert post(url, "/detokenize", {"tokens": tokens[1:]})["prompt"] == CONTEXT
    assert post(url, "/tokenize", {"content": CONTEXT})["tokens"] == tokens[1:], "as llama.cpp's server has it"
    body = {"model": "builtin", "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True}
    one, other = (post(url, "/v1/completions", body | {"prompt": text}) for text in (begun, CONTEXT))
    assert one["usage"]["prompt_tokens"] == other["usage"]["prompt_tokens"]
