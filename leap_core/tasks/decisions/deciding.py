"""A decision put to a model: every question in every order, read, and the orders' answers brought together."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from weakref import WeakKeyDictionary

from ...conversation.generator import Generator
from ...conversation.messages import ChatMessage
from ...conversation.options import GenerationOptions
from ...conversation.responses import Complete
from ...errors import LeapOptionsError
from ...schemas.grammar_matcher import REASONING_TAGS
from ...system.dataclass import dataclass
from .answer_probabilities import (
    LABELS,
    READOUTS,
    TEXT,
    AskAll,
    LabelReading,
    Prompt,
    Reading,
    TextReading,
    side_by_side,
)
from .answers import Answer, Decided, shares
from .calibration import LabeledCase, kept_temperatures, temperature_of
from .questions import CHOICE, Decision, Question
from .wording import label_question, labels_of, message_of, text_question, variables_of

D1 = ("lfm2-d1", "lfm3-d1", "d1")
"""Kinds of GGUFs that are asked by their own template; ``d1`` in the first files of d1-3B."""
MOST_ORDERS = 24
MOST_TURNS = 8
"""Orders of a choice that a model which was not made for labels is asked in, at most."""
NO_TEXT = "N/A"
"""A state that says nothing: what a model prefers then is its prior."""
RECIPE = "recipe"
Put = Callable[[Question, Sequence[str]], list[ChatMessage]]


@dataclass(frozen=True)
class Settings:
    """How to ask. ``readout``: text or labels; None for what the model is made for, else text. ``orders``: in how many
    orders the options of a choice are asked. ``put``: the messages of a question and its texts in their order, in
    the place of leap's own wording, for the readout text. ``options`` of each generation. ``turned``: ask models that
    were not made for labels so that each option of a choice gets each label, in the place of ``orders``. ``put_free``:
    like ``put`` about a text that says nothing; what the model prefers then is taken from what it prefers."""

    readout: str | None = None
    orders: int = 1
    put: Put | None = None
    options: GenerationOptions = field(default_factory=GenerationOptions)
    turned: bool = False
    put_free: Put | None = None

    def __post_init__(self) -> None:
        if self.readout not in (None, *READOUTS):
            raise LeapOptionsError("readout", f"{self.readout!r} is not one of {', '.join(READOUTS)}")
        if not 1 <= self.orders <= MOST_ORDERS:
            raise LeapOptionsError("orders", f"{self.orders} is no number from 1 to {MOST_ORDERS}")


def decide(
    runner: Generator,
    decision: Decision,
    settings: Settings | None = None,
    *,
    ask: AskAll | None = None,
    temperatures: Mapping[str, float] | None = None,
) -> Decided:
    """The model's answers. ``ask`` asks the prompts; by default several at once. ``temperatures`` by kind of question
    and number of options: None for those of the model's file, or those that were fitted for it. Raises LeapError."""
    settings = settings or Settings()
    readout = readout_for(runner, settings)
    if temperatures is None:
        temperatures = temperatures_for(runner, way_of_asking(settings, readout))
    asked = [_asked(runner, decision, question, settings, readout) for question in decision.questions]
    prompts = [prompt for orders in asked for each in orders for prompt in each.prompts]
    if readout == LABELS and not runner.decision_model.kind:
        _refuse_reasoning(runner, prompts[0])
    completes = iter((ask or side_by_side(runner))(prompts))
    answers, usage = [], _Usage()
    for question, orders in zip(decision.questions, asked, strict=True):
        read = [(each, list(islice(completes, len(each.prompts)))) for each in orders]
        for _, answered in read:
            usage.count(answered)
        answers.append(_answer(question, read, readout, temperatures))
    return Decided(tuple(answers), usage.prompt, usage.cached, usage.computed, usage.new)


def prompts_of(runner: Generator, decision: Decision, settings: Settings) -> list[Prompt]:
    """The prompts that would be asked, one for each question and order. Raises LeapError."""
    readout = readout_for(runner, settings)
    asked = [_asked(runner, decision, question, settings, readout) for question in decision.questions]
    return [each.reading.prompts[0] for orders in asked for each in orders]


