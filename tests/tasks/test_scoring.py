"""Probabilities of options: those of their tokens one after the other, computed again by llama.cpp's own calls."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from leap_core.llama.library import library
from leap_core.messages import ChatMessage
from leap_core.options import GenerationOptions
from leap_core.tasks.scoring import option_logprobs, probabilities

from .conftest import do, model_of

MESSAGES = [ChatMessage("user", "What is the capital of France?")]
OPTION_SETS = [
    ["Paris", "Berlin", "Rome"],
    ["yes", "no", "not sure", "not sure at all"],
    ["1", "10", "100", "2", "1000000"],
    ["Paris", "Paris.", "Par", "The capital of France is Paris."],
    ["日本", "日", "é", "naïve café"],
]


class Oracle:
    """Computes the probability of tokens after a text with nothing but llama.cpp's C calls."""

    def __init__(self, path: str) -> None:
        self.lib = lib = library()
        parameters = lib.llama_model_default_params()
        self.model = lib.llama_model_load_from_file(path.encode(), parameters)
        context = lib.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = 512, 512, 512
        context.type_v = lib.GGML_TYPE_BF16 if hasattr(lib, "GGML_TYPE_BF16") else 30  # as leap keeps values
        context.flash_attn_type = 1
        self.context = lib.llama_init_from_model(self.model, context)
        self.vocab = lib.llama_model_get_vocab(self.model)

    def tokens(self, text: str, *, special: bool) -> list[int]:
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 8))()
        count = self.lib.llama_tokenize(self.vocab, data, len(data), room, len(room), False, special)
        return list(room[:count])

    def logprobs(self, prompt: list[int], option: list[int]) -> list[float]:
        """The logarithm of the probability of each token of the option, all computed anew."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        tokens = prompt + option
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for n, token in enumerate(tokens):
            batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = token, n, 1, True
            batch.seq_id[n][0] = 0
        assert self.lib.llama_decode(self.context, batch) == 0
        size = self.lib.llama_vocab_n_tokens(self.vocab)
        result = []
        for n, token in enumerate(option, len(prompt) - 1):
            row = np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, n), (size,)).astype(np.float64)
            result.append(float(row[token] - row.max() - math.log(np.exp(row - row.max()).sum())))
        self.lib.llama_batch_free(batch)
        return result

    def close(self) -> None:
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)


@pytest.fixture(scope="module")
def oracle(builtin):
    oracle = Oracle(str(builtin.model.path))
    yield oracle
    oracle.close()


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
    logprobs = option_logprobs(model_of(builtin), MESSAGES, labels, GenerationOptions())
    assert [math.exp(each) for each in logprobs] == pytest.approx(by_hand, rel=0.02, abs=1e-12)
    shares = probabilities(logprobs)
    assert math.fsum(shares) == pytest.approx(1, abs=1e-12)
    assert shares == pytest.approx([each / sum(by_hand) for each in by_hand], rel=0.02, abs=1e-9)


def test_shares_sum_to_one_also_where_nothing_is_left():
    assert probabilities([-math.inf, -math.inf]) == [0.5, 0.5]
    assert probabilities([-9000.0, -9001.0]) == pytest.approx([0.731, 0.269], abs=1e-3)


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
