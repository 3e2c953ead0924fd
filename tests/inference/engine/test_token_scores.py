"""Probabilities of the tokens of an answer, against a softmax over the same logits computed by hand."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from leap_core import Leap
from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions, ModelLoadingOptions
from leap_core.conversation.responses import Complete, MessageResponse
from leap_core.conversation.streams import last_of
from leap_core.inference.engine.sampler import ScoreRecorder


@pytest.fixture(scope="module")
def runner():
    with Leap.load("builtin", host="never") as runner:
        yield runner


def complete_of(runner, **options) -> Complete:
    question = [ChatMessage("user", "What is the capital of France?")]
    *_, end = runner.start(question, (), GenerationOptions(temperature=0.0, **options))
    assert isinstance(end, Complete)
    return end


def test_scores_equal_a_softmax():
    logits = np.random.default_rng(1).normal(0, 4, 65536).astype(np.float32)
    exact = logits.astype(np.float64) - math.log(np.exp(logits.astype(np.float64)).sum())
    recorder = ScoreRecorder(5)
    recorder.before_mask(logits)
    recorder.chosen(17, None)
    (score,) = recorder.scores
    assert score.logprob == pytest.approx(exact[17], abs=1e-5)
    order = np.argsort(-exact)[:5]
    assert [token for token, _ in score.top] == list(order)
    assert [logprob for _, logprob in score.top] == pytest.approx(list(exact[order]), abs=1e-5)


def test_every_token_of_an_answer_has_one(runner):
    end = complete_of(runner, top_logprobs=3)
    assert b"".join(each.token for each in end.logprobs).decode() == end.full_message.text
    for each in end.logprobs:
        assert each.top[0] == (each.token, each.logprob) and len(each.top) == 3 and each.allowed_logprob is None
        assert each.logprob <= 0 and sum(math.exp(logprob) for _, logprob in each.top) <= 1.0001
    assert complete_of(runner).logprobs == ()
    assert complete_of(runner, logprobs=True).logprobs[0].top == ()


def test_under_a_constraint_scores_before_and_after_the_mask_are_given(runner):
    end = complete_of(runner, choices_constraint=["Berlin", "Rome"], top_logprobs=2)
    assert end.full_message.text in ("Berlin", "Rome")
    first = end.logprobs[0]
    assert first.logprob <= first.allowed_logprob <= 0 and first.top[0][1] >= first.logprob


def test_scores_survive_json(runner):
    end = complete_of(runner, choices_constraint=["Berlin", "Rome"], top_logprobs=2)
    assert MessageResponse.from_json(end.to_json()) == end


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 90])
def test_scores_of_a_prompt_equal_those_when_it_was_generated(runner, length):
    text = "<|im_start|>user\n" + "Count to 90. " * length + "<|im_end|>\n<|im_start|>assistant\n"
    asked = {"temperature": 0.0, "function_call_parser": None}
    *_, made = runner.start_text(text, GenerationOptions(max_tokens=40, logprobs=True, **asked))
    whole = text + made.full_message.text
    options = GenerationOptions(max_tokens=1, prompt_logprobs=True, top_logprobs=2, **asked)
    *_, end = runner.start_text(whole, options)
    scores = end.prompt_logprobs
    assert b"".join(each.token for each in scores).decode() == whole, "the token that opens the text has no score"
    generated = scores[-len(made.logprobs) :]
    assert [each.token for each in generated] == [each.token for each in made.logprobs]
    expected = [each.logprob for each in made.logprobs]
    assert [each.logprob for each in generated] == pytest.approx(expected, abs=0.05)
    assert all(len(each.top) == 2 for each in scores) and Complete.from_json(end.to_json()) == end
    assert end.stats.cached_prompt_tokens == 0, "all of it was computed"


@pytest.mark.parametrize("text", ["The capital of Italy is Paris!", "One hour has 60 minutes."])
def test_a_scored_prompt_has_a_score_for_the_token_that_ends_the_answer_too(runner, text):
    """Without it lm-evaluation-harness took the last token of the prompt for the generated one, and left it out."""
    options = GenerationOptions(temperature=0.0, max_tokens=1, prompt_logprobs=True, logprobs=True, top_logprobs=1)
    *_, end = runner.start_text(text, options)
    assert end.full_message.text == "" and end.stats.completion_tokens == 0, "the model ends here"
    (score,) = end.logprobs
    assert score.top[0] == (score.token, score.logprob)
    *_, plain = runner.start_text(text, GenerationOptions(temperature=0.0, max_tokens=1, logprobs=True))
    assert plain.logprobs == (), "elsewhere the scores are those of the text"


def test_a_fill_in_the_middle_model_gets_prefix_and_suffix(runner, tmp_path, monkeypatch):
    from leap_core.errors import LeapOptionsError
    from tests.support import random_models

    with pytest.raises(LeapOptionsError, match="no tokens for filling in"):
        runner.infill_prompt("a", "c")
    for number, markers in enumerate(
        [("<|fim_pre|>", "<|fim_suf|>", "<|fim_mid|>"), ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")]
    ):
        monkeypatch.setattr(random_models, "CONTROL_TOKENS", (*random_models.CONTROL_TOKENS, *markers))
        path = random_models.write_random_model(tmp_path / f"{number}.gguf", random_models.TINY_LLAMA)
        with Leap.load(path, host="never") as infilling:
            prompt = infilling.infill_prompt("a", "c")
            assert prompt == f"{markers[0]}a{markers[1]}c{markers[2]}"
            tokens = infilling.tokenize(prompt, parse_special=True)
            assert [infilling.detokenize([tokens[n]]) for n in (0, 2, 4)] == list(markers)
            *_, end = infilling.start_text(prompt, GenerationOptions(max_tokens=3))
            assert end.stats.completion_tokens > 0
        monkeypatch.undo()


@pytest.mark.slow
@pytest.mark.parametrize("flash", [True, False])
def test_scores_equal_those_of_llama_cpp_python(flash):
    """The usual wrapper on the same tokens: each token of the answer, and the likeliest at its place."""
    from tests.support.whole_llama import whole_library

    whole_library()  # which declines what this processor cannot do, for the wrapper too
    import llama_cpp

    with Leap.load(
        "builtin", ModelLoadingOptions(flash_attention=flash, kv_type_k="f16", kv_type_v="f16"), host="never"
    ) as runner:
        prompt = runner.render([ChatMessage("user", "What is the capital of France?")]).text
        *_, end = runner.start_text(prompt, GenerationOptions(temperature=0.0, top_logprobs=5, max_tokens=24))
        path = str(runner.model.path)
    assert isinstance(end, Complete) and len(end.logprobs) >= 5
    peer = llama_cpp.Llama(path, n_ctx=512, logits_all=True, verbose=False, n_threads=1, flash_attn=flash)
    try:
        tokens = peer.tokenize(prompt.encode(), add_bos=False, special=True)
        reply = peer.create_completion(tokens, max_tokens=len(end.logprobs), temperature=0.0, logprobs=5)
        theirs = reply["choices"][0]["logprobs"]
        assert b"".join(each.token for each in end.logprobs).decode() == reply["choices"][0]["text"]
        for mine, logprob, top in zip(end.logprobs, theirs["token_logprobs"], theirs["top_logprobs"], strict=False):
            assert mine.logprob == pytest.approx(logprob, abs=1e-3)
            ours = {token.decode("utf-8", "ignore"): value for token, value in mine.top}
            shared = sorted(ours.keys() & top.keys())
            assert len(shared) >= 4, "parts of characters have no text there"
            assert [ours[name] for name in shared] == pytest.approx([top[name] for name in shared], abs=1e-3)
    finally:
        peer.close()


def test_under_a_constraint_scores_are_exact_before_and_after_the_mask(runner):
    """The mask leaves three tokens, whose own logarithms are known: after it they share all of the probability."""
    own = [complete_of(runner, regex_constraint=char, logprobs=True).logprobs[0].logprob for char in "abc"]
    score = complete_of(runner, regex_constraint="[abc]", logprobs=True).logprobs[0]
    place = "abc".index(score.token.decode())
    assert score.logprob == pytest.approx(own[place], abs=1e-6)
    everything = math.log(sum(math.exp(each) for each in own))
    assert score.allowed_logprob == pytest.approx(own[place] - everything, abs=1e-4)


def test_tokens_after_a_stop_string_are_not_counted(runner):
    """The reader finds the stop string while the engine goes on."""
    asked = [ChatMessage("user", "Count to 20.")]
    options = GenerationOptions(temperature=0.0, stop=("4",), top_logprobs=0, max_tokens=60)
    ends = []
    for pause in (0.0, 0.0, 0.05, 0.2):
        stream = runner.start(asked, options=options)
        time.sleep(pause)
        ends.append(last_of(stream))
    assert {(each.full_message.text, each.stats.completion_tokens, len(each.logprobs)) for each in ends} == {
        (ends[0].full_message.text, len(ends[0].logprobs), len(ends[0].logprobs))
    }
    assert b"4" in ends[0].logprobs[-1].token
    for stats in (each.stats for each in ends):
        assert stats.total_tokens == stats.prompt_tokens + stats.completion_tokens
