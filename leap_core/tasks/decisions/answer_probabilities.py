"""How likely a model finds each of several answers, before any constraint.

``text``: an option's tokens are those that the tokenizer makes of its text alone, and its probability is the product of
theirs, one after the other, after the same prompt, which is computed once. An answer counts for the longest option that
it begins with: where the tokens of one option begin those of another (``1`` and ``10``), the longer one's probability
is taken from the shorter one's, so that no answer counts twice.

``labels``: one token is read. Of a label's forms the likeliest counts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...conversation.generator import Generation, Generator
from ...conversation.messages import ChatMessage
from ...conversation.options import GenerationOptions
from ...conversation.responses import Complete
from ...conversation.streams import last_of
from ...errors import LeapError, LeapGenerationError
from .wording import Label

TEXT, LABELS = "text", "labels"
READOUTS = (TEXT, LABELS)
AT_ONCE = 8
SURELY = 1e6
Prompt = tuple[list[ChatMessage], GenerationOptions]
AskAll = Callable[[Sequence[Prompt]], Iterator[Complete]]
"""Asks the model these prompts, and gives the answers in their order."""
NO_PROBABILITIES = "this model gives no probabilities"


class Reading(ABC):
    """The reading of one question with its options in one order."""

    prompts: list[Prompt]

    @abstractmethod
    def logprobs(self, completes: Sequence[Complete]) -> list[float]:
        """The logarithm of each option's probability, from the answers to the prompts; -inf where nothing is left of
        it. Raises LeapGenerationError where an answer has no probabilities."""

    @abstractmethod
    def mass(self, completes: Sequence[Complete]) -> float:
        """The probability that the answer is any of the options."""


class TextReading(Reading):
    """Reads the whole texts of the options."""

    def __init__(
        self, runner: Generator, messages: list[ChatMessage], texts: Sequence[str], options: GenerationOptions
    ) -> None:
        self._texts = texts
        self._tokens = [_tokens_of(runner, text) for text in texts]
        self.prompts = [(messages, _held(text, ids, options)) for text, ids in zip(texts, self._tokens, strict=True)]

    def logprobs(self, completes: Sequence[Complete]) -> list[float]:
        begun = [_logprob(text, complete) for text, complete in zip(self._texts, completes, strict=True)]
        return [_without_longer(n, self._tokens, begun) for n in range(len(begun))]

    def mass(self, completes: Sequence[Complete]) -> float:
        return min(1.0, math.fsum(map(math.exp, self.logprobs(completes))))


class LabelReading(Reading):
    """Reads one token."""

    def __init__(self, messages: list[ChatMessage], labels: Sequence[Label], options: GenerationOptions) -> None:
        self._labels = labels
        named = tuple(dict.fromkeys(token for label in labels for token in label.tokens))
        self._places = {token: n for n, token in enumerate(named)}
        # With this bias the answer is a label, whatever the model prefers; what is noted is without it.
        bias = {named[0]: SURELY}
        asked = replace(options, logprob_tokens=named, temperature=0.0, max_tokens=1, logit_bias=bias)
        self.prompts = [(messages, asked)]

    def logprobs(self, completes: Sequence[Complete]) -> list[float]:
        noted = self._noted(completes)
        return [max(noted[self._places[token]] for token in label.tokens) for label in self._labels]

    def mass(self, completes: Sequence[Complete]) -> float:
        return min(1.0, math.fsum(map(math.exp, self._noted(completes))))

    def _noted(self, completes: Sequence[Complete]) -> list[float]:
        (complete,) = completes
        top = complete.logprobs[0].top if complete.logprobs else ()
        if len(top) != len(self._places):
            raise LeapGenerationError(NO_PROBABILITIES, hint="load it in this process (--no-host)")
        return [logprob for _, logprob in top]


def side_by_side(runner: Generator, cancelled: Callable[[], bool] = lambda: False) -> AskAll:
    """Asks several prompts at a time, so that the first computes what the others share. It gives up when it is
    ``cancelled``, with LeapGenerationError."""

    def ask(prompts: Sequence[Prompt]) -> Iterator[Complete]:
        begun: list[Generation] = []
        try:
            for messages, options in prompts:
                if cancelled():
                    raise LeapGenerationError("the decision was given up")
                begun.append(runner.start(messages, (), options))
                if len(begun) == AT_ONCE:
                    yield last_of(begun.pop(0))
            while begun:
                yield last_of(begun.pop(0))
        finally:
            for generation in begun:
                generation.close()

    return ask


def _tokens_of(runner: Generator, text: str) -> tuple[int, ...] | None:
    """The tokens of an option; None where the runner does not know them, or they would spell something else."""
    try:
        tokens = runner.tokenize(text)
        return tuple(tokens) if runner.detokenize(tokens) == text else None
    except LeapError:
        return None


def _held(text: str, tokens: tuple[int, ...] | None, options: GenerationOptions) -> GenerationOptions:
    """Options with which the answer is this text."""
    asked = replace(options, logprobs=True, temperature=0.0, repetition_penalty=1.0)
    if tokens is None:
        return replace(asked, choices_constraint=[text])
    return replace(asked, grammar_constraint="start: " + " ".join(f"<[{token}]>" for token in tokens))


def _logprob(text: str, complete: Complete) -> float:
    """The logarithm of the probability that the answer begins with the text."""
    total, tail, whole = 0.0, b"", text.encode()
    for each in reversed(complete.logprobs):  # reasoning may come before it
        if tail == whole:
            break
        total, tail = total + each.logprob, each.token + tail
    if tail != whole:
        raise LeapGenerationError(NO_PROBABILITIES, hint="load it in this process (--no-host)")
    return total


def _without_longer(n: int, tokens: Sequence[tuple[int, ...] | None], begun: Sequence[float]) -> float:
    """The logarithm of what is left of an option's probability without the options that continue from it."""
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
