"""What comes of a question: probabilities of its options, what follows from them, and temperatures fitted to cases.

One for each kind of question and group of numbers of options, like those in llama.cpp's decision models. They mean
nothing for another model, or another way of asking.

The confidence of a choice is how far its probability is above an even one, on a scale to 1; that of a score how close
to the likeliest level the probability lies, compared with an even one (the formulas that System One publishes and
llama.cpp and SGLang compute).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import LeapOptionsError
from ...system.dataclass import dataclass
from ...system.directories import Directories
from ...system.files import replace_text
from .questions import PREDICATE, SCORE, Question
from .wording import NAMES


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


BINS = 15
"""Cases are sorted into these many bins of equal width, by the probability of the likeliest option."""
LOWEST, HIGHEST = 0.02, 100.0
STEPS = 60
FEWEST_CASES = 10
"""A group of fewer cases takes the temperature of its kind."""


@dataclass(frozen=True)
class Case:
    """A question that was asked, and the number of the right option."""

    kind: str
    logprobs: tuple[float, ...]
    right: int


@dataclass(frozen=True)
class Quality:
    """How good the answers to cases are. ``ece``: the expected calibration error, 0 to 1."""

    cases: int
    accuracy: float
    log_loss: float
    ece: float


@dataclass(frozen=True)
class Fit:
    """Fitted temperatures, and the quality on cases held back with and without them."""

    temperatures: Mapping[str, float]
    fitted_cases: int
    before: Quality
    after: Quality


def temperature_names(kind: str, options: int) -> tuple[str, str]:
    """The names of a question's temperatures: of its group, and of its kind."""
    group = "2" if options <= 2 else "3_5" if options <= 5 else "6_10" if options <= 10 else "11"
    return f"{NAMES[kind]}.{group}", NAMES[kind]


def temperature_of(kind: str, options: int, temperatures: Mapping[str, float]) -> float | None:
    """The temperature for a question; None where there is none."""
    return next((temperatures[name] for name in temperature_names(kind, options) if name in temperatures), None)


def fit(cases: Sequence[Case]) -> Fit:
    """Temperatures from one half of the cases, drawn the same each time, judged on the other. Raises LeapOptionsError
    for too few."""
    if len(cases) < 2 * FEWEST_CASES:
        raise LeapOptionsError("fit", f"{len(cases)} cases are too few; give {2 * FEWEST_CASES} or more")
    drawn = random.Random(0).sample(cases, len(cases))  # files are often in an order that halves would share
    fitted, held_back = drawn[::2], drawn[1::2]
    groups: dict[str, list[Case]] = {}
    for case in fitted:
        for name in temperature_names(case.kind, len(case.logprobs)):
            groups.setdefault(name, []).append(case)
    temperatures = {name: _best(group) for name, group in sorted(groups.items()) if len(group) >= FEWEST_CASES}
    return Fit(temperatures, len(fitted), quality(held_back, {}), quality(held_back, temperatures))


def quality(cases: Sequence[Case], temperatures: Mapping[str, float]) -> Quality:
    """Accuracy, mean log loss and ECE."""
    judged = [(case, _shares(case, temperatures)) for case in cases]
    right = [each.index(max(each)) == case.right for case, each in judged]
    loss = -math.fsum(math.log(max(each[case.right], 1e-12)) for case, each in judged) / len(judged)
    return Quality(len(cases), sum(right) / len(right), loss, ece([max(each) for _, each in judged], right))


def ece(probabilities: Sequence[float], right: Sequence[bool]) -> float:
    """The mean distance between how sure the answers are and how often they are right, over bins of equal width."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, each in zip(probabilities, right, strict=True):
        bins.setdefault(min(BINS - 1, int(probability * BINS)), []).append((probability, each))
    distances = (abs(math.fsum(p for p, _ in group) - sum(each for _, each in group)) for group in bins.values())
    return math.fsum(distances) / len(right)


def kept_temperatures(fingerprint: str, way: str, directories: Directories | None = None) -> dict[str, float]:
    """What was fitted for these weights and this way of asking; empty for nothing. Raises LeapOptionsError for a file
    that is damaged."""
    if not fingerprint:
        return {}
    path = _path(fingerprint, directories)
    try:
        table = json.loads(path.read_text("utf-8"))
        return {str(name): _sound(value) for name, value in table.get(way, {}).get("temperatures", {}).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise LeapOptionsError("decisions", f"{path} has no temperatures: {error}; fit them again") from None


def keep(fit: Fit, model: str, fingerprint: str, way: str, directories: Directories | None = None) -> Path:
    """Write the temperatures where ``kept_temperatures`` reads them; those of other ways of asking stay."""
    path = _path(fingerprint, directories)
    table = {}
    if path.exists():
        try:
            table = dict(json.loads(path.read_text("utf-8")))
        except ValueError:
            table = {}
    table["model"] = model
    table[way] = {
        "temperatures": dict(fit.temperatures),
        "cases": fit.fitted_cases,
        "held_back": fit.after.cases,
        "ece_before": fit.before.ece,
        "ece_after": fit.after.ece,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(table, ensure_ascii=False, indent=2) + "\n")
    return path


def _path(fingerprint: str, directories: Directories | None) -> Path:
    return (directories or Directories.from_environment()).data / "decisions" / f"{fingerprint}.json"


def _sound(value: object) -> float:
    if not isinstance(value, (int, float)) or not LOWEST <= value <= HIGHEST:
        raise ValueError(f"{value!r} is no temperature")
    return float(value)


def _shares(case: Case, temperatures: Mapping[str, float]) -> list[float]:
    return shares(case.logprobs, temperature_of(case.kind, len(case.logprobs), temperatures) or 1.0)


def _best(cases: Sequence[Case]) -> float:
    """The temperature of the least log loss, by golden section over its logarithm: the loss has one valley."""

    def loss(logarithm: float) -> float:
        rows = (shares(case.logprobs, math.exp(logarithm))[case.right] for case in cases)
        return -math.fsum(math.log(max(share, 1e-12)) for share in rows)

    return math.exp(_lowest(loss, math.log(LOWEST), math.log(HIGHEST)))


def _lowest(of: Callable[[float], float], low: float, high: float) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(STEPS):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if of(left) <= of(right):
            high = right
        else:
            low = left
    return (low + high) / 2
