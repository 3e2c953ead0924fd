"""A guard: questions about what a person says and what a model answers, which stop the message or the answer.

Each is a question in either form of ``questions``, with three fields more:

{"type": "predicate", "instructions": "Is this an insult?", "of": "message", "threshold": 0.8}
{"type": "choice", "instructions": "What is this?", "choices": ["question", "order"], "stop": ["order"]}

``stop``: the answers that stop it (true, of a predicate); ``threshold``: how likely they must be together (0.5);
``of``: what is asked about, the message or the answer (both).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import fsum
from typing import Any

from ...conversation.generator import Generation, Generator, PassingGeneration
from ...conversation.messages import ChatMessage, ChatMessageRole, Image, Text
from ...conversation.responses import Complete, GenerationFinishReason, MessageResponse
from ...errors import LeapGenerationError, LeapGuardError, LeapSerializationError, LeapUnsupportedMediaError
from ...system.dataclass import dataclass
from .answer_probabilities import side_by_side
from .answers import Answer, names_of
from .deciding import Settings, decide
from .questions import PREDICATE, Decision, Question, read_questions

MESSAGE, ANSWER = "message", "answer"
THRESHOLD = 0.5


@dataclass(frozen=True)
class Watched:
    """A question and when it stops: ``stop`` are the numbers of its options, ``of`` what it is asked about."""

    question: Question
    name: str
    stop: tuple[int, ...]
    threshold: float
    of: tuple[str, ...]

    def trips(self, answer: Answer) -> float | None:
        """How likely the answers that stop are, where that is enough."""
        share = fsum(answer.probabilities[n] for n in self.stop)
        return share if share >= self.threshold else None


@dataclass(frozen=True)
class Guard:
    """``questions`` and the model that answers them. ``settings``: how they are asked."""

    runner: Generator
    questions: tuple[Watched, ...]
    settings: Settings = field(default_factory=Settings)

    def guarding(self, messages: Sequence[ChatMessage], start: Callable[[], Generation]) -> Generation:
        """The answer that ``start`` begins: the last message is checked before, and the answer before any of it is
        delivered. Raises LeapGuardError while it is read."""
        return _GuardedGeneration(self, messages, start)

    def check(self, what: str, messages: Sequence[ChatMessage], state: Any, cancelled: Callable[[], bool]) -> None:
        """Raises LeapGuardError where a question stops the message or the answer; pictures of the last message belong
        to the state."""
        asked = [each for each in self.questions if what in each.of]
        if not asked:
            return
        content = messages[-1].content if messages else ()
        pictures = tuple(part for part in content or () if isinstance(part, Image))
        if any(not isinstance(part, (Image, Text)) for part in content or ()):
            raise LeapUnsupportedMediaError("a guard cannot check audio", hint="send text, or omit the guard")
        decision = Decision(state, tuple(each.question for each in asked), pictures)
        ask = side_by_side(self.runner, cancelled)
        for each, answer in zip(asked, decide(self.runner, decision, self.settings, ask=ask).answers, strict=True):
            share = each.trips(answer)
            if share is not None:
                raise LeapGuardError(what, each.name, share, each.threshold)


def read_guard(value: object) -> tuple[Watched, ...]:
    """The questions. Raises LeapSerializationError that names the place."""
    if isinstance(value, Mapping):
        named = {f"questions.{name}": each for name, each in value.items()}
    else:
        named = {f"questions[{n}]": each for n, each in enumerate(value)} if isinstance(value, list) else {}
    own = {place: {key: each[key] for key in OWN if key in each} for place, each in named.items() if _is_object(each)}
    bare = [_without(each) for each in named.values()]
    questions = read_questions(dict(zip(value, bare, strict=True)) if isinstance(value, Mapping) else bare)
    names = names_of(questions)
    return tuple(
        _watched(question, name, own[place], place)
        for place, question, name in zip(named, questions, names, strict=True)
    )


OWN = ("stop", "threshold", "of")


def _watched(question: Question, name: str, fields: Mapping[str, Any], path: str) -> Watched:
    threshold = fields.get("threshold", THRESHOLD)
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 < threshold <= 1:
        raise LeapSerializationError("expected a probability above 0, up to 1", path=f"{path}.threshold")
    of = fields.get("of")
    if of not in (None, MESSAGE, ANSWER):
        raise LeapSerializationError(f"{of!r} is not one of {MESSAGE}, {ANSWER}", path=f"{path}.of")
    if "stop" not in fields and question.kind != PREDICATE:
        raise LeapSerializationError("missing: which answers stop it?", path=f"{path}.stop")
    stop = fields.get("stop", True)
    if stop == []:
        raise LeapSerializationError("empty: which answers stop it?", path=f"{path}.stop")
    numbers = [_number(question, each, f"{path}.stop") for each in (stop if isinstance(stop, list) else [stop])]
    return Watched(
        question, name, tuple(sorted(set(numbers))), float(threshold), (MESSAGE, ANSWER) if of is None else (of,)
    )


def _number(question: Question, value: object, path: str) -> int:
    for n, option in enumerate(question.options):
        if type(option.value) is type(value) and option.value == value:
            return n
    raise LeapSerializationError(f"{value!r} is not one of {', '.join(question.texts)}", path=path)


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


def _without(value: Any) -> Any:
    return {key: each for key, each in value.items() if key not in OWN} if isinstance(value, Mapping) else value


class _GuardedGeneration(PassingGeneration):
    """Holds the answer back until the questions about it are answered."""

    def __init__(self, guard: Guard, messages: Sequence[ChatMessage], start: Callable[[], Generation]) -> None:
        super().__init__()
        self._check, self._messages, self._start = guard.check, messages, start

    def _receive(self) -> None:
        self._ended = True
        self._ready.extend(self._answered())

    def _answered(self) -> list[MessageResponse]:
        last = self._messages[-1] if self._messages else None
        said = last is not None and last.role is ChatMessageRole.USER
        if said and last is not None and not self._passes(MESSAGE, last.text):
            return _interrupted()
        if not self._begin(self._start) or self._current is None:
            return _interrupted()
        held = list(self._current)
        complete = held[-1] if held else None
        if isinstance(complete, Complete):
            reply = complete.full_message
            state = {"message": self._asked(), "reasoning": reply.reasoning_content, "answer": reply.text}
            shown = {key: text for key, text in state.items() if text}
            if (reply.text or reply.reasoning_content) and not self._passes(ANSWER, shown):
                return _interrupted()
        return held

    def _asked(self) -> str:
        return next((each.text for each in reversed(self._messages) if each.role is ChatMessageRole.USER), "")

    def _passes(self, what: str, state: Any) -> bool:
        """Whether it was checked before it was stopped. Raises LeapGuardError."""
        pictures = self._messages if what == MESSAGE else ()
        try:
            self._check(what, pictures, state, lambda: self._stopped)
        except LeapGenerationError as error:
            if isinstance(error, LeapGuardError) or not self._stopped:
                raise
        return not self._stopped


def _interrupted() -> list[MessageResponse]:
    return [Complete(ChatMessage(ChatMessageRole.ASSISTANT), GenerationFinishReason.INTERRUPTED)]
