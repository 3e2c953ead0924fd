"""Probabilities of options: those of their tokens one after the other, computed again by llama.cpp's own calls."""

from __future__ import annotations

import math

import pytest

from leap_core.conversation.messages import ChatMessage
from leap_core.conversation.options import GenerationOptions
from leap_core.tasks.decisions.answer_probabilities import TextReading, side_by_side
from leap_core.tasks.decisions.answers import shares as probabilities

from ..bare_llama import bare_llama
from .conftest import do

MESSAGES = [ChatMessage("user", "What is the capital of France?")]
OPTION_SETS = [
    ["Paris", "Berlin", "Rome"],
    ["yes", "no", "not sure", "not sure at all"],
    ["1", "10", "100", "2", "1000000"],
    ["Paris", "Paris.", "Par", "The capital of France is Paris."],
    ["日本", "日", "é", "naïve café"],
]


@pytest.fixture(scope="module")
def oracle(builtin):
    with bare_llama(str(builtin.model.path)) as loaded:
        yield loaded


@pytest.mark.slow
@pytest.mark.parametrize("labels", OPTION_SETS, ids=lambda labels: labels[0])
def test_probabilities_are_those_computed_token_by_token_by_hand(builtin, oracle, labels):
    prompt = oracle.tokens(builtin.render(MESSAGES).text, special=True)
    by_tokens = {label: oracle.tokens(label, special=False) for label in labels}
    begun = {label: math.exp(sum(oracle.logprobs(prompt, ids))) for label, ids in by_tokens.items()}
    by_hand = []
    for label, ids in by_tokens.items():  # an answer counts for the longest option that it begins with
        longer = [other for other, more in by_tokens.items() if other != label and more[: len(ids)] == ids]
        direct = [
            each
            for each in longer
            if not any(o != each and by_tokens[each][: len(by_tokens[o])] == by_tokens[o] for o in longer)
        ]
        by_hand.append(begun[label] - sum(begun[other] for other in direct))
    reading = TextReading(builtin, MESSAGES, labels, GenerationOptions())
    logprobs = reading.logprobs(list(side_by_side(builtin)(reading.prompts)))
    assert [math.exp(each) for each in logprobs] == pytest.approx(by_hand, rel=0.02, abs=1e-12)
    shares = probabilities(logprobs)
    assert math.fsum(shares) == pytest.approx(1, abs=1e-12)
    assert shares == pytest.approx([each / sum(by_hand) for each in by_hand], rel=0.02, abs=1e-9)


def test_shares_sum_to_one_also_where_nothing_is_left():
    assert probabilities([-math.inf, -math.inf]) == [0.5, 0.5]
    assert probabilities([-9000.0, -9001.0]) == pytest.approx([0.731, 0.269], abs=1e-3)


@pytest.mark.slow
def test_classify_returns_labels_alone(builtin):
    labels = ["greeting", "question", "Grüße, 挨拶", "a label of many words", "123"]
    for text in ("Hello!", "Where is it?", "日本語のテキスト", "x" * 500):
        complete = do(builtin, text, task="classify", labels=labels)
        details = complete.details
        assert complete.full_message.text in labels and details is not None
        assert list(details["probabilities"]) == labels
        assert sum(details["probabilities"].values()) == pytest.approx(1)


def test_a_score_tells_the_expected_value(builtin):
    complete = do(builtin, "It rains.", task="decide", question="How good is the weather?", score="1..10")
    details = complete.details
    shares = details["probabilities"]
    assert list(shares) == [str(n) for n in range(1, 11)] and complete.full_message.text in shares
    assert details["expected"] == pytest.approx(sum(int(n) * share for n, share in shares.items()))
