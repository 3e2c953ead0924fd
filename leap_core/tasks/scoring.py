"""How likely a model finds each of several answers, before any constraint. Nothing is calibrated: the numbers compare
the options with each other.

An option's tokens are those that the tokenizer makes of its text alone, and its probability is the product of theirs,
one after the other, after the same prompt, which is computed once. An answer counts for the longest option that it
begins with: where the tokens of one option begin those of another (``1`` and ``10``), the longer one's probability is
taken from the shorter one's, so that no answer counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..errors import LeapError, LeapGenerationError
from ..messages import ChatMessage
from ..options import GenerationOptions
from ..runner.contract import ModelRunner
from .task import TaskModel


def option_logprobs(
    model: TaskModel, messages: Sequence[ChatMessage], labels: Sequence[str], options: GenerationOptions
) -> list[float]:
    """The logarithm of each label's probability as the beginning of the answer; -inf where nothing is left of it."""
    tokens = [_tokens_of(model.runner, label) for label in labels]
    begun = [_logprob(model, messages, label, ids, options) for label, ids in zip(labels, tokens, strict=True)]
    return [_without_longer(n, tokens, begun) for n in range(len(labels))]


def probabilities(logprobs: Sequence[float]) -> list[float]:
    """Shares of the options among each other; they sum to 1."""
    best = max(logprobs)
    if best == -math.inf:
        return [1 / len(logprobs)] * len(logprobs)
    weights = [math.exp(each - best) for each in logprobs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _tokens_of(runner: ModelRunner, label: str) -> tuple[int, ...] | None:
    """The tokens of a label; None where the runner cannot tell, or they would spell something else."""
    try:
        tokens = runner.tokenize(label)
        return tuple(tokens) if runner.detokenize(tokens) == label else None
    except LeapError:
        return None


def _without_longer(n: int, tokens: Sequence[tuple[int, ...] | None], begun: Sequence[float]) -> float:
    """The logarithm of what is left of an option's probability without the options that go on from it."""
    own = tokens[n]
    if own is None:
        return begun[n]
    longer = {each for each in tokens if each is not None and each != own and _begins(own, each)}
    nearest = [each for each in longer if not any(each != other and _begins(other, each) for other in longer)]
    shares = [math.exp(begun[tokens.index(each)] - begun[n]) for each in nearest]
    rest = 1.0 - math.fsum(shares)
    return begun[n] + math.log(rest) if rest > 0.0 else -math.inf


def _begins(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return other[: len(one)] == one


def _logprob(
    model: TaskModel,
    messages: Sequence[ChatMessage],
    label: str,
    tokens: tuple[int, ...] | None,
    options: GenerationOptions,
) -> float:
    """The logarithm of the probability that the answer begins with the label."""
    if tokens is None:
        held = replace(options, choices_constraint=[label])
    else:
        held = replace(options, grammar_constraint="start: " + " ".join(f"<[{token}]>" for token in tokens))
    complete = model.complete(messages, replace(held, logprobs=True, temperature=0.0, repetition_penalty=1.0))
    total, tail, whole = 0.0, b"", label.encode()
    for each in reversed(complete.logprobs):  # reasoning may stand before the label
        if tail == whole:
            break
        total, tail = total + each.logprob, each.token + tail
    if tail != whole:
        raise LeapGenerationError("this model gives no probabilities", hint="load it in this process (--no-host)")
    return total
