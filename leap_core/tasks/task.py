"""What all tasks are: plain data that says what to do to a text, whole or in pieces, and how a model is asked."""

from __future__ import annotations

import csv
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Protocol

from ..conversation.messages import ChatMessage, ChatMessageRole, Image, Text
from ..conversation.options import GENERATION, GenerationOptions
from ..conversation.responses import Complete, GenerationFinishReason
from ..conversation.runner import ModelRunner
from ..conversation.streams import last_of
from ..errors import GenerationStats, LeapGenerationError
from ..schemas.json_values import JsonObject
from ..system.dataclass import dataclass
from .recipe import PICTURE, TEXT, Recipe, Wording

Prompt = tuple[list[ChatMessage], GenerationOptions]

CHARACTERS_A_TOKEN = 32
"""More than a token has in any text worth reading: a text that is longer than the context times this does not fit."""
OVERRIDES = frozenset(name for name, row in GENERATION.items() if row.task)
"""Options that win over those of the recipe; the others are the task's own."""


class Ask(Protocol):
    """Asks the model one prompt. ``on_text`` is called with the answer's text as it comes, where the asker has it
    so."""

    def __call__(
        self,
        messages: Sequence[ChatMessage],
        options: GenerationOptions,
        on_text: Callable[[str], object] | None = None,
        /,
    ) -> Complete: ...


