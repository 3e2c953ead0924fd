"""How likely a model finds each of several answers: the probability of its tokens, one after the other, after the same
prompt, which is computed once. Nothing is calibrated: the numbers compare the options with each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..errors import LeapGenerationError
from ..messages import ChatMessage
from ..options import GenerationOptions
from ..responses import Complete
from ..runner.contract import ModelRunner


def option_logprobs(
    runner: ModelRunner, messages: Sequence[ChatMessage], labels: Sequence[str], options: GenerationOptions
) -> list[float]:
    """The logarithm of each label's probability as the beginning of the answer, before any constraint."""
    return [_logprob(runner, messages, label, options) for label in labels]


def probabilities(logprobs: Sequence[float]) -> list[float]:
    """Shares of the options among each other; they sum to 1."""
    best = max(logprobs)
    weights = [math.exp(each - best) for each in logprobs]
    return [weight / sum(weights) for weight in weights]


def _logprob(runner: ModelRunner, messages: Sequence[ChatMessage], label: str, options: GenerationOptions) -> float:
    held = replace(options, choices_constraint=[label], logprobs=True, temperature=0.0, repetition_penalty=1.0)
    generation = runner.start(messages, (), held)
    complete = None
    try:
        for response in generation:
            if isinstance(response, Complete):
                complete = response
                break
    finally:
        generation.close()
    total, tail, label_bytes = 0.0, b"", label.encode()
    for each in reversed(complete.logprobs if complete is not None else ()):  # reasoning may stand before the label
        if tail == label_bytes:
            break
        total, tail = total + each.logprob, each.token + tail
    if tail != label_bytes:
        raise LeapGenerationError("this model gives no probabilities", hint="load it in this process")
    return total