def cases_of(runner: Generator, decision: Decision, right: Sequence[int], settings: Settings) -> list[LabeledCase]:
    """The questions as cases for a fit, asked in one order. ``right``: the number of the right option of each."""
    decided = decide(runner, decision, settings, temperatures={})
    return [
        LabeledCase(answer.question.kind, answer.logprobs, number)
        for answer, number in zip(decided.answers, right, strict=True)
    ]


def readout_for(runner: Generator, settings: Settings) -> str:
    """The readout that is used. Raises LeapOptionsError for one that the model is not made for."""
    kind = runner.decision_model.kind
    if not kind:
        return settings.readout or TEXT
    if kind not in D1:
        raise LeapOptionsError(
            "model", f"{runner.model_id} is made for decisions of the kind {kind!r}, which leap does not know"
        )
    if settings.readout == TEXT:
        raise LeapOptionsError("readout", f"{runner.model_id} answers by labels of one token")
    return LABELS


def way_of_asking(settings: Settings, readout: str) -> str:
    """What temperatures are kept under: the readout; where the text is read after a task's own wording, that."""
    return RECIPE if readout == TEXT and settings.put is not None else readout


def temperatures_for(runner: Generator, way: str) -> Mapping[str, float]:
    """The temperatures that were fitted for the model and a way of asking, and else those of its file."""
    model = runner.decision_model
    return {**model.temperatures, **kept_temperatures(model.fingerprint, way)}


@dataclass(frozen=True)
class _Asked:
    """A question with its options in one order, by their numbers. ``prior``: the reading of it where the state says
    nothing, which is taken from the other one. ``known``: what it gave before, in which case it is not asked again."""

    order: tuple[int, ...]
    reading: Reading
    prior: Reading | None = None
    known: Sequence[float] | None = None
    keep: Callable[[Sequence[float]], object] = lambda _prior: None

    @property
    def prompts(self) -> list[Prompt]:
        return [*self.reading.prompts, *(self.prior.prompts if self.prior and self.known is None else ())]

    def logprobs(self, completes: Sequence[Complete]) -> list[float]:
        """Of the options, less what the model prefers without a state (Zhao et al. 2021, Calibrate Before Use)."""
        count = len(self.reading.prompts)
        found = self.reading.logprobs(completes[:count])
        prior = self.known or ([0.0] * len(found) if self.prior is None else self.prior.logprobs(completes[count:]))
        self.keep(prior)
        return [each - before if before > -math.inf else each for each, before in zip(found, prior, strict=True)]

    def mass(self, completes: Sequence[Complete]) -> float:
        return self.reading.mass(completes[: len(self.reading.prompts)])


def _asked(runner: Generator, decision: Decision, question: Question, settings: Settings, readout: str) -> list[_Asked]:
    if (
        readout == LABELS and question.kind == CHOICE and not runner.decision_model.kind
    ):  # it prefers some of the letters
        free, own = Decision(NO_TEXT, decision.questions), tuple(range(len(question.options)))
        orders = orders_of(question, settings.orders)
        if settings.turned:
            orders = [own[n:] + own[:n] for n in range(min(len(own), MOST_TURNS))]
        turned = [_turned(question, each) for each in orders]
        readings = [[_reading(runner, each, q, settings, readout) for each in (decision, free)] for q in turned]
        return [_Asked(each, asked_about, prior) for each, (asked_about, prior) in zip(orders, readings, strict=True)]
    orders = orders_of(question, settings.orders)
    asked = [_Asked(each, _reading(runner, decision, _turned(question, each), settings, readout)) for each in orders]
    return [_calibrated(runner, question, each, settings) for each in asked] if readout == TEXT else asked


PRIORS: WeakKeyDictionary[Generator, dict[str, Sequence[float]]] = WeakKeyDictionary()
MOST_PRIORS = 64
"""Wordings with their labels whose priors are kept of a model."""