@dataclass(frozen=True)
class TaskAnswer:
    """``text`` is what the task puts out; ``details`` is what else there is to know, as JSON."""

    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class TaskModel:
    """A model while it does a task. ``tell`` is called with how the work is divided, ``emit`` what the task puts out,
    as far as that comes in pieces. ``answers``: what came so far."""

    runner: ModelRunner
    wording: Wording
    ask: Ask
    overrides: GenerationOptions = field(default_factory=GenerationOptions)
    tell: Callable[[str], object] = lambda _line: None
    emit: Callable[[str], object] | None = None
    answers: list[Complete] = field(default_factory=list)

    def options(self, **fields: Any) -> GenerationOptions:
        """The recipe's options, those that win over them, and the task's own ``fields``."""
        over = {name: value for name, value in self.overrides.to_json().items() if name in OVERRIDES}
        return self.wording.generation_options(**{"complete_json": True, **over, **fields})

    def text(self, messages: Sequence[ChatMessage], options: GenerationOptions) -> str:
        """The text of the model's answer. Raises LeapError."""
        return self.complete(messages, options).full_message.text

    def complete(self, messages: Sequence[ChatMessage], options: GenerationOptions) -> Complete:
        """The model's answer. Raises LeapError."""
        return self._note(self.ask(messages, options))

    def read_all(self, prompts: Sequence[Prompt]) -> Iterator[Complete]:
        """The answers to prompts of which only probabilities are read, so that none is cut. Raises LeapError."""
        for messages, options in prompts:
            complete = self.ask(messages, options)
            self._note(replace(complete, finish_reason=GenerationFinishReason.STOP))
            yield complete

    def stripped_text(self, messages: Sequence[ChatMessage], options: GenerationOptions) -> str:
        """The text without white space around it, which is emitted as it comes. Raises LeapError."""
        complete = self._note(self.ask(messages, options, None if self.emit is None else Stripped(self.emit).feed))
        return complete.full_message.text.strip()

    def put(self, text: str) -> None:
        """Emit a text between answers."""
        if self.emit is not None:
            self.emit(text)

    def _note(self, complete: Complete) -> Complete:
        self.answers.append(complete)
        return complete

    def fits(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether a quarter of the context is left for the answer."""
        return self.runner.get_prompt_tokens_size(messages) <= self.runner.context_size * 3 // 4

    @property
    def most_characters(self) -> int:
        """Of a text that is worth measuring."""
        return self.runner.context_size * CHARACTERS_A_TOKEN


class Task(ABC):
    """One thing to do to texts. Its fields are its parameters."""

    name: ClassVar[str]
    places: ClassVar[frozenset[str]]
    """The names that the recipe's wordings may have in braces."""

    @abstractmethod
    def to_json(self) -> JsonObject:
        """The task's name and parameters, as in a line of a batch."""

    @abstractmethod
    def prompts(self, model: TaskModel, message: ChatMessage) -> Iterator[Prompt]:
        """The prompts that this input makes; those that depend on answers are left out."""

    @abstractmethod
    def answer(self, model: TaskModel, message: ChatMessage, name: str) -> TaskAnswer:
        """Do it to an input, called ``name``. Raises LeapError."""

    def caution(self, model: TaskModel) -> str | None:
        """What to say before a model does the task that is not made for it."""
        return None

    @property
    def header(self) -> str | None:
        """The first line of a table of answers."""
        return None


@dataclass(frozen=True)
class TaskReply(Complete):
    """What a task puts out, as the reply of a model. ``details``: what else there is to know, as JSON."""

    details: JsonObject | None = None


@dataclass(frozen=True)
class RecipeTask:
    """A task and the recipe that it is put to models with."""

    task: Task
    recipe: Recipe

    def to_json(self) -> JsonObject:
        """All that decides what is asked, beside the text."""
        return {**self.task.to_json(), "recipe": self.recipe.source}

    def model(self, runner: ModelRunner, message: ChatMessage, ask: Ask, **more: Any) -> TaskModel:
        """The model with the wording for it and this kind of input; ``more``: further fields of TaskModel. Raises
        LeapOptionsError."""
        kind = PICTURE if pictures_of(message) else TEXT
        wording = self.recipe.wording_for(runner.model_id, kind, runner.header_names)
        return TaskModel(runner, wording, ask, **more)

    def complete(
        self,
        runner: ModelRunner,
        message: ChatMessage | str,
        ask: Ask | None = None,
        *,
        name: str = "text",
        **more: Any,
    ) -> TaskReply:
        """Do the task to an input, called ``name``: the answer as one reply. ``ask``: how the model is asked; without
        it, to the end of each answer. ``more``: further fields of TaskModel. Raises LeapError."""
        message = ChatMessage("user", message) if isinstance(message, str) else message
        if not text_of(message).strip() and not pictures_of(message):
            raise LeapGenerationError("the text is empty")
        model = self.model(runner, message, ask or asking(runner), **more)
        answer = self.task.answer(model, message, name)
        reasons = GenerationFinishReason
        cut = (reasons.MAX_TOKENS, reasons.EXCEED_CONTEXT, reasons.REPETITION)
        met = [each.finish_reason for each in model.answers if each.finish_reason in cut]
        warnings = tuple(dict.fromkeys(line for each in model.answers for line in each.warnings))
        reply = ChatMessage(ChatMessageRole.ASSISTANT, answer.text)
        stats = stats_of([each.stats for each in model.answers if each.stats is not None])
        reason = met[0] if met else reasons.STOP
        return TaskReply(reply, reason, stats, warnings, details=dict(answer.details) or None)


class Stripped:
    """Passes a text on as it comes, without the white space before and after it."""

    def __init__(self, emit: Callable[[str], object]) -> None:
        self._emit = emit
        self._held = ""
        self._begun = False

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        text = self._held + piece
        if not self._begun:
            text = text.lstrip()
        whole = text.rstrip()
        self._held = text[len(whole) :]
        if whole:
            self._begun = True
            self._emit(whole)


def asking(runner: ModelRunner) -> Ask:
    """Asks a model to the end of its answers."""

    def ask(
        messages: Sequence[ChatMessage], options: GenerationOptions, on_text: Callable[[str], object] | None = None, /
    ) -> Complete:
        return last_of(runner.start(messages, (), options), on_text)

    return ask


def text_of(message: ChatMessage) -> str:
    """The text of an input."""
    return "".join(part.text for part in message.content if isinstance(part, Text))


def pictures_of(message: ChatMessage) -> list[Image]:
    """The pictures of an input."""
    return [part for part in message.content if isinstance(part, Image)]


def stats_of(parts: Sequence[GenerationStats]) -> GenerationStats | None:
    """The counts of several generations together; the speed is their mean, weighed by tokens."""
    if not parts:
        return None
    tokens = sum(part.completion_tokens for part in parts)
    seconds = sum(part.completion_tokens / part.token_per_second for part in parts if part.token_per_second > 0)
    timed = sum(part.completion_tokens for part in parts if part.token_per_second > 0)
    prompt = sum(part.prompt_tokens for part in parts)
    return GenerationStats(
        prompt,
        tokens,
        prompt + tokens,
        timed / seconds if seconds else 0.0,
        sum(part.cached_prompt_tokens for part in parts),
        parts[0].time_to_first_token,
    )


Fits = Callable[[str], bool]

MARKS = ("\n\n", "\n", ". ", "。", " ")
"""Where a text is cut, the best places first."""
ENDS = (re.compile(r"[\r\n]+"), re.compile(r"[.!?]\s+|[。！？]"))
"""Where a line ends, and a sentence."""
RULE = "\n----------\n"
"""What comes between the head of a transcript and what was said."""
LONGEST_HEAD = 4000


def pieces_that_fit(text: str, fits: Fits, most: int | None = None) -> list[str]:
    """The text, cut in halves at a paragraph, line, sentence or space until every piece fits. ``most``: characters
    that never fit, so that a long text is not measured to no purpose. A text is left whole where nothing would fit."""
    if fits_whole(text, fits, most) or not fits(""):
        return [text]
    return _halves(text, fits, most)


def fits_whole(text: str, fits: Fits, most: int | None) -> bool:
    """Whether a text fits, measured only where it may."""
    return (most is None or len(text) <= most) and fits(text)


def _halves(text: str, fits: Fits, most: int | None) -> list[str]:
    if len(text) < 2 or fits_whole(text, fits, most):
        return [text]
    middle = len(text) // 2
    for mark in MARKS:
        place = text.rfind(mark, len(text) // 4, middle)
        if place > 0:
            middle = place + len(mark)
            break
    return [*_halves(text[:middle], fits, most), *_halves(text[middle:], fits, most)]


def halves_between_sentences(text: str) -> tuple[str, str] | None:
    """The text cut between the two lines nearest to its middle, or else sentences; None where it has but one."""
    for end in ENDS:
        places = [match.end() for match in end.finditer(text)]
        places = [place for place in places if text[:place].strip() and text[place:].strip()]
        if places:
            place = min(places, key=lambda place: abs(2 * place - len(text)))
            return text[:place], text[place:]
    return None


def head_of(text: str) -> tuple[str, str]:
    """The head of a transcript with the rule that ends it, and the rest; without a rule the head is empty."""
    place = text.find(RULE, 0, LONGEST_HEAD)
    if place < 0:
        return "", text
    end = place + len(RULE)
    return text[:end] + "\n" * (text[end : end + 1] == "\n"), text[end:].removeprefix("\n")


def merged(parts: list[JsonObject]) -> JsonObject:
    """One document of several pieces: lists are joined without repeats, objects are merged, otherwise the first piece
    that has a field counts."""
    whole: JsonObject = {}
    for part in parts:
        for name, value in part.items():
            before = whole.get(name)
            if before is None:
                whole[name] = value
            elif isinstance(before, list) and isinstance(value, list):
                whole[name] = before + [item for item in value if item not in before]
            elif isinstance(before, dict) and isinstance(value, dict):
                whole[name] = merged([before, value])
    return whole


def table_row(values: Sequence[object], delimiter: str = ",") -> str:
    """A row without its line end; what is no text is written as JSON."""
    text = io.StringIO()
    cells = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerow(cells)  # what is in it is quoted
    return text.getvalue().removesuffix("\r\n")
