"""The answer to a question: probabilities of its options, and the confidence that follows from them.

The confidence of a choice is how far its probability is above an even one, on a scale to 1; that of a score how close
to the likeliest level the probability lies, compared with an even one (the formulas that System One publishes and
llama.cpp and SGLang compute).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...system.dataclass import dataclass
from .questions import PREDICATE, SCORE, Question


@dataclass(frozen=True)
class Answer:
    """``probabilities`` of the question's options in their order, at ``temperature``; they sum to 1. ``readout``: text
    or labels. ``label_mass``: the model's probability of giving any of the options. ``orders``: how many orders of the
    options were asked, ``agreeing`` how many of them had the same answer. ``logprobs`` of the options, without any
    temperature. ``fitted``: the temperature was fitted to
    cases of this model or comes with its file."""

    question: Question
    probabilities: tuple[float, ...]
    readout: str
    label_mass: float
    temperature: float = 1.0
    fitted: bool = False
    orders: int = 1
    agreeing: int = 1
    logprobs: tuple[float, ...] = ()

    @property
    def best(self) -> int:
        """The number of the likeliest option."""
        return self.probabilities.index(max(self.probabilities))

    @property
    def value(self) -> str | bool:
        """The likeliest option's value."""
        return self.question.options[self.best].value

    @property
    def text(self) -> str:
        """The likeliest option as it is written."""
        return self.question.texts[self.best]

    @property
    def probability(self) -> float:
        """Of the likeliest option; of a predicate, that it is true."""
        return self.probabilities[0] if self.question.kind == PREDICATE else max(self.probabilities)

    @property
    def score(self) -> float:
        """The expected level, counted from 0."""
        return math.fsum(n * share for n, share in enumerate(self.probabilities))

    @property
    def margin(self) -> float:
        """How much likelier the first option is than the second."""
        first, second = sorted(self.probabilities, reverse=True)[:2]
        return first - second

    @property
    def confidence(self) -> float:
        """0 for an even distribution, 1 for a certain one."""
        confidence = score_confidence if self.question.kind == SCORE else choice_confidence
        return confidence(self.probabilities)


@dataclass(frozen=True)
class Decided:
    """Answers in the order of the questions. ``prompt_tokens``: of all prompts, each counted once; ``cached_tokens``
    of them were restored. ``computed_tokens``: what all readings together computed of prompts. ``new_tokens``: the
    prompts with what they share counted once."""

    answers: tuple[Answer, ...]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    new_tokens: int = 0


def choice_confidence(probabilities: Sequence[float]) -> float:
    """How far the likeliest option is above an even share."""
    even = 1.0 / len(probabilities)
    return max(0.0, (max(probabilities) - even) / (1.0 - even))


def score_confidence(probabilities: Sequence[float]) -> float:
    """How close to the likeliest level the others are."""
    count = len(probabilities)
    likeliest = probabilities.index(max(probabilities))
    distance = math.fsum(abs(n - likeliest) * share for n, share in enumerate(probabilities))
    even = math.fsum(abs(n - (count - 1) / 2) for n in range(count)) / count
    return max(0.0, 1.0 - distance / even)


def shares(logprobs: Sequence[float], temperature: float = 1.0) -> list[float]:
    """Shares of the options among each other; they sum to 1."""
    best = max(logprobs)
    if best == -math.inf:
        return [1 / len(logprobs)] * len(logprobs)
    weights = [math.exp((each - best) / temperature) for each in logprobs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def how_sure(answer: Answer) -> dict[str, Any]:
    """What is known of an answer beside its probabilities, as JSON."""
    sure: dict[str, Any] = {
        "confidence": answer.confidence,
        "margin": answer.margin,
        "readout": answer.readout,
        "label_mass": answer.label_mass,
    }
    if answer.fitted:
        sure["temperature"] = answer.temperature
    if answer.orders > 1:
        sure["stable"] = f"{answer.agreeing}/{answer.orders}"
    return sure


def answer_object(answer: Answer) -> dict[str, Any]:
    """An answer with its probabilities by the options' texts, as JSON."""
    shares = dict(zip(answer.question.texts, answer.probabilities, strict=True))
    score = {"score": answer.score} if answer.question.kind == SCORE else {}
    return {"answer": answer.value, **score, "probabilities": shares, **how_sure(answer)}


def names_of(questions: Sequence[Question]) -> list[str]:
    """A name for each question: its own, or its number."""
    return [each.name or str(n) for n, each in enumerate(questions, 1)]