def _calibrated(runner: Generator, question: Question, asked: _Asked, settings: Settings) -> _Asked:
    """The question with its prior, which is asked once for all texts."""
    if settings.put_free is None:
        return asked
    way = replace(settings, put=settings.put_free)
    reading = _reading(runner, Decision(NO_TEXT, (question,)), _turned(question, asked.order), way, TEXT)
    kept = PRIORS.setdefault(runner, {})
    key = repr([each.text for each in reading.prompts[0][0]] + [question.texts[n] for n in asked.order])

    def keep(prior: Sequence[float]) -> None:
        for oldest in list(kept)[: len(kept) + 1 - MOST_PRIORS] if len(kept) >= MOST_PRIORS else ():
            kept.pop(oldest, None)
        kept[key] = prior

    return replace(asked, prior=reading, known=kept.get(key), keep=keep)


def _reading(runner: Generator, decision: Decision, question: Question, settings: Settings, readout: str) -> Reading:
    options = settings.options
    if readout == TEXT:
        put = settings.put
        messages = (
            message_of(decision, text_question(question, question.texts))
            if put is None
            else put(question, question.texts)
        )
        return TextReading(runner, messages, question.texts, options)
    labels = labels_of(question, runner.tokenize)
    if runner.decision_model.kind:
        made = replace(options, decision=variables_of(decision, question, labels))
        return LabelReading([ChatMessage("user", [*decision.pictures])], labels, made)
    return LabelReading(message_of(decision, label_question(question, labels)), labels, options)


def orders_of(question: Question, count: int) -> list[tuple[int, ...]]:
    """Orders of the options that differ: as they are, the other way round, then drawn, the same ones each time. Only
    the options of a choice have no order of their own."""
    own = tuple(range(len(question.options)))
    if question.kind != CHOICE:
        return [own]
    found = [own, own[::-1]][:count]
    draw = random.Random(len(own))
    for _ in range(20 * count):
        if len(found) == count:
            break
        drawn = tuple(draw.sample(own, len(own)))
        if drawn not in found:
            found.append(drawn)
    return found


def _turned(question: Question, order: Sequence[int]) -> Question:
    options, texts = tuple(question.options[n] for n in order), tuple(question.texts[n] for n in order)
    return Question(question.kind, question.instructions, options, question.name, texts)


def _refuse_reasoning(runner: Generator, prompt: Prompt) -> None:
    """Raises LeapOptionsError where the first token of an answer is one of reasoning."""
    if runner.render(prompt[0], (), prompt[1]).text.rstrip().endswith(tuple(start for start, _ in REASONING_TAGS)):
        raise LeapOptionsError(
            "readout", f"{runner.model_id} reasons before it answers, so no label comes first; read the text instead"
        )


def _answer(
    question: Question,
    read: Sequence[tuple[_Asked, Sequence[Complete]]],
    readout: str,
    temperatures: Mapping[str, float],
) -> Answer:
    count = len(question.options)
    fitted = temperature_of(question.kind, count, temperatures)
    by_order, logprobs = [], [0.0] * count
    for asked, completes in read:
        found = asked.logprobs(completes)
        turned = shares(found, fitted or 1.0)
        row = [0.0] * count
        for place, number in enumerate(asked.order):
            row[number] = turned[place]
            logprobs[number] += found[place] / len(read)
        by_order.append(row)
    mean = [sum(row[n] for row in by_order) / len(by_order) for n in range(count)]
    best = mean.index(max(mean))
    return Answer(
        question,
        tuple(mean),
        readout,
        sum(asked.mass(completes) for asked, completes in read) / len(read),
        fitted or 1.0,
        fitted is not None,
        len(read),
        sum(row.index(max(row)) == best for row in by_order),
        tuple(logprobs),
    )


class _Usage:
    """Tokens of prompts."""

    def __init__(self) -> None:
        self.prompt = self.cached = self.computed = self.new = 0

    def count(self, completes: Sequence[Complete]) -> None:
        """Add what one reading took."""
        stats = [each.stats for each in completes if each.stats is not None]
        if not stats:
            return
        first = stats[0]
        self.new += first.prompt_tokens - (first.cached_prompt_tokens if self.prompt else 0)
        self.prompt += first.prompt_tokens
        self.cached += first.cached_prompt_tokens
        self.computed += sum(each.prompt_tokens - each.cached_prompt_tokens for each in stats)
